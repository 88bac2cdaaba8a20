"""What we say NCCL would choose, beside what NCCL's own library chooses, in a network of our own making.

Needs an interpreter with a wheel nvidia-nccl-cu12 or -cu13 (GPUDOCTOR_NCCL_PYTHON), `unshare` and `ip`; no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests import needs

_NETWORK = """
mount -t sysfs none /sys
ip link set lo up
ip link add docker0 type bridge
ip addr add 172.17.0.1/16 dev docker0
ip link add port type veth peer name other
ip link set port master docker0
ip link add eth0 type veth peer name far0
ip link add ib0 type veth peer name far1
ip link add eth1 type veth peer name far2
for name in port other docker0 eth0 far0 ib0 far1 eth1; do
  ip link set $name addrgenmode none
  ip link set $name up
done
ip addr add 10.1.2.3/24 dev eth0
ip addr add fd00::3/64 dev eth0 nodad
ip addr add 10.1.3.3/24 dev eth1
until grep -q up /sys/class/net/docker0/operstate && grep -q up /sys/class/net/eth0/operstate; do sleep 0.05; done
"""

_ASK = """
import json, sys
from gpudoctor.core.fact import Known
from gpudoctor.probes import nccl, network
from gpudoctor.target.local import Local
target = Local("standard", python=sys.argv[1])
facts = {**dict(network.probe(target)), **dict(nccl.probe(target))}
print(json.dumps({name: fact.value for name, fact in facts.items() if isinstance(fact, Known)}))
"""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has NCCL."""
    found = os.environ.get("GPUDOCTOR_NCCL_PYTHON", "")
    if not os.access(found, os.X_OK):
        pytest.skip("needs an interpreter with nvidia-nccl (GPUDOCTOR_NCCL_PYTHON)")
    return found


def asked(python: str, more: str = "", **environ: str) -> dict[str, Any]:
    """The known facts of both probes in a network of its own; `more` are commands that change it."""
    needs.program("ip")
    script = f'{_NETWORK}{more}\nexec "$@"'
    own = [needs.program("unshare"), "--user", "--map-root-user", "--net", "--mount", "/bin/sh", "-euc", script, "sh"]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [*own, sys.executable, "-c", _ASK, python],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**kept, **environ},
    )
    if done.returncode and "Operation not permitted" in done.stderr:
        needs.missing("the right to make network namespaces")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


@pytest.mark.parametrize(
    ("environ", "more", "interface"),
    [
        ({}, "", "eth0"),
        ({}, "ip addr add 192.168.9.1/24 dev ib0", "ib0"),
        ({}, "ip addr add fe80::9/64 dev ib0 nodad", "ib0"),
        ({"NCCL_SOCKET_IFNAME": "^eth"}, "ip link del ib0", "lo"),
        ({"NCCL_SOCKET_IFNAME": "=docker0"}, "", "docker0"),
        ({"NCCL_SOCKET_IFNAME": "lo"}, "", "lo"),
        ({"NCCL_SOCKET_IFNAME": "=,"}, "", "lo"),
        ({"NCCL_SOCKET_IFNAME": "^"}, "", "eth0"),
        ({"NCCL_COMM_ID": "10.1.3.77:29500"}, "", "eth1"),
        ({"NCCL_COMM_ID": "[fd00::9]:29500"}, "", "eth0"),
        ({"NCCL_COMM_ID": "10.1.3.77:29500", "NCCL_SOCKET_IFNAME": "eth0"}, "", "eth1"),
        ({"NCCL_COMM_ID": "localhost:29500"}, "", "lo"),
        ({}, "ip -4 addr flush dev eth0; ip addr add 10.1.4.4/24 dev far0", "far0"),
        ({"NCCL_SOCKET_FAMILY": "AF_INET6"}, "", "eth0"),
        ({}, "ip addr flush dev eth0; ip addr flush dev eth1", "docker0"),
        ({}, "ip link set far0 down; until grep -q lower /sys/class/net/eth0/operstate; do sleep 0.05; done", ""),
        ({}, "ip link add virbr0 type bridge; ip addr add 192.168.122.1/24 dev virbr0; ip addr flush dev eth0", ""),
    ],
)
def test_the_library_chooses_what_we_say(python: str, environ: dict[str, str], more: str, interface: str) -> None:
    """Where `interface` is empty it depends on the release."""
    facts = asked(python, more, **environ)
    assert facts["libnccl.state"] == "ok"
    assert facts["libnccl.interface"] == (interface or facts["libnccl.interface"])
    assert facts["net.nccl_interface"] == facts["libnccl.interface"]
    assert facts["net.nccl_address"] == facts["libnccl.address"]


@pytest.mark.parametrize("wanted", ["=eno1", "wlan", "^="])
def test_the_library_refuses_what_we_say_it_does(python: str, wanted: str) -> None:
    facts = asked(python, NCCL_SOCKET_IFNAME=wanted)
    assert facts["libnccl.state"] == "failed"
    assert facts["libnccl.error"] == "Bootstrap : no socket interface found"
    assert "net.nccl_interface" not in facts
    assert facts["net.unmatched"] == [f"NCCL_SOCKET_IFNAME={wanted}"]


def test_the_library_refuses_an_id_that_no_interface_leads_to(python: str) -> None:
    facts = asked(python, NCCL_COMM_ID="203.0.113.1:29500")
    assert facts["libnccl.error"].endswith("No usable listening interface found")
    assert "net.nccl_interface" not in facts


def test_the_library_is_loaded_without_a_driver(python: str) -> None:
    facts = asked(python)
    assert facts["libnccl.version"].startswith("2.")
    assert facts["libnccl.path"].endswith("/nvidia/nccl/lib/libnccl.so.2")

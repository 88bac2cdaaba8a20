"""What we say NCCL and Gloo would choose, beside what they choose themselves, in networks of our own making.

Needs `unshare` and `ip`; NCCL an interpreter with its wheel (GPUDOCTOR_NCCL_PYTHON, or torch for CUDA in
.venv-torch-cuda), Gloo one with torch; no GPU.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.processes import finished

pytestmark = pytest.mark.full

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
    found = os.environ.get("GPUDOCTOR_NCCL_PYTHON") or str(needs.REPOSITORY / ".venv-torch-cuda/bin/python")
    return found if os.access(found, os.X_OK) else needs.missing(f"an interpreter with nvidia-nccl ({found})")


def printed(network: str, argv: list[str], **environ: str) -> Any:
    """The object that the program prints last, in a network, mounts and a host name of its own."""
    needs.program("ip")
    own = ["--user", "--map-root-user", "--net", "--mount", "--uts", "/bin/sh", "-euc", f'{network}\nexec "$@"', "sh"]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    code, out, err = finished([needs.program("unshare"), *own, *argv], env={**kept, **environ})
    if code and "Operation not permitted" in err:
        needs.missing("the right to make network namespaces")
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


def asked(python: str, more: str = "", **environ: str) -> dict[str, Any]:
    """The known facts of both probes; `more` are commands that change the network."""
    facts: dict[str, Any] = printed(f"{_NETWORK}{more}", [sys.executable, "-c", _ASK, python], **environ)
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


HOSTS = {
    "an address of its own": "127.0.0.1 localhost\n10.1.2.3 node7\n",
    "as Debian sets it": "127.0.0.1 localhost\n127.0.1.1 node7\n",
    "another's address": "127.0.0.1 localhost\n10.9.9.9 node7\n",
    "another's first, then its own": "127.0.0.1 localhost\n10.9.9.9 node7\n10.1.2.3 node7\n",
}

_GLOO_NETWORK = """
mount -t sysfs none /sys
mount --bind "$HOSTS" /etc/hosts
hostname node7
ip link set lo up
ip link add eth0 type veth peer name far0
ip link set eth0 up
ip link set far0 up
ip addr add 10.1.2.3/24 dev eth0
until grep -q up /sys/class/net/eth0/operstate; do sleep 0.05; done
"""

_GLOO = """
import datetime, json, socket, sys
from torch.distributed import TCPStore
from torch._C._distributed_c10d import ProcessGroupGloo
found = {}
for number, (name, hosts) in enumerate(json.loads(sys.argv[1]).items()):
    open("/etc/hosts", "w").write(hosts)
    options = ProcessGroupGloo._Options()
    options._devices = [ProcessGroupGloo.create_default_device()]
    store = TCPStore("127.0.0.1", 0, 1, True)
    group = ProcessGroupGloo(store, 0, 1, datetime.timedelta(seconds=5))
    told = store.get("0/0")  # a length, the host's name, then a sockaddr
    at = told.index(bytes([socket.AF_INET, 0]), 8 + len(socket.gethostname()))
    found[name] = socket.inet_ntoa(told[at + 4 : at + 8])
print(json.dumps(found))
"""

_PROBE = """
import json, sys
from gpudoctor.probes import rendezvous
from gpudoctor.target.local import Local
found = {}
for name, hosts in json.loads(sys.argv[1]).items():
    open("/etc/hosts", "w").write(hosts)
    facts = dict(rendezvous.probe(Local("standard", python=sys.executable)))
    found[name] = getattr(facts["net.gloo_address"], "value", None)
print(json.dumps(found))
"""


@pytest.mark.parametrize("environ", [{}, {"GLOO_SOCKET_IFNAME": "eth0"}], ids=["by name", "by interface"])
def test_gloo_announces_what_we_say(tmp_path: Path, environ: dict[str, str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    theirs, ours = (
        printed(_GLOO_NETWORK, [python, "-c", code, json.dumps(HOSTS)], HOSTS=str(hosts), **environ)
        for python, code in ((needs.torch_python(), _GLOO), (sys.executable, _PROBE))
    )
    assert ours == theirs
    assert set(theirs) == set(HOSTS)

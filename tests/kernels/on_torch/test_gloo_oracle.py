"""What we say torch's Gloo would announce, beside what it announces, in a network and with a name of our own making."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.full

HOSTS = {
    "an address of its own": "127.0.0.1 localhost\n10.1.2.3 node7\n",
    "as Debian sets it": "127.0.0.1 localhost\n127.0.1.1 node7\n",
    "another's address": "127.0.0.1 localhost\n10.9.9.9 node7\n",
    "another's first, then its own": "127.0.0.1 localhost\n10.9.9.9 node7\n10.1.2.3 node7\n",
}

_NETWORK = """
mount -t sysfs none /sys
mount --bind "$HOSTS" /etc/hosts
hostname node7
ip link set lo up
ip link add eth0 type veth peer name far0
ip link set eth0 up
ip link set far0 up
ip addr add 10.1.2.3/24 dev eth0
until grep -q up /sys/class/net/eth0/operstate; do sleep 0.05; done
exec "$@"
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


def asked(python: str, code: str, hosts: Path, **environ: str) -> dict[str, str]:
    """What the program prints in a network of its own, a name for each of HOSTS."""
    needs.program("ip")
    own = ["--user", "--map-root-user", "--net", "--mount", "--uts"]
    argv = [needs.program("unshare"), *own, "/bin/sh", "-euc", _NETWORK, "sh", python, "-c", code, json.dumps(HOSTS)]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    env = {**kept, "HOSTS": str(hosts), **environ}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600, env=env)
    if done.returncode and "Operation not permitted" in done.stderr:
        needs.missing("the right to make network namespaces")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.full
@pytest.mark.parametrize("environ", [{}, {"GLOO_SOCKET_IFNAME": "eth0"}], ids=["by name", "by interface"])
def test_gloo_announces_what_we_say(tmp_path: Path, environ: dict[str, str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    theirs = asked(needs.torch_python(), _GLOO, hosts, **environ)
    ours = asked(sys.executable, _PROBE, hosts, **environ)
    assert ours == theirs
    assert set(theirs) == set(HOSTS)

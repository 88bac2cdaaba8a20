"""Interfaces and RDMA devices, which of them NCCL and Gloo would take, and where ranks would meet."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import network, rendezvous
from gpudoctor.probes._net_choice import resolve_names
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.buses import Network
from tests.probes.nvml_machine import rows
from tests.probes.nvml_machine import values as columns
from tests.probes.trees import Tree, values


def machine(root: Path) -> Tree:
    tree = Tree(root).folder("/sys/class/net/lo").folder("/sys/class/net/eth0").file("/sys/class/net/bonding_masters")
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    tree.file(f"{port}/state", "4: ACTIVE\n").file(f"{port}/link_layer", "Ethernet\n")
    return tree.file(f"{port}/rate", "400 Gb/sec (4X NDR)\n")


def test_this_machine_lists_what_the_kernel_lists() -> None:
    facts = values(network, Local("quick"))
    assert set(facts["net.interfaces"]) == {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize(
    "environ",
    [{}, {"NCCL_SOCKET_IFNAME": "^lo", "GLOO_SOCKET_IFNAME": "eth0,lo", "NCCL_IB_HCA": "mlx5"}],
    ids=["nothing set", "what is there"],
)
def test_variables_that_name_what_is_there(tmp_path: Path, environ: dict[str, str]) -> None:
    facts = values(network, machine(tmp_path).target(**environ))
    assert (facts["net.interfaces"], facts["net.unmatched"]) == (("eth0", "lo"), ())
    assert facts["net.hca_unmatched"] is Absent


def test_variables_that_name_nothing_here(tmp_path: Path) -> None:
    target = machine(tmp_path).target(NCCL_SOCKET_IFNAME="eno1", GLOO_SOCKET_IFNAME="eth0,^lo", NCCL_IB_HCA="=mlx5_1")
    facts = values(network, target)
    assert facts["net.unmatched"] == ("NCCL_SOCKET_IFNAME=eno1", "GLOO_SOCKET_IFNAME=eth0,^lo")
    assert facts["net.hca_unmatched"] == "=mlx5_1"


@pytest.mark.parametrize(
    ("wanted", "state", "found"),
    [
        ("mlx5", "4: ACTIVE", Absent),
        ("mlx5", "1: DOWN", "mlx5"),
        ("=mlx5_0:1", "2: INIT", "=mlx5_0:1"),
        ("mlx5_9", "1: DOWN", Absent),
    ],
)
def test_cards_that_are_named_and_have_no_active_port(tmp_path: Path, wanted: str, state: str, found: object) -> None:
    tree = machine(tmp_path).file("/sys/class/infiniband/mlx5_0/ports/1/state", f"{state}\n")
    assert values(network, tree.target(NCCL_IB_HCA=wanted))["net.hca_inactive"] == found


def test_without_rdma_and_at_a_port_that_does_not_say_its_state_nothing_is_inactive(tmp_path: Path) -> None:
    tree = machine(tmp_path).without("/sys/class/infiniband/mlx5_0/ports/1/state")
    assert values(network, tree.target(NCCL_IB_HCA="mlx5"))["net.hca_inactive"] is Unread
    facts = values(network, Tree(tmp_path / "none").linux().target(NCCL_IB_HCA="mlx5"))
    for name in ("hca_inactive", "hca_unmatched", "interfaces"):
        assert facts[f"net.{name}"] is Absent


def plain(tmp_path: Path) -> Network:
    """Loopback, docker's bridge, a card with two addresses, a card without."""
    net = Network(Tree(tmp_path)).add("docker0", "172.17.0.1/16", card=False).bridge("docker0")
    net.add("eth0", "10.1.2.3/24", "10.1.2.4/24", "fd00::3/64", "fe80::1/64").route("eth0", "0.0.0.0/0", "10.1.2.1")
    return net.add("eth1", state="down")


def row(facts: dict[str, Any], name: str) -> dict[str, object]:
    """The known columns of one interface."""
    return next(told for one in rows(facts, "interface") if (told := columns(one))["name"] == name)


def test_every_column_of_an_interface(tmp_path: Path) -> None:
    facts = values(network, plain(tmp_path).done().target())
    assert row(facts, "eth0") == {
        "name": "eth0",
        "index": 3,
        "kind": "physical",
        "virtual": False,
        "up": True,
        "mtu": 1500,
        "speed_mbps": 100000,
        "addresses": ("10.1.2.3", "10.1.2.4", "fd00::3", "fe80::1"),
        "default_route": True,
        "numa_node": 1,
    }
    assert row(facts, "docker0")["virtual"] is True
    assert row(facts, "docker0")["kind"] == "bridge"
    assert row(facts, "lo")["addresses"] == ("127.0.0.1", "::1")
    assert row(facts, "eth1")["up"] is False
    assert facts["net.default_interface"] == "eth0"


def test_bridges_and_addresses_alone_in_their_network(tmp_path: Path) -> None:
    net = Network(Tree(tmp_path)).add("eno1").add("br0", "10.0.0.2/24", card=False).bridge("br0", "eno1")
    facts = values(network, net.done().target())
    assert row(facts, "br0")["virtual"] is False
    assert row(facts, "eno1")["part_of"] == "br0"
    assert facts["net.nccl_inner"] is False
    # Google's machines and Calico's pods.
    net = Network(Tree(tmp_path / "alone")).add("eth0", "10.128.0.2/32").route("eth0", "0.0.0.0/0", "10.128.0.1")
    facts = values(network, net.done().target())
    assert row(facts, "eth0")["addresses"] == ("10.128.0.2",)
    assert facts["net.nccl_address"] == "10.128.0.2"


def test_where_two_may_have_it_nobody_is_named_and_without_proc_no_address_is_known(tmp_path: Path) -> None:
    net = Network(Tree(tmp_path)).add("eth0", "10.128.0.2/32").add("eth1", "10.128.0.3/32")
    group = values(network, net.done().target())["interface"]
    assert group[1]["addresses"] == Unread("of 10.128.0.2, 10.128.0.3 the interface cannot be told")
    facts = values(network, Tree(tmp_path / "bare").file("/sys/class/net/eth0/operstate", "up\n").target())
    assert facts["net.nccl_interface"] is Unread
    assert facts["interface"][0]["addresses"] == Unread("addresses cannot be read: no /proc/net/fib_trie")


@pytest.mark.parametrize(
    ("environ", "interface", "address"),
    [
        ({"NCCL_SOCKET_IFNAME": "=eth"}, Absent, Absent),
        ({"NCCL_COMM_ID": "172.17.3.4:29500"}, "docker0", "172.17.0.1"),
        ({"NCCL_COMM_ID": "node1:29500"}, Unread, Unread),
    ],
)
def test_what_nccl_would_announce(tmp_path: Path, environ: dict[str, str], interface: object, address: object) -> None:
    facts = values(network, plain(tmp_path).done().target(**environ))
    assert (facts["net.nccl_interface"], facts["net.nccl_address"]) == (interface, address)


def test_nccl_takes_ip_over_infiniband_first_and_bridges_last(tmp_path: Path) -> None:
    net = plain(tmp_path).add("ib0", "192.168.9.1/24", kind=32)
    assert values(network, net.done().target())["net.nccl_interface"] == "ib0"
    only = Network(Tree(tmp_path / "second")).add("docker0", "172.17.0.1/16", card=False).bridge("docker0")
    facts = values(network, only.done().target())
    assert (facts["net.nccl_interface"], facts["net.nccl_inner"]) == ("docker0", True)


def host(root: Path, hosts: str = "127.0.0.1 localhost\n10.1.2.3 node7\n") -> Tree:
    net = Network(Tree(root)).add("docker0", "172.17.0.1/16", card=False).bridge("docker0")
    net.add("eth0", "10.1.2.3/24").route("eth0", "0.0.0.0/0", "10.1.2.1")
    tree = net.done().file("/proc/sys/kernel/hostname", "node7\n").file("/etc/hosts", hosts)
    return tree.file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n").file("/proc/net/tcp", "  sl\n")


@pytest.mark.parametrize(
    ("environ", "nodes"),
    [
        ({"SLURM_NNODES": "4"}, 4),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, 1),
        ({"OMPI_COMM_WORLD_SIZE": "32", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 4),
        ({"WORLD_SIZE": "16"}, Absent),
        ({"WORLD_SIZE": "x", "LOCAL_WORLD_SIZE": "0"}, Absent),
        ({}, Absent),
    ],
)
def test_machines_of_the_job(tmp_path: Path, environ: dict[str, str], nodes: object) -> None:
    assert values(rendezvous, host(tmp_path).target(**environ))["net.job_nodes"] == nodes


def test_which_address_the_own_name_gives_gloo(tmp_path: Path) -> None:
    facts = values(rendezvous, host(tmp_path).target())
    assert facts["net.host_addresses"] == ("10.1.2.3",)
    assert facts["net.host_loopback"] is False
    assert facts["net.host_foreign"] == ()
    assert (facts["net.gloo_interface"], facts["net.gloo_address"]) == ("eth0", "10.1.2.3")
    assert facts["net.gloo_inner"] is False
    facts = values(rendezvous, host(tmp_path / "debian", "127.0.1.1 node7.example.com NODE7 # own\n").target())
    assert facts["net.host_loopback"] is True
    assert (facts["net.gloo_interface"], facts["net.gloo_address"]) == ("lo", "127.0.1.1")
    assert facts["net.gloo_inner"] is True
    facts = values(rendezvous, host(tmp_path / "other", "10.9.9.9 node7\n").target())
    assert facts["net.host_foreign"] == ("10.9.9.9",)
    assert facts["net.gloo_address"] == "127.0.0.1"


def test_what_gloo_is_told(tmp_path: Path) -> None:
    tree = host(tmp_path, "127.0.1.1 node7\n")
    assert values(rendezvous, tree.target(GLOO_SOCKET_IFNAME="eth0"))["net.gloo_address"] == "10.1.2.3"
    assert values(rendezvous, tree.target(GLOO_SOCKET_IFNAME="docker0"))["net.gloo_inner"] is True
    assert values(rendezvous, tree.target(GLOO_SOCKET_IFNAME="eth"))["net.gloo_interface"] is Absent


def test_a_name_that_the_file_does_not_hold_is_not_known_at_level_quick(tmp_path: Path) -> None:
    facts = values(rendezvous, host(tmp_path, "127.0.0.1 localhost\n").target(MASTER_ADDR="node1"))
    assert facts["net.gloo_interface"] is Unread
    assert facts["net.master_here"] is Unread


@pytest.mark.parametrize(
    ("master", "here", "loopback"),
    [("node7", True, False), ("10.1.2.3", True, False), ("10.1.2.9", False, False), ("localhost", True, True)],
)
def test_who_the_master_is(tmp_path: Path, master: str, here: bool, loopback: bool) -> None:
    facts = values(rendezvous, host(tmp_path).target(MASTER_ADDR=master))
    assert (facts["net.master_here"], facts["net.master_loopback"]) == (here, loopback)
    assert facts["net.master_error"] is Absent


def test_the_real_resolver_is_asked_from_level_standard_on() -> None:
    target = Local("standard", python=sys.executable)
    found = resolve_names(target, ["localhost", "no-such-host.invalid", "192.0.2.9"], 10)
    local, unknown = found["localhost"], found["no-such-host.invalid"]
    assert isinstance(local, Known)
    assert isinstance(local.value, tuple)
    assert set(local.value) & {"127.0.0.1", "::1"}
    assert isinstance(unknown, (Absent, Unread))
    assert found["192.0.2.9"] == Known(("192.0.2.9",), "an address")


@pytest.mark.parametrize(
    ("path", "content", "who"),
    [
        ("/etc/ufw/ufw.conf", "# on at boot\nENABLED=yes\nLOGLEVEL=low\n", "ufw"),
        ("/etc/ufw/ufw.conf", "ENABLED=no\n", Unread),
        ("/run/firewalld.pid", "812\n", "firewalld"),
    ],
)
def test_a_firewall_by_its_files(tmp_path: Path, path: str, content: str, who: object) -> None:
    assert values(rendezvous, host(tmp_path).file(path, content).target())["net.firewall"] == who


INPUT = "add chain inet t in { type filter hook input priority 0; }; add rule inet t in"
RULES = (
    ("add chain inet t in { type filter hook input priority 0; policy drop; }", "nftables, chain in"),
    (f"{INPUT} tcp dport 1-1023 reject", "nftables, chain in"),
    (f"{INPUT} ip saddr != 10.0.0.0/8 drop", "nftables, chain in"),
    (f"{INPUT} ip saddr 10.0.0.0/8 drop", "nftables, chain in"),
    (f"{INPUT} counter reject", "nftables, chain in"),
    ("add chain inet t out { type filter hook output priority 0; policy drop; }", None),
    (f"{INPUT} tcp dport 22 accept", None),
    (f"{INPUT} ct state invalid counter drop", None),
    (f"{INPUT} ip saddr {{ 192.0.2.1, 192.0.2.9 }} drop", None),
    (f"add set inet t banned {{ type ipv4_addr; }}; {INPUT} tcp dport 22 ip saddr @banned reject", None),
)


@pytest.mark.parametrize(("rules", "who"), RULES)
def test_a_firewall_by_its_rules(rules: str, who: str | None) -> None:
    """In a network namespace of our own, where iptables-legacy has no tables either."""
    needs.program("nft")
    code = (
        "from gpudoctor.target.local import Local; from gpudoctor.probes.rendezvous import firewall;"
        "found = firewall(Local('standard')); print(getattr(found, 'value', type(found).__name__))"
    )
    script = f'nft "add table inet t; {rules}"; exec "$@"'
    argv = [needs.program("unshare"), "--user", "--map-root-user", "--net", "/bin/sh", "-euc", script, "sh"]
    done = subprocess.run([*argv, sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=600)
    if "Operation not permitted" in done.stderr:
        needs.missing("the right to make network namespaces")
    assert done.stdout.strip() == (who or "Absent"), done.stderr


@contextmanager
def listening() -> Iterator[tuple[int, int]]:
    """A program that is no ancestor of ours and listens; its port and its pid."""
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout
        try:
            yield int(program.stdout.readline()), program.pid
        finally:
            program.kill()


def test_a_port_that_another_program_holds_and_one_of_our_own() -> None:
    with listening() as (port, pid):
        facts = values(rendezvous, Local("quick", environ={"MASTER_PORT": str(port)}))
    assert facts["net.port"] == port
    assert facts["net.port_taken"].endswith(f"(pid {pid})")
    with socket.create_server(("", 0)) as own:
        port = own.getsockname()[1]
        assert values(rendezvous, Local("quick", environ={"MASTER_PORT": str(port)}))["net.port_taken"] is Absent
    assert values(rendezvous, Local("quick", environ={"MASTER_PORT": str(port)}))["net.port_taken"] is Absent


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID"])
def test_a_port_that_a_program_of_the_same_job_holds(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "4242")
    with listening() as (port, _):
        same = values(rendezvous, Local("quick", environ={"MASTER_PORT": str(port), variable: "4242"}))
        other = values(rendezvous, Local("quick", environ={"MASTER_PORT": str(port), variable: "42"}))
    assert same["net.port_taken"] is Absent
    assert isinstance(other["net.port_taken"], str)


def test_another_torchrun_of_the_same_name_holds_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launcher is gone, so that it is nobody's child."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    script = f'exec 3<&0; {sys.executable} -c "{code}" <&3 & exit 0'
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as left:
        assert left.stdout
        port = left.stdout.readline().strip()
        left.wait()
        facts = values(rendezvous, Local("quick", environ={"MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}))
    assert isinstance(facts["net.port_taken"], str)


@pytest.mark.parametrize("port", ["", "none", "0", "65536", "-1"])
def test_what_is_no_port(tmp_path: Path, port: str) -> None:
    assert values(rendezvous, host(tmp_path).target(MASTER_PORT=port))["net.port"] is Absent


def test_the_kernels_range(tmp_path: Path) -> None:
    facts = values(rendezvous, host(tmp_path).target())
    assert (facts["net.port_low"], facts["net.port_high"]) == (32768, 60999)
    bare = values(rendezvous, Tree(tmp_path / "bare").target(MASTER_PORT="29500"))
    assert bare["net.port_low"] is Unread
    assert bare["net.port_taken"] is Unread

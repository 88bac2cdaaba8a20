"""libnccl asked in a child, whatever it does; NCCL's settings: which file wins, which plugins the loader finds."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.values import NOTHING
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.probes import nccl, nccl_settings, network
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.buses import shown
from tests.probes.nvml_machine import known as value
from tests.probes.nvml_machine import rows
from tests.probes.trees import Tree, refused, values
from tests.sim import build

Facts = dict[str, "Fact | Rows"]
Ask = Callable[..., Facts]
SOURCE = build.NATIVE / "nccl.c"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled library."""
    made = tmp_path_factory.mktemp("nccl")
    words = ["-Wl,-soname,libnccl.so.2", "-o", str(made / "libnccl.so.2"), str(SOURCE)]
    subprocess.run([needs.program("cc"), *build.FLAGS, *words], check=True)
    return made


@pytest.fixture
def ask(folder: Path) -> Ask:
    """The probe's facts where the library does as told."""

    def asked(deed: str = "ok", **environ: str) -> Facts:
        own = {"LD_LIBRARY_PATH": str(folder), "GPUDOCTOR_STUB_NCCL": deed, "PATH": "/usr/bin:/bin", **environ}
        return dict(nccl.probe(Local("standard", python=sys.executable, environ=own)))

    return asked


def test_a_library_that_finds_a_place_to_meet(ask: Ask, folder: Path) -> None:
    facts = ask()
    assert value(facts["libnccl.path"]) == f"{folder}/libnccl.so.2"
    assert value(facts["libnccl.state"]) == "ok"
    assert value(facts["libnccl.version"]) == "2.27.5"
    assert value(facts["libnccl.interface"]) == "eth7"
    assert value(facts["libnccl.address"]) == "192.0.2.7"
    assert isinstance(facts["libnccl.error"], Absent)
    assert set(facts) == {spec.name for spec in nccl.FACTS}


def test_the_log_is_heard_whatever_the_session_wants_of_it(ask: Ask, tmp_path: Path) -> None:
    facts = ask(NCCL_DEBUG="VERSION", NCCL_DEBUG_FILE=str(tmp_path / "log"), NCCL_DEBUG_SUBSYS="COLL")
    assert value(facts["libnccl.address"]) == "192.0.2.7"
    assert not (tmp_path / "log").exists()


def test_releases_print_addresses_and_versions_in_ways_of_their_own(ask: Ask) -> None:
    assert value(ask("six")["libnccl.address"]) == "fe80::7"
    assert value(ask("number")["libnccl.version"]) == "2.8.4"
    facts = ask("silent")
    assert value(facts["libnccl.state"]) == "ok"
    assert facts["libnccl.address"] == Unread("this release does not print it")


def test_what_a_library_that_fails_or_crashes_says(ask: Ask) -> None:
    facts = ask("refuses")
    assert value(facts["libnccl.state"]) == "failed"
    assert value(facts["libnccl.error"]) == "Bootstrap : no socket interface found"
    assert facts["libnccl.interface"] == Unread("Bootstrap : no socket interface found")
    assert "NCCL WARN Bootstrap : no socket interface found" in str(value(rows(facts, "text")[0]["line"]))
    facts = ask("crashes")
    assert value(facts["libnccl.state"]) == "crashed"
    assert value(facts["libnccl.version"]) == "2.27.5"
    assert value(facts["libnccl.error"]) == "the child that asks libnccl did not answer: killed by SIGABRT"


def test_a_library_that_hangs_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "TIMEOUT", 3.0)
    assert value(ask("hangs")["libnccl.state"]) == "hung"


def test_a_file_that_is_no_library_and_a_machine_without_one(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"\x7fELF no library")
    target = Local("standard", python=sys.executable, environ={"LD_LIBRARY_PATH": str(tmp_path)})
    facts = dict(nccl.probe(target))
    assert value(facts["libnccl.state"]) == "unusable"
    assert isinstance(facts["libnccl.version"], Unread)
    facts = dict(nccl.probe(Local("standard", root=str(tmp_path / "none"), python=sys.executable, environ={})))
    assert all(isinstance(fact, (Absent, Unread)) for fact in facts.values())


def named(rows: tuple[Row, ...]) -> dict[str, tuple[Any, Any]]:
    """Value and origin by name."""
    return {row["name"]: (row["value"], row["origin"]) for row in shown(rows)}


def test_the_environment_wins_then_the_own_file_then_the_machines(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/etc/nccl.conf", "NCCL_DEBUG=WARN\nNCCL_ALGO=Ring\nNCCL_PROTO=Simple\n")
    tree.file("/home/ada/.nccl.conf", "# NCCL_NET=IB\nNCCL_ALGO=Tree\nno line\nNCCL_PROTO=LL\r\n")
    facts = values(nccl_settings, tree.target(HOME="/home/ada", NCCL_PROTO="^LL128", PATH="/bin", LANG="C"))
    assert named(facts["setting"]) == {
        "NCCL_DEBUG": ("WARN", "/etc/nccl.conf"),
        "NCCL_ALGO": ("Tree", "/home/ada/.nccl.conf"),
        "NCCL_PROTO": ("^LL128", "environment"),
    }
    assert facts["net.settings_unread"] is Absent


def test_settings_of_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/site.conf", "NCCL_ALGO=Ring\n").file("/home/ada/.nccl.conf", "NCCL_ALGO=Tree\n")
    facts = values(nccl_settings, tree.target(HOME="/home/ada", NCCL_CONF_FILE="/site.conf"))
    assert named(facts["setting"])["NCCL_ALGO"] == ("Ring", "/site.conf")
    tree = Tree(tmp_path / "named").folder("/sys/class/net/eth0").file("/etc/nccl.conf", "NCCL_SOCKET_IFNAME=eno1\n")
    assert values(network, tree.target())["net.unmatched"] == ("NCCL_SOCKET_IFNAME=eno1",)


def test_a_file_that_is_refused_is_said() -> None:
    with refused("/locked") as tree:
        tree.file("/locked/.nccl.conf", "NCCL_ALGO=Ring\n")
        tree.close()
        facts = values(nccl_settings, tree.target(HOME="/locked"))
        assert facts["net.settings_unread"] == "/locked/.nccl.conf: Permission denied"


def test_a_topology_file_that_is_not_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/opt/there.xml")
    row = values(nccl_settings, tree.target(NCCL_TOPO_FILE="/opt/gone.xml"))["setting"][0]
    assert row["missing"] == Known("/opt/gone.xml", "/opt/gone.xml")
    other = values(nccl_settings, tree.target(NCCL_TOPO_FILE="/opt/there.xml"))["setting"][0]
    assert isinstance(other["missing"], Absent)


LIBRARY = b"\x7fELF\x02\x01\x01" + b"\0" * 11 + b"\x3e\0" + b"\0" * 44


@pytest.mark.parametrize(
    ("environ", "missing", "used"),
    [
        ({}, (), Absent),
        ({"LD_LIBRARY_PATH": "/ofi"}, (), "/ofi/libnccl-net.so"),
        ({"LD_LIBRARY_PATH": "/ofi", "NCCL_NET_PLUGIN": "mine"}, (), "/ofi/libnccl-net-mine.so"),
        ({"LD_LIBRARY_PATH": "/ofi", "NCCL_NET_PLUGIN": "none"}, (), Absent),
        ({"LD_LIBRARY_PATH": "/ofi", "NCCL_NET_PLUGIN": "yours"}, ("NCCL_NET_PLUGIN=yours",), Absent),
        ({"NCCL_NET_PLUGIN": "/ofi/libnccl-net-mine.so"}, (), "/ofi/libnccl-net-mine.so"),
        ({"NCCL_TUNER_PLUGIN": "/gone/libt.so"}, ("NCCL_TUNER_PLUGIN=/gone/libt.so",), Absent),
    ],
)
def test_plugins_are_sought_as_nccl_seeks_them(
    tmp_path: Path, environ: dict[str, str], missing: tuple[str, ...], used: object
) -> None:
    tree = Tree(tmp_path).linux().file("/etc/ld.so.cache", b"glibc-ld.so.cache1.1" + b"\0" * 28)
    tree.file("/ofi/libnccl-net.so", LIBRARY).file("/ofi/libnccl-net-mine.so", LIBRARY)
    facts = values(nccl_settings, tree.target(**environ))
    assert facts["net.plugins_missing"] == missing
    assert facts["net.plugin"] == used


def test_amazons_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for name, vendor in (("rdmap16s27", "0x1d0f"), ("mlx5_0", "0x15b3")):
        tree.file(f"/sys/class/infiniband/{name}/device/vendor", f"{vendor}\n")
    assert values(nccl_settings, tree.target())["net.efa"] == ("rdmap16s27",)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOCKET_IFACE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_P2P_LEVELS", "NCCL_P2P_LEVEL"),
        ("NCCL_IBHCA", "NCCL_IB_HCA"),
        ("GLOO_SOCKET_IFNAMES", "GLOO_SOCKET_IFNAME"),
        ("TORCH_NCCL_BLOCKING_WAITS", "TORCH_NCCL_BLOCKING_WAIT"),
    ],
)
def test_a_name_that_nobody_reads_is_near_the_one_meant(name: str, meant: str) -> None:
    assert LOOKUPS["nccl_like"](name) == meant


def test_every_name_in_the_tables_is_known_by_itself() -> None:
    rows = table("nccl")
    names = [*rows["known"], *rows["others"], *(row["name"] for row in rows["variable"])]
    names += ["NCCL_NETS", "UCX_TLS", "FI_X"]  # near to nothing
    assert [name for name in names if LOOKUPS["nccl_like"](name) is not NOTHING] == []
    assert {row["now"] for row in rows["renamed"]} <= set(names)
    assert {row["name"] for row in rows["risk"] if row["name"].startswith("NCCL_")} <= set(names)


@pytest.mark.parametrize(
    ("name", "value", "risky"),
    [
        ("NCCL_IB_DISABLE", "1", True),
        ("NCCL_IB_DISABLE", "0", False),
        ("NCCL_IB_TIMEOUT", "22", False),
        ("NCCL_IB_TIMEOUT", "12", True),
        ("NCCL_NET", "socket", True),
    ],
)
def test_only_some_values_are_a_risk(name: str, value: str, risky: bool) -> None:
    assert (LOOKUPS["nccl_risk"](name, value) is not NOTHING) is risky

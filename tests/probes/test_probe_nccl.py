"""libnccl asked in a child: a library of our own that answers, refuses, hangs or crashes as told."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Fact, Rows, Unread
from gpudoctor.probes import nccl
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.nvml_machine import known as value
from tests.probes.nvml_machine import rows
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


def test_a_link_local_address_without_its_zone(ask: Ask) -> None:
    assert value(ask("six")["libnccl.address"]) == "fe80::7"


def test_a_library_that_finds_no_interface(ask: Ask) -> None:
    facts = ask("refuses")
    assert value(facts["libnccl.state"]) == "failed"
    assert value(facts["libnccl.error"]) == "Bootstrap : no socket interface found"
    assert facts["libnccl.interface"] == Unread("Bootstrap : no socket interface found")
    assert "NCCL WARN Bootstrap : no socket interface found" in str(value(rows(facts, "text")[0]["line"]))


def test_a_release_that_does_not_say_where(ask: Ask) -> None:
    facts = ask("silent")
    assert value(facts["libnccl.state"]) == "ok"
    assert facts["libnccl.address"] == Unread("this release does not print it")


def test_version_numbers_of_the_first_releases(ask: Ask) -> None:
    assert value(ask("number")["libnccl.version"]) == "2.8.4"


def test_a_library_that_crashes(ask: Ask) -> None:
    facts = ask("crashes")
    assert value(facts["libnccl.state"]) == "crashed"
    assert value(facts["libnccl.version"]) == "2.27.5"
    assert value(facts["libnccl.error"]) == "the child that asks libnccl was killed by SIGABRT"


def test_a_library_that_hangs_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "TIMEOUT", 3.0)
    assert value(ask("hangs")["libnccl.state"]) == "hung"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"\x7fELF no library")
    target = Local("standard", python=sys.executable, environ={"LD_LIBRARY_PATH": str(tmp_path)})
    facts = dict(nccl.probe(target))
    assert value(facts["libnccl.state"]) == "unusable"
    assert isinstance(facts["libnccl.version"], Unread)


def test_a_machine_without_nccl(tmp_path: Path) -> None:
    facts = dict(nccl.probe(Local("standard", root=str(tmp_path), python=sys.executable, environ={})))
    assert all(isinstance(fact, (Absent, Unread)) for fact in facts.values())


@pytest.mark.parametrize(
    ("name", "imports"),
    [
        ("ask_cuda.py", {"ctypes", "json", "os", "sys"}),
        ("ask_nccl.py", {"ctypes", "json", "os", "sys"}),
        ("ask_names.py", {"json", "os", "socket", "sys", "threading"}),
    ],
)
def test_the_children_run_on_python_3_8(name: str, imports: set[str]) -> None:
    child = Path(nccl.__file__).parent / "children" / name
    tree = ast.parse(child.read_text("utf-8"), feature_version=(3, 8))
    assert {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names} == imports

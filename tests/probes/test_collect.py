"""Probes side by side: one may die, hang or lie; sick environments; and no alarm at what looks like a fault."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpudoctor import probes
from gpudoctor.core.catalog import FactSpec, column, fact
from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Event, Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.probes import (
    Declaration,
    collect,
    container,
    driver,
    environment,
    fabric,
    host,
    kernel_log,
    limits,
    pci,
    wsl,
)
from gpudoctor.target import System, Target
from gpudoctor.target.local import Local
from tests.conftest import Program
from tests.probes.test_probe_container import LIB, handed
from tests.probes.test_probe_container import VERSION as DRIVER
from tests.probes.test_probe_fabric import NOTHING, START, hgx, running, stamped
from tests.probes.test_probe_host import KERNEL
from tests.probes.test_probe_kernel_log import SXID, XID_154, record, tree_of
from tests.probes.trees import Tree, spoilt
from tests.processes import left, marked

Said = Iterator[tuple[str, Any]]
VERSION = fact("driver.version", "version", "v")
KIND = fact("driver.kind", "text", "k")
NAME = column("gpu.name", "text", "n")


def a_probe(name: str, said: Any, facts: tuple[FactSpec, ...] = (VERSION, KIND, NAME), **settings: Any) -> ModuleType:
    """A probe module of this name; `said` is its generator function."""
    module = ModuleType(f"gpudoctor.probes.{name}")
    vars(module).update({"FACTS": facts, "probe": said, **settings})
    return module


def of(*entries: tuple[str, Any]) -> Any:
    """A generator function that says just these."""

    def probe(target: Target) -> Said:
        yield from entries

    return probe


def collected(*modules: ModuleType, level: str = "quick") -> Snapshot:
    return collect(Local(level, environ={}), modules)


def test_what_is_said_is_kept_and_timed() -> None:
    row = {"name": Known("H100", "nvml")}
    facts = (VERSION, KIND, NAME, fact("env.*", "text", "a wildcard, which needs no answer"))
    snapshot = collected(a_probe("one", of(("driver.version", Known("570.86", "proc")), ("gpu", (row,))), facts))
    assert set(snapshot.facts) == {"driver.version", "driver.kind"}
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.rows("gpu") == (row,)
    assert snapshot.get("driver.kind") == Unread("the probe did not say")
    assert set(snapshot.timings_ms) == {"probe.one"}


def test_a_probe_that_is_no_generator_or_raises_half_way() -> None:
    def probe(target: Target) -> Said:
        yield "driver.version", Known("570.86", "proc")
        raise ValueError("half a line")

    snapshot = collected(a_probe("half", probe))
    died = Unread("the probe half died: ValueError: half a line")
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.get("driver.kind") == died
    assert snapshot.rows("gpu") == died
    assert collected(a_probe("none", lambda _: None)).get("driver.kind") == Unread(
        "the probe none died: TypeError: 'NoneType' object is not iterable"
    )


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError("64 GiB"), RecursionError()])
def test_a_probe_ends_nothing_but_itself(error: BaseException) -> None:
    def probe(target: Target) -> Said:
        raise error
        yield  # a generator all the same

    snapshot = collected(a_probe("rude", probe), a_probe("kind", of(("driver.kind", Known("open", "proc")))))
    assert snapshot.get("driver.kind") == Known("open", "proc")
    version = snapshot.get("driver.version")
    assert isinstance(version, Unread)
    assert version.why.startswith(f"the probe rude died: {type(error).__name__}")


@pytest.mark.parametrize(
    "entry", [("driver.version", "570.86"), ("driver.version", ()), ("gpu", Known(1, "x")), ("gpu", [{}])]
)
def test_a_probe_that_yields_no_fact_dies_alone(entry: tuple[str, Any]) -> None:
    kind = ("driver.kind", Known("open", "proc"))
    snapshot = collected(a_probe("odd", of(kind, entry)))
    assert snapshot.get("driver.kind") == kind[1]
    for state in (snapshot.get("driver.version"), snapshot.rows("gpu")):
        assert isinstance(state, Unread)
        assert "not a fact" in state.why


def test_a_probe_that_hangs_is_given_up_and_heard_no_more() -> None:
    freed = threading.Event()
    late = threading.Event()
    events: list[Event] = []

    def probe(target: Target) -> Said:
        yield "driver.version", Known("570.86", "proc")
        freed.wait(600)
        yield "driver.kind", Known("open", "proc")
        late.set()

    slow = a_probe("slow", probe, DEADLINE=0.3)
    quick = a_probe("quick", of(("gpu", ())))
    snapshot = collect(Local("quick", environ={}), [slow, quick], events.append)
    freed.set()
    assert late.wait(60)
    time.sleep(0.05)
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.get("driver.kind") == Unread("the probe slow was stopped after 0.3 s")
    assert snapshot.rows("gpu") == ()
    assert [event.state for event in events if event.source == "slow"] == ["started", "stopped"]
    assert Event("quick", "done") in events


@pytest.mark.parametrize(("said", "waits"), [("hung", False), ("ok", True)])
def test_nobody_waits_for_what_the_others_have_settled(said: str, waits: bool) -> None:
    freed = threading.Event()

    def probe(target: Target) -> Said:
        freed.wait(0.6 if waits else 60)
        yield "gpu", ()

    first = a_probe("first", of(("driver.kind", Known(said, "proc"))), (KIND,))
    second = a_probe("second", probe, (NAME,), MOOT={"driver.kind": "hung"})
    rows = collected(second, first).rows("gpu")
    freed.set()
    assert rows == (() if waits else Unread("the probe second was stopped because driver.kind is hung"))


def test_a_collection_runs_until_its_last_probe_has_ended() -> None:
    go = threading.Event()

    def waits(_: Target) -> Said:
        go.wait(60)
        yield "driver.version", Known("580", "test")

    collection = probes.Collection(Local("quick"), [a_probe("slow", waits, WAITS=True)])
    assert collection.running
    go.set()
    collection.snapshot()
    assert not collection.running


def test_probes_run_side_by_side() -> None:
    """Each waits for all others."""
    meeting = threading.Barrier(8)
    met: list[int] = []

    def probe(target: Target) -> Said:
        met.append(meeting.wait(60))
        yield "gpu", ()

    collected(*(a_probe(f"p{number}", probe, DEADLINE=60.0) for number in range(8)))
    assert sorted(met) == list(range(8))


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (Known("570.86", "proc"), Known("580.95", "nvml"), Known("570.86", "proc")),
        (Absent("not loaded"), Known("580.95", "nvml"), Known("580.95", "nvml")),
        (Known("570.86", "proc"), Absent("no NVML"), Known("570.86", "proc")),
        (Unread("hidden"), Absent("not loaded"), Absent("not loaded")),
        (Unread("one"), Unread("two"), Unread("one")),
    ],
)
def test_two_that_disagree(first: object, second: object, winner: object) -> None:
    one = a_probe("one", of(("driver.version", first)))
    two = a_probe("two", of(("driver.version", second)))
    assert collected(one, two).get("driver.version") == winner


def test_rows_of_two_probes_join_and_a_reason_gives_way_to_rows() -> None:
    one, two = {"name": Known("A", "x")}, {"name": Known("B", "x")}
    joined = collected(a_probe("one", of(("gpu", (one,)))), a_probe("two", of(("gpu", (two,)))))
    assert joined.rows("gpu") == (one, two)
    for reason in (Absent("none"), Unread("hidden")):
        for order in (((one,), reason), (reason, (one,))):
            names = (a_probe(f"p{at}", of(("gpu", rows))) for at, rows in enumerate(order))
            assert collected(*names).rows("gpu") == (one,)


def test_a_probe_of_a_higher_level_is_not_asked() -> None:
    def probe(target: Target) -> Said:
        raise AssertionError("asked")
        yield

    module = a_probe("live", probe, LEVEL="standard")
    snapshot = collected(module)
    assert snapshot.get("driver.version") == Unread("asked from level standard on", asked=False)
    assert snapshot.timings_ms == {}
    assert "died" in str(collected(module, level="deep").get("driver.version"))


def test_a_probe_that_is_not_run_is_not_imported() -> None:
    """Here there are no such modules; what they declare is enough."""
    names = ("windows.tdr_off", "driver.version", "driver_event")
    snapshot = collect(
        Local("quick", environ={}),
        [
            Declaration("of_windows", names, only="windows"),
            Declaration("deeper", ("gpu", "gpu.count"), level="standard"),
            Declaration("later", ("driver.kind",), not_yet="linux"),
        ],
    )
    assert snapshot.facts == {
        "driver.version": Absent("only Windows has it"),
        "gpu.count": Unread("asked from level standard on", asked=False),
        "driver.kind": Unread("not read on Linux yet"),
    }, "what is named after Windows is no question here"
    assert snapshot.groups == {"driver_event": Absent("only Windows has it"), "gpu": snapshot.get("gpu.count")}


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_compiled_declarations_say_what_the_modules_do(system: System, tmp_path: Path) -> None:
    compiled = [Declaration(*entry) for entry in json.loads(json.dumps(probes.compiled_declarations()))]
    assert [probe.name for probe in compiled] == [module.__name__.rpartition(".")[2] for module in modules_of(probes)]
    target = Tree(tmp_path).linux().target()
    target.system = system
    elsewhere = [probe for probe in compiled if probe.only not in ("", system) or probe.not_yet == system]
    modules = [import_module(f"gpudoctor.probes.{probe.name}") for probe in elsewhere]
    by_declaration, by_module = collect(target, elsewhere), collect(target, modules)
    assert (by_declaration.facts, by_declaration.groups) == (by_module.facts, by_module.groups)
    assert by_declaration.timings_ms == {}
    assert {"display", "path_dll"} <= set(by_declaration.groups) or {"pci", "package_change"} <= set(by_module.groups)


def test_the_real_probes_answer_for_everything_they_declare(tmp_path: Path) -> None:
    quick = [probe for probe in probes.declared() if probe.level == "quick"]
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05")
    snapshot = collect(tree.target(PATH=str(tmp_path / "bin")), quick)
    promised = {name for probe in quick for name in probe.answers if not name.startswith("windows.")}
    assert promised <= snapshot.facts.keys() | snapshot.groups.keys()
    dead = {name: state for name, state in snapshot.facts.items() if isinstance(state, Unread) and " died" in state.why}
    assert not dead
    assert snapshot.get("driver.version") == Known("580.95.05", "/proc/driver/nvidia/version")


class Sick:
    """An environment of stubs: a Python with a torch of our making."""

    def __init__(self, folder: Path, program: Program) -> None:
        self.folder = folder
        self.program = program
        self.mark = f"contained-{os.getpid()}-{folder.name}"
        self.python = folder / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/site" exec "{sys.executable}" -S "$@"\n')
        self.python.chmod(0o755)

    def torch(self, source: str) -> None:
        package = self.folder / "site/torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        (package / "version.py").write_text("__version__ = '2.7.1+cu128'\ncuda = '12.8'\nhip = None\n")

    def check(self, level: str = "standard") -> dict[str, Any]:
        """The facts of a check that came to its end."""
        words = ("check", "--json", "--level", level, "--python", str(self.python))
        run = self.program(*words, timeout=600, env={"MARK": self.mark})
        assert run.code in {0, 1, 3}, run.err
        facts: dict[str, Any] = run.document["facts"]
        return facts


@pytest.fixture
def sick(tmp_path: Path, gpudoctor: Program) -> Iterator[Sick]:
    patient = Sick(tmp_path, gpudoctor)
    yield patient
    assert left(lambda: list(map(str, marked(patient.mark)))) == []


ASKED_HERE = ("nvml.", "gpu", "live", "driver.", "torch.", "text")
"""What a sick torch may well change; every other fact must come through."""


def test_a_sick_torch_that_leaves_a_child_is_contained(sick: Sick, gpudoctor: Program) -> None:
    sick.torch("import ctypes, subprocess\nsubprocess.Popen(['sleep', '600'])\nctypes.string_at(0)")
    facts = sick.check()
    assert facts["live.import_outcome"]["value"] == "crashed"
    assert "SIGSEGV" in facts["live.import_error"]["value"]
    sound = gpudoctor("check", "--json", "--level", "quick", "--python", sys.executable).document["facts"]
    usual = [name for name, fact in sound.items() if "unread" not in fact and not name.startswith(ASKED_HERE)]
    assert [name for name in usual if "unread" in facts.get(name, {"unread": "missing"})] == []


def test_level_quick_never_imports_torch(sick: Sick, tmp_path: Path) -> None:
    sick.torch(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    facts = sick.check("quick")
    assert not (tmp_path / "imported").exists()
    assert facts["live.import_outcome"]["reason"] == "needs_standard"
    sick.check("standard")
    assert (tmp_path / "imported").exists(), "the trap itself must work"


QUIET: dict[str, Callable[[Path], Tree]] = {
    "a reset that was asked for and done": lambda root: tree_of(
        root,
        record(XID_154.format(0, "None", 1, "GPU Reset Required"), 90),
        record(XID_154.format(1, "GPU Reset Required", 0, "None"), 80),
    ),
    "what NVSwitches say at every boot": lambda root: tree_of(
        root, *(record(f"{SXID}22013, Non-fatal, Link {n} Minion Link DLREQ interrupt", 90) for n in range(44, 60))
    ),
    "a job killed at its memory limit, and a corrected bit in a DIMM": lambda root: tree_of(
        root,
        record("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB", 90),
        record("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", 90),
    ),
    "a fabric manager where there is no NVSwitch": lambda root: (
        tree_of(root)
        .file("/usr/bin/nv-fabricmanager")
        .file("/var/log/fabricmanager.log", stamped(f"[ERROR] [tid 1] {NOTHING}"))
    ),
    "IMEX that waits for a job that spans machines": lambda root: (
        tree_of(root)
        .file("/usr/bin/nvidia-imex")
        .file("/etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n")
        .folder("/dev/nvidia-caps-imex-channels")
    ),
    "its package upgraded ahead of the next reboot": lambda root: (
        running(hgx(root))
        .file("/var/log/fabricmanager.log", stamped(START.format("Fabric Manager", "580.95.05")))
        .file(
            "/var/lib/dpkg/status", "Package: nvidia-fabricmanager\nStatus: install ok installed\nVersion: 580.105-1\n"
        )
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_no_alarm_at(tmp_path: Path, name: str) -> None:
    """NVML answers on that machine, and cuInit with success."""
    told = ModuleType("gpudoctor.probes.nvml")
    facts = (fact("nvml.state", "text", "told"), fact("cuda_driver.init_code", "int", "told"))
    answers = [("nvml.state", Known("ok", "NVML")), ("cuda_driver.init_code", Known(0, "cuInit"))]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers))
    probes = [driver, environment, fabric, host, kernel_log, limits, told, pci]
    diagnosis = judge(complete(collect(QUIET[name](tmp_path).target(), probes)), rulebook.load())
    assert [finding.title for finding in diagnosis.findings if finding.severity != "info"] == []


def test_a_container_with_its_gpu_in_wsl_gives_neither_error_nor_warning(tmp_path: Path) -> None:
    told = ModuleType("gpudoctor.probes.told")
    answers = {
        "nvml.state": Known("ok", "NVML"),
        "gpu.count": Known(1, "NVML"),
        "libs.libcuda": Known(f"{LIB}/libcuda.so.1", "the loader"),
        "libs.libcuda_kind": Known("driver", "the loader"),
        "libs.libcuda_version": Known(DRIVER, "the loader"),
    }
    kinds = {"gpu.count": "int", "libs.libcuda_version": "version"}
    facts = [fact(name, kinds.get(name, "text"), "told") for name in answers]  # type: ignore[arg-type]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers.items()))
    library = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1"
    tree = handed(Tree(tmp_path).linux(kernel=KERNEL).container(), library, nodes=("dxg",))
    target = tree.target(PATH=os.environ["PATH"])
    read = collect(target, [container, driver, environment, host, limits, told, pci, wsl])
    found = judge(complete(read), rulebook.load()).findings
    assert [finding.id for finding in found if finding.severity != "info"] == []


@pytest.mark.full
def test_a_damaged_file_never_ends_a_probe(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05").file("/usr/bin/nv-fabricmanager")
    tree.file("/proc/self/limits", "Max open files  1024  1024  files\n").file("/sys/fs/cgroup/memory.max", "max\n")
    tree.file("/dev/kmsg", "3,1,5,-;NVRM: Xid (PCI:0000:1a:00): 79, x\n").file(
        "/etc/modprobe.d/x.conf", "blacklist a\n"
    )
    tree.file("/usr/share/misc/pci.ids", "10de  NVIDIA\n\t2330  GH100\n").file("/var/lib/dpkg/status", "Package: a\n")
    target = tree.target()
    for place in sorted(path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()):
        for kind in spoilt(place):
            snapshot = collect(target, [driver, environment, fabric, host, kernel_log, limits, pci])
            died = [
                state.why for state in snapshot.facts.values() if isinstance(state, Unread) and " died" in state.why
            ]
            assert not died, f"{place.relative_to(tmp_path)} {kind}: {died[0]}"

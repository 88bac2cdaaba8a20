"""One rung on one device: what a kernel does to its process costs itself; and what old Pythons are given to run."""

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpudoctor.kernels.child
from gpudoctor.kernels import runner
from gpudoctor.kernels.child import _scratch
from gpudoctor.kernels.runner import Question, RungResult, run_from_outcome
from gpudoctor.kernels.specs import KernelEntry
from gpudoctor.target.child import MARK, run_child
from gpudoctor.target.local import Local
from tests.processes import gone, until
from tests.sick_kernels import Sick
from tests.sick_kernels import sick as sick


class Ears:
    """What was told on the way."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, name: str, outcome: Mapping[str, Any]) -> None:
        self.told.append((name.rpartition(".")[2], str(outcome.get("status", "begins"))))


def asked(
    sick: Sick, kernels: Sequence[KernelEntry], family: str = "eager", root: str = "/"
) -> tuple[RungResult, Ears]:
    ears = Ears()
    target = Local("quick", sys.executable, root, {**os.environ, "SICK_NOTES": str(sick.notes)})
    return runner.ask(target, Question(family, "cpu", kernels), ears, lambda: ""), ears


def statuses(heard: RungResult) -> dict[str, str]:
    return {name.rpartition(".")[2]: str(said["status"]) for name, said in heard.outcomes.items()}


def because(heard: RungResult, name: str) -> str:
    return str(heard.outcomes[f"eager.{name}"]["because"])


def test_each_kernel_is_told_when_it_begins_and_when_it_is_over(sick: Sick) -> None:
    heard, ears = asked(sick, sick.family("eager", "right", "wrong", "raises", "cannot", "no_memory"))
    assert heard.opened
    assert ears.told == [
        ("right", "begins"),
        ("right", "ran"),
        ("wrong", "begins"),
        ("wrong", "ran"),
        ("raises", "begins"),
        ("raises", "failed"),
        ("cannot", "begins"),
        ("cannot", "not-run"),
        ("no_memory", "begins"),
        ("no_memory", "not-run"),
    ]
    assert because(heard, "raises") == "RuntimeError: no kernel image is available"
    assert because(heard, "cannot") == "needs two GPUs"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crashes", "its process ended before it: killed by SIGSEGV"),
        ("killed", "its process ended before it: killed by SIGKILL"),
        ("leaves", "its process ended before it: exit 0"),
        ("exits", "its process ended before it: exit 3"),
        ("floods", "its process was stopped for printing without end"),
    ],
)
def test_what_ends_its_process_costs_itself_alone(sick: Sick, name: str, words: str) -> None:
    heard, ears = asked(sick, sick.family("eager", "right", name, "right_too", seconds=0.1))
    assert statuses(heard) == {"right": "ran", name: "failed", "right_too": "ran"}
    assert because(heard, name) == words
    assert ears.told.count(("right", "ran")) == 1


@pytest.mark.parametrize("name", ["hangs", "hangs_deaf"])
def test_a_kernel_that_is_given_up_is_not_run(sick: Sick, name: str) -> None:
    """The CPU is given ten times the seconds that a GPU has."""
    heard, _ = asked(sick, sick.family("eager", "right", name, "right_too", seconds=0.1))
    assert statuses(heard) == {"right": "ran", name: "not-run", "right_too": "ran"}
    assert because(heard, name) == "it did not come to an end within 1 s"
    assert heard.unfinished == f"eager.{name}: it did not come to an end within 1 s"


def test_a_child_that_the_oom_killer_ended_says_nothing_against_the_gpu(sick: Sick, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    count = root / "proc/vmstat"
    count.write_text("nr_free_pages 7\noom_kill 4\n")
    kernels = sick.family("eager", "killed", "right")
    file = sick.folder / "eager/killed.py"
    counted = f"    open({str(count)!r}, 'w').write('oom_kill 5')\n    os.kill"
    file.write_text(file.read_text().replace("    os.kill", counted))
    heard, _ = asked(sick, kernels, root=str(root))
    assert statuses(heard) == {"killed": "not-run", "right": "ran"}
    assert because(heard, "killed") == "Linux's OOM killer ended it: no host memory is free for it"


def test_garbage_is_left_out(sick: Sick) -> None:
    heard, ears = asked(sick, sick.family("eager", "garbage", "right", seconds=0.1))
    assert [name for name, _ in ears.told].count("nobody") == 0
    run = run_from_outcome("garbage", 0, heard.outcomes["eager.garbage"], (), None)
    assert [run.status, run.compared] == ["ran", 4]
    assert [run.value, run.spread, run.right, run.differ] == [None] * 4
    assert (run.words, run.because) == ("", "")
    assert run.details == {"rate": None, "deep": {"er": {"still": {}}}, "name": "a\\x1b[31m"}
    assert statuses(heard)["right"] == "ran"


def test_a_rung_that_does_not_open_fails_and_one_that_is_not_there_does_not(sick: Sick) -> None:
    heard, ears = asked(sick, sick.family("eager", "right", opened="raise OSError('libcudart.so.12: cannot open')"))
    assert (heard.opened, heard.failed, heard.closed) == (False, True, "OSError: libcudart.so.12: cannot open")
    heard, _ = asked(sick, sick.family("eager", "right", opened="raise CannotRun('torch is not installed')"))
    assert (heard.opened, heard.failed, heard.closed) == (False, False, "torch is not installed")
    assert ears.told == []


@pytest.mark.parametrize(
    ("opened", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process ended before it: killed by SIGSEGV"),
        (
            "sys.stderr.write('no such file\\n'); sys.stderr.flush(); os._exit(127)",
            "its process ended before it: exit 127; no such file",
        ),
    ],
)
def test_a_rung_that_does_not_say_whether_it_opens_fails(sick: Sick, opened: str, words: str) -> None:
    heard, _ = asked(sick, sick.family("eager", "right", opened=opened))
    assert (heard.opened, heard.failed, heard.closed) == (False, True, words)


def test_a_gpu_that_a_kernel_took_along_is_seen_by_those_after_it(sick: Sick) -> None:
    kernels = sick.family(
        "eager", "right", "crashes", "right_too", opened="if times > 1: raise RuntimeError('no CUDA device')"
    )
    heard, _ = asked(sick, kernels)
    assert statuses(heard) == {"right": "ran", "crashes": "failed", "right_too": "failed"}
    assert because(heard, "right_too") == "it opened before eager.crashes, and not again: RuntimeError: no CUDA device"


def test_after_an_error_that_outlives_its_kernel_a_new_process_goes_on(sick: Sick) -> None:
    heard, _ = asked(sick, sick.family("eager", "right", "spends", "right_too", "wrong"))
    assert statuses(heard) == {"right": "ran", "spends": "failed", "right_too": "ran", "wrong": "ran"}
    assert because(heard, "spends") == "RuntimeError: an illegal memory access was encountered"
    assert len(sick.openings()) == 2


def test_a_gpu_without_room_for_a_context_is_no_failure(sick: Sick) -> None:
    full = "raise RuntimeError('CUDA error: out of memory')"
    heard, _ = asked(sick, sick.family("eager", "right", opened=full))
    assert (heard.opened, heard.failed) == (False, False)
    assert heard.closed == "no memory is free for it: RuntimeError: CUDA error: out of memory"


def test_a_device_that_ends_every_child_is_given_up(sick: Sick) -> None:
    names = ("crashes", "exits", "killed", "leaves", "right")
    heard, _ = asked(sick, sick.family("eager", *names))
    assert statuses(heard) == {**dict.fromkeys(names[:4], "failed"), "right": "not-run"}
    assert because(heard, "right") == "4 processes ended before its turn came"


def test_a_python_that_does_not_start_is_named(sick: Sick, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    target = Local("quick", str(broken))
    heard = runner.ask(target, Question("eager", "cpu", sick.family("eager", "right")), Ears(), lambda: "")
    assert not heard.opened
    assert heard.closed == f"{broken} could not be started: No such file or directory"


def test_nothing_is_left_running(sick: Sick) -> None:
    heard, _ = asked(sick, sick.family("eager", "leaves_one", "forks", seconds=0.1))
    assert statuses(heard) == {"leaves_one": "ran", "forks": "not-run"}
    assert len(sick.pids()) == 2
    assert [pid for pid in sick.pids() if not gone(pid)] == []


def test_a_rung_that_does_not_open_in_time_is_not_judged(sick: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "IDLE_SECONDS", 2.0)
    heard, _ = asked(sick, sick.family("eager", "right", opened="time.sleep(600)"))
    assert (heard.opened, heard.failed) == (False, False)
    assert re.fullmatch(r"given up after \d+ s, the last 2 s without a sign of work", heard.closed)


@pytest.mark.full
def test_a_rung_that_works_on_its_opening_is_waited_for(sick: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processor time is a sign of work."""
    monkeypatch.setattr(runner, "IDLE_SECONDS", 4.0)
    busy = "end = time.process_time() + 8\n    while time.process_time() < end: pass"
    heard, _ = asked(sick, sick.family("eager", "right", opened=busy))
    assert statuses(heard) == {"right": "ran"}


CODE = f"""
import sys, time
sys.path.insert(0, {str(Path(runner.program()).parent.parent)!r})
from child import _scratch
folder = _scratch.Folder({{where!r}})
open(folder.path + "/kernel.so", "w").close()
print("made", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_with_its_process(tmp_path: Path, by: signal.Signals) -> None:
    code = CODE.replace("{where!r}", repr(str(tmp_path)))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"made\n"
        assert list(tmp_path.glob("gpudoctor-*/kernel.so"))
        child.send_signal(by)
    assert until(lambda: not list(tmp_path.iterdir()))


def test_it_goes_at_the_end_of_with_and_when_the_child_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with _scratch.Folder(str(tmp_path)) as folder:
        (Path(folder) / "store").touch()
    assert list(tmp_path.iterdir()) == []
    code = CODE.replace("{where!r}", repr(str(tmp_path)))
    env = {**os.environ, MARK: "scratch"}
    run_child([sys.executable, "-c", code], 30.0, env, watch=lambda line: line != "made")
    assert until(lambda: not list(tmp_path.iterdir()))


def test_where_libraries_may_be_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scratch.allows_executables(str(tmp_path))
    assert not _scratch.allows_executables(str(tmp_path / "missing"))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    assert not _scratch.allows_executables(str(tmp_path))


WRITER = """
import itertools, sys, time
for number in itertools.count():
    open(sys.argv[1] + "/kernel.%d" % number, "w").close()
    time.sleep(0.001)  # no compiler writes faster than files are removed
"""


def test_it_goes_though_a_compiler_still_writes(tmp_path: Path) -> None:
    """What the killed process has started goes on writing until its folder is gone."""
    code = CODE.replace("{where!r}", repr(str(tmp_path))).replace(
        "print(", f"import subprocess; subprocess.Popen([sys.executable, '-c', {WRITER!r}, folder.path])\nprint("
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        assert child.stdout.readline() == b"made\n"
        child.send_signal(signal.SIGKILL)
    assert until(lambda: not list(tmp_path.iterdir()))


CHILD = Path(gpudoctor.kernels.child.__file__).parent
FILES = sorted(CHILD.rglob("*.py"))
LATE = {"compiled/_kernels.py": {"triton"}}
"""Imported only by a kernel that runs, once what it needs is known to be there."""
ASKED_ABOUT = {"torch", "triton", "jax", "tensorflow", "nccl", "numpy", "cuda"}


def imported(tree: ast.Module) -> Iterator[str]:
    """The packages that are imported as soon as the file is; relative imports are its own."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CHILD)))
def test_python_3_8_reads_it_and_it_needs_nothing_to_be_imported(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 8))
    late = LATE.get(str(file.relative_to(CHILD)), set())
    assert set(imported(tree)) - late <= set(sys.stdlib_module_names)
    assert file.stem not in ASKED_ABOUT
    assert "from __future__ import annotations" in file.read_text("utf-8") or len(tree.body) == 1

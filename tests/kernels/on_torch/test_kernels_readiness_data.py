"""Readiness for training, run by the real child on the CPU: what it measures, what it finds, what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import runner, specs
from gpudoctor.kernels.specs import program
from gpudoctor.target.local import Local
from tests import needs
from tests.processes import command_line, left, marked, until

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Threads that spin while they wait for each other make a machine with other work crawl."""


class Child:
    """One rung's child on the CPU, and what it leaves: its processes are known by a word in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.word = uuid.uuid4().hex
        self.environ = {
            **os.environ,
            "GPUDOCTOR_TEST_CHILD": self.word,
            **ONE_THREAD,
            "TMPDIR": str(folder),
            "PYTHONPATH": str(HERE),
        }
        self.heard: dict[str, Mapping[str, Any]] = {}

    def run(self, *names: str, dataset: str = "", stop: Any = lambda: False) -> Mapping[str, Mapping[str, Any]]:
        """Those kernels' outcomes by name."""
        if dataset:
            self.environ["GPUDOCTOR_DATASET"] = f"planted:{dataset}"
        target = Local(python=needs.torch_python(), environ=self.environ)
        question = runner.Question("training", "cpu", specs.select_kernels(names))
        heard = runner.ask(target, question, lambda *_: None, lambda: "stopped" if stop() else "")
        assert heard.opened, heard.closed
        return heard.outcomes

    def processes(self) -> list[int]:
        """All that live."""
        return marked(f"GPUDOCTOR_TEST_CHILD={self.word}")

    def shared(self) -> set[str]:
        """The files of /dev/shm that its processes have mapped."""
        found = set()
        for pid in self.processes():
            with suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text()
                found |= {line.split()[5] for line in maps.splitlines() if " /dev/shm/" in line}
        return found

    def left(self) -> list[object]:
        """What is there of it, once it has had time to go."""
        return left(lambda: [*self.processes(), *self.folder.iterdir()])


@pytest.fixture
def child(tmp_path_factory: pytest.TempPathFactory) -> Child:
    return Child(tmp_path_factory.mktemp("tmp"))


def test_waiting_items_want_more_workers(child: Child) -> None:
    outcome = child.run("readiness.dataloader", dataset="Waiting")["readiness.dataloader"]
    assert outcome["details"]["best_workers"] == max(4, min(16, len(os.sched_getaffinity(0))))
    assert "wait for storage" in outcome["advice"]


def test_burning_items_on_one_core_want_cores_not_workers(child: Child) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        needs.missing("two cores, to take one away")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        outcome = child.run("readiness.dataloader", dataset="Burning")["readiness.dataloader"]
    finally:
        os.sched_setaffinity(0, allowed)
    assert outcome["details"]["cores_affinity"] == 1
    assert outcome["details"]["best_workers"] <= 1
    assert "affinity allows 1" in outcome["advice"]
    assert "--cpus" in outcome["advice"]


@pytest.mark.parametrize(
    ("dataset", "error", "advised"),
    [
        ("UsingCuda", "re-initialize CUDA", "multiprocessing_context='forkserver' does work"),
        ("Killed", "killed by signal: Killed", "memory limit"),
        ("BusError", "killed by signal: Bus error", "--shm-size"),
        ("Hanging", "timed out", "hung"),
    ],
)
def test_a_worker_that_dies_is_said_and_what_to_do(child: Child, dataset: str, error: str, advised: str) -> None:
    outcome = child.run("readiness.dataloader", dataset=dataset)["readiness.dataloader"]
    assert outcome["status"] == "ran"
    assert error in outcome["details"]["errors"][1]
    assert advised in outcome["advice"]
    assert child.left() == []


def test_workers_that_start_from_nothing_find_the_kernels_and_the_dataset(child: Child) -> None:
    outcome = child.run("readiness.dataloader", dataset="UsingCudaInEveryFork")["readiness.dataloader"]
    rates = dict(zip(outcome["details"]["settings"], outcome["details"]["batches_per_s"], strict=True))
    assert rates["1 worker by spawn, prefetch 2"] > 0
    assert "multiprocessing_context='spawn' does work" in outcome["advice"]


def test_a_dataset_without_items_is_no_fault_of_the_machine(child: Child) -> None:
    outcome = child.run("readiness.dataloader", dataset="Broken")["readiness.dataloader"]
    assert outcome["status"] == "not-run"
    assert "/data/train.tar" in outcome["because"]


def test_a_folder_for_temporary_files_without_room_for_a_socket_is_named(child: Child) -> None:
    """The sweep itself goes on elsewhere; the user's own loaders would wait for ever."""
    child.folder /= "a-job-scheduler-may-name-folders-like-this-one"
    child.folder.mkdir()
    child.environ["TMPDIR"] = str(child.folder)
    outcome = child.run("readiness.dataloader", dataset="Waiting")["readiness.dataloader"]
    assert outcome["advice"].startswith("TMPDIR is too long")
    assert outcome["details"]["best_workers"] > 0


@pytest.mark.parametrize(("dataset", "error"), [("Pictures", "are needed"), ("Large", "shared memory")])
def test_a_small_dev_shm_is_found_before_and_after_a_worker_dies_of_it(child: Child, dataset: str, error: str) -> None:
    """In a mount namespace of its own, as a container is started by default with one of 64 MB."""
    command = "mount -t tmpfs -o size=1m none /dev/shm && "
    if dataset != "Pictures":
        command += f"export GPUDOCTOR_DATASET=planted:{dataset} PYTHONPATH={HERE}:$PYTHONPATH && "
    command += f"{sys.executable} -m gpudoctor bench --device cpu --python {needs.torch_python()}"
    command += " --kernel readiness.dataloader --json; ls /dev/shm >&2"
    argv = [needs.program("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", command]
    environ = {**os.environ, **ONE_THREAD}
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=environ)
    if "unshare failed" in answer.stderr:
        needs.missing("user namespaces")
    (run,) = json.loads(answer.stdout)["runs"]
    assert error in run["details"]["errors"][1]
    assert "/dev/shm, which holds 1.05 MB" in run["advice"]
    assert "--shm-size" in run["advice"]
    assert "torch_" not in answer.stderr


def test_a_child_killed_in_the_middle_of_spawned_workers_leaves_nothing(child: Child) -> None:
    shared: set[str] = set()

    def stop() -> bool:
        shared.update(child.shared())
        return any(name.startswith("/dev/shm/sem.") for name in shared)

    child.run("readiness.dataloader", dataset="UsingCuda", stop=stop)
    assert stop()
    assert child.left() == []
    assert [name for name in shared if Path(name).exists()] == []


@pytest.fixture(scope="module")
def planted() -> dict[str, Any]:
    """What is found where each fault is planted."""
    argv = [needs.torch_python(), "-W", "ignore", str(HERE / "training_faults.py"), program()]
    answer = subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=True, env={**os.environ, **ONE_THREAD}
    )
    found = dict(json.loads(line) for line in answer.stdout.splitlines() if line.startswith("["))
    assert len(found) == 13, answer.stderr
    return found


def test_every_flipped_bit_of_a_copy_and_of_a_loaded_item_is_seen(planted: dict[str, Any]) -> None:
    found = planted["copied bits"]
    assert found["copied"] == found["loaded"] == found["trials"]


@pytest.mark.parametrize("fault", ["copies", "overlap", "block", "layer", "loss"])
def test_a_planted_fault_is_called_wrong(planted: dict[str, Any], fault: str) -> None:
    found = planted[fault]
    assert found["right"] is False
    assert found["differ"] > 0
    assert "wrong" in found["words"] or "not finite" in found["words"]


WHOLE = 2 * (256 * 256 + 256)
"""Gradients of the network of whole numbers."""


def test_one_flipped_bit_of_a_gradient_is_seen_whichever_it_is(planted: dict[str, Any]) -> None:
    found = planted["flips"]
    assert found["clean"] == 0
    assert found["seen"] == found["flipped"] >= 90


def test_no_sum_of_whole_numbers_is_too_large_to_be_exact(planted: dict[str, Any]) -> None:
    """The terms of each taken as positive, so whatever their order is."""
    assert planted["sums"]["most"] < 2**24 / 50


def test_what_limits_a_loop_is_named(planted: dict[str, Any]) -> None:
    assert planted["limits"] == {name: [name, ""] for name in ("data", "transfer", "launch", "compute")}


def test_without_a_profiler_the_clock_names_it(planted: dict[str, Any]) -> None:
    why = "torch.profiler: RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    assert planted["blind"] == {name: [name, why] for name in ("data", "transfer", "compute")}


def test_a_torch_that_clips_accumulates_or_scales_wrongly_is_found(planted: dict[str, Any]) -> None:
    found = planted["outcomes"]
    assert {name: right for name, (right, _) in found.items()} == dict.fromkeys(found, False)
    assert "gradients by norm 2, as called: 5266 of 5266 values are wrong" in found["clipping"][1]
    assert f"of {WHOLE} values are wrong" in found["accumulation"][1]
    assert "gradients are 1 of their norm from float64's" in found["amp"][1]


def test_ranks_that_exchange_nothing_are_found(planted: dict[str, Any]) -> None:
    for answer in planted["no exchange"]["answers"]:
        assert answer["ddp_differ"] > WHOLE * 0.99


def test_a_rank_that_dies_is_named_before_the_one_that_waits_for_it(planted: dict[str, Any]) -> None:
    first, second = planted["a death"]["faults"]
    assert first == 'rank 1 was killed by SIGKILL at "init_process_group"'
    assert second.startswith("rank 0 ")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_end(python: str, tmp_path: Path, sign: signal.Signals) -> None:
    """By Ctrl-C, or killed, while ranks train: no process and no file is left. The path must suit a socket."""
    environ = {**os.environ, "TMPDIR": str(tmp_path), "GPUDOCTOR_TEST_STEP": str(tmp_path)}
    mark = f"GPUDOCTOR_TEST_STEP={tmp_path}"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gpudoctor",
            "bench",
            *f"--device cpu --python {python} --kernel readiness.parallel".split(),
        ],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert until(lambda: len([pid for pid in marked(mark) if '"rank": 1' in command_line(pid)]) == 1)
    parent.send_signal(sign)
    parent.wait(10)
    assert left(lambda: marked(mark)) == []
    assert left(tmp_path.iterdir) == []

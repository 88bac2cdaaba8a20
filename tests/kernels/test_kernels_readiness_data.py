"""What follows from the figures of data: loading, transfers, memory, overlap, no_grad, headroom, profilers."""

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels.child.training import _host, headroom, memory, no_grad, nsight, pinned, transfers
from gpudoctor.kernels.child.training._dataset import Pictures
from gpudoctor.kernels.child.training._host import Host
from gpudoctor.kernels.child.training._loader import LoaderResult, worker_counts
from gpudoctor.kernels.child.training.dataloader import advice, best_result
from gpudoctor.kernels.child.training.headroom import BatchResult
from gpudoctor.kernels.child.training.memory import MemoryUse


def test_what_a_model_loses_is_advised_on_by_what_it_gains() -> None:
    assert "on the device" in transfers.advice(model=4e9, block=25e9)
    assert transfers.advice(model=20e9, block=25e9) == "Nothing to do."
    fixed, grown = MemoryUse(6_000, 10_000, 3_000), MemoryUse(6_000, 6_500, 0)
    assert fixed.lost_share == pytest.approx(0.4)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in memory.advice(fixed, grown, "")
    assert memory.advice(fixed, fixed, "").startswith("Nothing to do")
    assert memory.advice(fixed, None, "").startswith("Nothing to do")
    assert "already" in memory.advice(fixed, grown, "expandable_segments:True,max_split_size_mb:128")
    assert "2.5 times as long" in pinned.advice(gain=1.8, pinned=2.5, blocking="")
    assert "CUDA_LAUNCH_BLOCKING=1" in pinned.advice(gain=1.0, pinned=2.5, blocking="1")
    assert "wait for kernels" in pinned.advice(gain=1.02, pinned=2.5, blocking="0")
    assert "10.0 times as large" in no_grad.advice(0.9)
    assert "keeps activations alive" in no_grad.advice(0.01)


@pytest.mark.parametrize(("each", "fixed"), [(100, 0), (100, 5_000), (7, 300), (100_000, 0)])
def test_the_largest_batch_is_found_and_no_step_ever_takes_more_than_is_free(each: int, fixed: int) -> None:
    free = 64_000
    sizes: list[int] = []

    def attempt(batch: int) -> BatchResult:
        taken = fixed + each * batch
        assert batch == 1 or taken <= free
        sizes.append(batch)
        return BatchResult(batch, taken, float(batch), 1.0)

    tried = headroom.grow_batches(attempt, free, lambda: 1e9)
    if fixed + each > free:
        assert tried == []
        assert sizes == [1]
        return
    assert [one.batch for one in tried] == sorted(set(sizes))
    most = tried[-1].batch
    assert most == headroom._MOST_BATCH or headroom._MARGIN * (fixed + each * most * 1.25) > free


def test_a_step_that_did_not_fit_is_not_tried_again_and_time_ends_the_search() -> None:
    sizes: list[int] = []

    def attempt(batch: int) -> BatchResult | None:
        sizes.append(batch)
        return BatchResult(batch, batch, 1.0, 1.0) if batch <= 21 else None

    tried = headroom.grow_batches(attempt, 1000, lambda: 1e9)
    assert tried[-1].batch in {20, 21}
    assert len(sizes) == len(set(sizes))
    assert headroom.grow_batches(lambda _: None, 1000, lambda: 1e9) == []
    tried = headroom.grow_batches(lambda batch: BatchResult(batch, batch, 1.0, 1.0), 1000, lambda: 0.0)
    assert [one.batch for one in tried] == [1]


def test_memory_that_buys_no_speed_is_for_longer_sequences() -> None:
    flat = [BatchResult(1, 1, 50.0, 1.0), BatchResult(2, 2, 99.0, 1.0), BatchResult(8, 8, 100.0, 1.0)]
    rising = [BatchResult(1, 1, 50.0, 1.0), BatchResult(2, 2, 99.0, 1.0), BatchResult(4, 4, 190.0, 1.0)]
    assert headroom.advice(flat).startswith("Beyond 2 sequences")
    assert "several steps of 4" in headroom.advice(rising)
    assert "checkpoint" in headroom.advice(rising)


def test_nsys_is_found_beside_path_and_without_it_torch_has_a_profiler(tmp_path: Path) -> None:
    for version in ("2023.4.1", "2024.10.2", "2024.6.2"):
        folder = tmp_path / "nsight-systems" / version / "bin"
        folder.mkdir(parents=True)
        program = folder / "nsys"
        program.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}.225-2462v0'\n")
        program.chmod(0o755)
    path = nsight.find_nsys("", (f"{tmp_path}/nsight-systems*/*/bin/nsys",))
    assert path == f"{tmp_path}/nsight-systems/2024.10.2/bin/nsys"
    assert nsight.version_of(path) == "2024.10.2"
    assert nsight.advice(path).endswith(f"{path} profile {nsight.COMMAND}")
    first = tmp_path / "nsight-systems/2023.4.1/bin"
    assert nsight.find_nsys(str(first), (f"{tmp_path}/nsight-systems*/*/bin/nsys",)) == f"{first}/nsys"
    assert nsight.find_nsys(str(tmp_path / "none"), ()) is None
    assert "torch.profiler" in nsight.advice(None)
    assert nsight.version_of(str(tmp_path / "none" / "nsys")) is None


@pytest.mark.parametrize(
    ("paranoid", "params", "effective", "said"),
    [
        ("4", "RmProfilingAdminOnly: 1\n", 0, ["perf_event_paranoid is 4", "administrators only"]),
        ("4", "RmProfilingAdminOnly: 1\n", 1 << 21, []),
        ("4", "RmProfilingAdminOnly: 0\n", 1 << 38, []),
        ("2", "RmProfilingAdminOnly: 0\n", 0, []),
        ("", "", 0, []),
    ],
)
def test_what_a_profiler_may_not_do_is_said(paranoid: str, params: str, effective: int, said: list[str]) -> None:
    notes = nsight.profiling_limits(paranoid, params, f"Name:\tpython\nCapEff:\t{effective:016x}\n")
    assert len(notes) == len(said)
    assert all(part in note for part, note in zip(said, notes, strict=True))


def _machine(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return f"{root}/"


def test_a_quota_is_the_tightest_of_all_cgroups_around(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step",
            "sys/fs/cgroup/job/cpu.max": "150000 100000",
            "sys/fs/cgroup/job/step/cpu.max": "max 100000",
        },
    )
    assert _host.cpu_quota(root) == 1.5


def test_a_quota_of_the_first_version_of_cgroups_counts_too(tmp_path: Path) -> None:
    files = {"cpu.cfs_quota_us": "400000", "cpu.cfs_period_us": "100000"}
    root = _machine(
        tmp_path,
        {"proc/self/cgroup": "3:cpu,cpuacct:/", **{f"sys/fs/cgroup/cpu/{name}": text for name, text in files.items()}},
    )
    assert _host.cpu_quota(root) == 4.0
    assert _host.cpu_quota(_machine(tmp_path / "none", {"proc/self/cgroup": "3:cpu:/"})) is None


def test_memory_that_a_cgroup_withholds_is_not_free(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB",
            "proc/self/cgroup": "0::/job",
            "sys/fs/cgroup/job/memory.max": "8000000000",
            "sys/fs/cgroup/job/memory.current": "7000000000",
            "sys/fs/cgroup/job/memory.stat": "anon 2500000000\nfile 4500000000\ninactive_file 4000000000",
        },
    )
    assert _host.free_memory(root) == 5_000_000_000


HOST = Host(cores=8, affinity=8, quota=None, shm_size=64 << 20, shm_free=64 << 20, temporary="/tmp")


def swept(rates: dict[int, float], cores: float = 0.1, error: str = "", others: float = 0.0) -> list[LoaderResult]:
    """By fork, each worker using so many cores; 0 workers use none. The last died of that error."""
    tried = [
        LoaderResult("fork" if at else "", at, rate=rate, cores=at * cores, wanted=at * cores)
        for at, rate in rates.items()
    ]
    return [*tried[:-1], tried[-1]._replace(error=error, others=others)]


def test_workers_are_tried_up_to_the_cores_that_may_be_used_and_never_more_than_sixteen() -> None:
    assert worker_counts(HOST) == [0, 1, 2, 4, 8]
    assert worker_counts(HOST._replace(affinity=6)) == [0, 1, 2, 4, 6]
    assert worker_counts(HOST._replace(quota=1.5)) == [0, 1, 2, 4]
    assert worker_counts(HOST._replace(affinity=128)) == [0, 1, 2, 4, 8, 16]


def test_the_best_setting_is_the_cheapest_of_those_that_are_as_fast() -> None:
    assert best_result(swept({0: 10, 1: 20, 2: 39, 4: 40}), HOST).workers == 2
    assert best_result(swept({0: 40, 1: 20, 2: 39}), HOST).workers == 0
    longer = LoaderResult("fork", 2, prefetch=4, rate=60.0)
    assert best_result([*swept({0: 10, 2: 40}), longer], HOST) is longer
    spawned = LoaderResult("spawn", 1, rate=60.0)
    assert best_result([*swept({0: 10, 2: 40}), spawned], HOST).workers == 2
    assert best_result([*swept({0: 10, 1: 0}, error="re-initialize CUDA"), spawned], HOST) is spawned


def test_cores_that_a_quota_withholds_are_named_and_used_no_more_than_there_are() -> None:
    contended = swept({0: 10, 1: 10, 2: 15, 4: 25}, cores=1.0)
    assert best_result(contended, HOST._replace(affinity=1)).workers == 0
    assert best_result(contended[1:], HOST._replace(affinity=1)).workers == 1
    assert best_result(contended, HOST._replace(quota=1.5)).workers == 2
    assert best_result(contended, HOST).workers == 4
    said = advice(swept({0: 10, 1: 10, 2: 10.5, 4: 10}, cores=1.0), HOST._replace(affinity=4, quota=2.0))
    assert said.startswith("Use num_workers=0.")
    assert "of 8 cores its affinity allows 4 and its cgroup's CPU quota pays for 2." in said


@pytest.mark.parametrize(
    ("tried", "more", "says"),
    [
        (
            {0: 10, 1: 10, 2: 20, 4: 40, 8: 78},
            {"cores": 0.99},
            "Use num_workers=8, prefetch_factor=2, persistent_workers=True",
        ),
        ({0: 10, 1: 10, 2: 20, 4: 40, 8: 78}, {"cores": 0.99}, "all 8 cores are busy"),
        ({0: 10, 1: 10, 2: 20, 4: 40, 8: 80}, {}, "try 16"),
        ({0: 10, 1: 10, 2: 20, 4: 21, 8: 20}, {}, "main process is the limit"),
        ({0: 500, 1: 300, 2: 320}, {}, "Use num_workers=0. Workers win nothing with these items on this machine."),
        ({0: 500, 1: 300}, {"others": 3.0}, "Other programs kept up to 3.0 of 8 cores busy"),
    ],
)
def test_rates_and_busy_cores_say_what_to_do(tried: dict[int, float], more: dict[str, Any], says: str) -> None:
    assert says in advice(swept(tried, **more), HOST)


DEATHS = [
    ("unable to allocate shared memory(shm) for file </torch_12_34_0>: No space left on device (28)", "--shm-size"),
    ("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that ...", "which holds 67.1 MB"),
    ("26 MB of /dev/shm are free and 80 MB are needed", "--ipc=host"),
    ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", "multiprocessing_context='spawn' does work"),
    ("DataLoader timed out after 6.0 seconds", "multiprocessing_context='spawn' does work"),
    ("OSError: [Errno 24] Too many open files", "ulimit -n"),
    ("RuntimeError: received 0 items of ancdata", "file_system"),
    ("DataLoader worker (pid 7) is killed by signal: Killed. ", "memory limit"),
    ("ValueError: image 17 is truncated", "Workers fail here: ValueError: image 17 is truncated."),
]
"""Words of PyTorch 2.13 and CPython 3.11, and what has to be in the advice."""


@pytest.mark.parametrize(("error", "advised"), DEATHS)
def test_the_last_words_of_a_worker_call_for_a_remedy(error: str, advised: str) -> None:
    tried = [*swept({0: 10, 1: 0.0}, error=error), LoaderResult("spawn", 1, rate=9.0)]
    assert advised in advice(tried, HOST)


def test_what_works_is_not_claimed_where_nothing_does() -> None:
    tried = [*swept({0: 10, 1: 0.0}, error="DataLoader timed out after 6 seconds"), LoaderResult("spawn", 1, error="x")]
    assert "does work" not in advice(tried, HOST)


def test_a_folder_for_temporary_files_is_too_long_where_a_socket_in_it_would_be() -> None:
    fits, too_long = (advice(swept({0: 1.0}), HOST._replace(temporary="/" + "t" * size)) for size in (74, 75))
    assert "TMPDIR" not in fits
    assert too_long.startswith("TMPDIR is too long")


def test_the_sum_of_a_picture_is_that_of_its_words_as_they_wrap() -> None:
    pictures = Pictures(8)
    assert (pictures.expected_sum(5) - pictures.expected_sum(3)) % 2**64 == 2
    assert all(-(2**63) <= pictures.expected_sum(index) < 2**63 for index in range(64))

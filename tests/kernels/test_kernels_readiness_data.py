"""What follows from the figures of transfers, memory, overlap, no_grad, headroom and profilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.kernels.child.training import _host, headroom, memory, no_grad, nsight, pinned, transfers
from gpudoctor.kernels.child.training.headroom import BatchResult
from gpudoctor.kernels.child.training.memory import MemoryUse


def test_a_model_that_loses_most_of_the_link_is_to_be_built_on_the_device() -> None:
    assert "on the device" in transfers.advice(model=4e9, block=25e9)
    assert transfers.advice(model=20e9, block=25e9) == "Nothing to do."


def test_segments_that_grow_are_advised_where_they_kept_less() -> None:
    fixed, grown = MemoryUse(6_000, 10_000, 3_000), MemoryUse(6_000, 6_500, 0)
    assert fixed.lost_share == pytest.approx(0.4)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in memory.advice(fixed, grown, "")
    assert memory.advice(fixed, fixed, "").startswith("Nothing to do")
    assert memory.advice(fixed, None, "").startswith("Nothing to do")
    assert "already" in memory.advice(fixed, grown, "expandable_segments:True,max_split_size_mb:128")


def test_pinning_is_advised_by_what_it_gains() -> None:
    assert "2.5 times as long" in pinned.advice(gain=1.8, pinned=2.5, blocking="")
    assert "CUDA_LAUNCH_BLOCKING=1" in pinned.advice(gain=1.0, pinned=2.5, blocking="1")
    assert "wait for kernels" in pinned.advice(gain=1.02, pinned=2.5, blocking="0")


def test_what_no_grad_saves_is_room_for_larger_batches() -> None:
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


def test_a_step_that_did_not_fit_after_all_is_not_tried_again() -> None:
    sizes: list[int] = []

    def attempt(batch: int) -> BatchResult | None:
        sizes.append(batch)
        return BatchResult(batch, batch, 1.0, 1.0) if batch <= 21 else None

    tried = headroom.grow_batches(attempt, 1000, lambda: 1e9)
    assert tried[-1].batch in {20, 21}
    assert len(sizes) == len(set(sizes))
    assert headroom.grow_batches(lambda _: None, 1000, lambda: 1e9) == []


def test_time_ends_the_search_with_what_was_found() -> None:
    tried = headroom.grow_batches(lambda batch: BatchResult(batch, batch, 1.0, 1.0), 1000, lambda: 0.0)
    assert [one.batch for one in tried] == [1]


def test_memory_that_buys_no_speed_is_for_longer_sequences() -> None:
    flat = [BatchResult(1, 1, 50.0, 1.0), BatchResult(2, 2, 99.0, 1.0), BatchResult(8, 8, 100.0, 1.0)]
    rising = [BatchResult(1, 1, 50.0, 1.0), BatchResult(2, 2, 99.0, 1.0), BatchResult(4, 4, 190.0, 1.0)]
    assert headroom.advice(flat).startswith("Beyond 2 sequences")
    assert "several steps of 4" in headroom.advice(rising)
    assert "checkpoint" in headroom.advice(rising)


def test_nsys_is_found_beside_path_and_the_newest_is_taken(tmp_path: Path) -> None:
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


def test_without_nsys_torch_has_a_profiler(tmp_path: Path) -> None:
    assert nsight.find_nsys(str(tmp_path), ()) is None
    assert "torch.profiler" in nsight.advice(None)
    assert nsight.version_of(str(tmp_path / "nsys")) is None


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
            "sys/fs/cgroup/job/memory.current": "3000000000",
        },
    )
    assert _host.free_memory(root) == 5_000_000_000

"""What limits a DataLoader, told from the settings that were tried on a machine."""

from __future__ import annotations

import pytest

from gpudoctor.kernels.child.training._dataset import Pictures
from gpudoctor.kernels.child.training._host import Host
from gpudoctor.kernels.child.training._loader import LoaderResult, worker_counts
from gpudoctor.kernels.child.training.dataloader import advice, best_result

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


def test_another_start_method_is_best_only_where_no_forked_worker_lives() -> None:
    spawned = LoaderResult("spawn", 1, rate=60.0)
    assert best_result([*swept({0: 10, 2: 40}), spawned], HOST).workers == 2
    assert best_result([*swept({0: 10, 1: 0}, error="re-initialize CUDA"), spawned], HOST) is spawned


def test_no_more_workers_than_want_all_the_cores_are_best_though_they_take_time_from_other_programs() -> None:
    contended = swept({0: 10, 1: 10, 2: 15, 4: 25}, cores=1.0)
    assert best_result(contended, HOST._replace(affinity=1)).workers == 0
    assert best_result(contended[1:], HOST._replace(affinity=1)).workers == 1
    assert best_result(contended, HOST._replace(quota=1.5)).workers == 2
    assert best_result(contended, HOST).workers == 4


def test_cores_that_a_quota_withholds_are_named_with_both_limits() -> None:
    said = advice(swept({0: 10, 1: 10, 2: 10.5, 4: 10}, cores=1.0), HOST._replace(affinity=4, quota=2.0))
    assert said.startswith("Use num_workers=0.")
    assert "of 8 cores its affinity allows 4 and its cgroup's CPU quota pays for 2." in said


def test_cores_that_are_all_busy_call_for_less_work() -> None:
    said = advice(swept({0: 10, 1: 10, 2: 20, 4: 40, 8: 78}, cores=0.99), HOST)
    assert said.startswith("Use num_workers=8, prefetch_factor=2, persistent_workers=True")
    assert "all 8 cores are busy" in said


def test_items_that_wait_call_for_more_workers_than_cores() -> None:
    assert "try 16" in advice(swept({0: 10, 1: 10, 2: 20, 4: 40, 8: 80}), HOST)


def test_a_main_process_that_cannot_take_more_is_named() -> None:
    assert "main process is the limit" in advice(swept({0: 10, 1: 10, 2: 20, 4: 21, 8: 20}), HOST)


def test_workers_may_win_nothing() -> None:
    assert advice(swept({0: 500, 1: 300, 2: 320}), HOST) == (
        "Use num_workers=0. Workers win nothing with these items on this machine."
    )


def test_other_programs_that_work_meanwhile_are_named() -> None:
    assert "Other programs kept up to 3.0 of 8 cores busy" in advice(swept({0: 500, 1: 300}, others=3.0), HOST)


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

"""What is kept, and what becomes of it when the disk is full, the clock is wrong, or two write at once."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from gpudoctor.core.diagnosis import Diagnosis, Verdict
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import history as runs
from gpudoctor.diagnosis.history import MOST_BYTES, MOST_MACHINES, MOST_RUNS, Shelf, of_this_machine

NOISE = os.urandom(60_000).hex()
"""Text that does not pack to nothing."""


def diagnosis(
    verdict: Verdict = "sound", level: str = "quick", python: str = "/v/bin/python", size: int = 0
) -> Diagnosis:
    facts = {"driver.version": Known("580.95.05", "nvml"), "host.os": Known(NOISE[:size], "/etc/os-release")}
    snapshot = Snapshot(Target("local", "node", python, level), facts)
    return Diagnosis(snapshot, verdict, (), (), ("driver.missing",), "1.0")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "history/node")


def keep(shelf: Shelf, count: int, **how: str) -> None:
    for _ in range(count):
        shelf.keep(diagnosis(**how), "1.0")  # type: ignore[arg-type]
        time.sleep(0.002)  # names have milliseconds


def dated(shelf: Shelf, place: Path, seconds: float) -> Path:
    """That file, as if it had been kept that long ago."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() - seconds))
    return place.rename(place.with_name(stamp + place.name[15:]))


def test_a_run_comes_back_as_it_was(shelf: Shelf) -> None:
    shelf.keep(diagnosis("impaired", "standard"), "1.0")
    (run,) = shelf.runs()
    assert (run.level, run.verdict, run.good) == ("standard", "impaired", True)
    assert run.snapshot().get("driver.version") == Known("580.95.05", "nvml")
    assert run.passed("driver.missing")
    assert not run.passed("driver.version-mismatch")
    assert abs(run.stamp - time.time()) < 60
    assert stat.S_IMODE(run.place.stat().st_mode) == 0o600
    assert stat.S_IMODE(run.place.parent.stat().st_mode) == 0o700


def test_of_a_thousand_runs_the_newest_are_kept_and_the_last_good_one(shelf: Shelf) -> None:
    keep(shelf, 1, verdict="sound")
    good = dated(shelf, shelf.runs()[0].place, 9_000_000)
    data = runs.pack_run(diagnosis("broken"), "1.0", {})
    for number in range(1000):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() - 8_000_000 + 60 * number))
        (shelf.folder / f"{stamp}-000.quick.broken.{runs.interpreter_mark('/v/bin/python')}.gz").write_bytes(data)
    keep(shelf, 1, verdict="broken")
    kept = shelf.runs()
    assert len(kept) == MOST_RUNS
    assert kept[-1].place == good
    assert shelf.last_good("/v/bin/python") == kept[-1]
    assert all(run.stamp > time.time() - 8_000_000 + 60 * 800 for run in kept[:-1])


def test_many_bytes_are_thinned_like_many_runs(shelf: Shelf) -> None:
    for _ in range(90):
        shelf.keep(diagnosis("broken", size=100_000), "1.0")
        time.sleep(0.002)
    sizes = [place.stat().st_size for place in shelf.folder.iterdir()]
    assert MOST_BYTES / 2 < sum(sizes) <= MOST_BYTES
    assert len(sizes) < 90


def test_a_clock_that_was_ahead_hides_no_later_run(shelf: Shelf) -> None:
    keep(shelf, 3)
    for place in list(shelf.folder.iterdir()):
        dated(shelf, place, -400 * 86400)
    keep(shelf, MOST_RUNS + 2)
    newest = shelf.runs()[0]
    assert newest.stamp <= time.time() + 1
    assert shelf.last_good("/v/bin/python") == newest
    assert all(run.stamp <= time.time() + 1 for run in shelf.runs())


def test_the_last_good_run_is_that_of_the_same_interpreter_where_there_is_one(shelf: Shelf) -> None:
    keep(shelf, 1, python="/a/bin/python")
    keep(shelf, 1, python="/b/bin/python")
    keep(shelf, 1, python="/a/bin/python", verdict="broken")
    a, b, c = (shelf.last_good(f"/{name}/bin/python") for name in "abc")
    assert a
    assert b
    assert (a.mark, b.mark) == (runs.interpreter_mark("/a/bin/python"), runs.interpreter_mark("/b/bin/python"))
    assert c == b


def test_names_are_found_by_their_beginning(shelf: Shelf) -> None:
    with pytest.raises(UsageError, match="none is kept"):
        shelf.named("20261103")
    keep(shelf, 2)
    newest, oldest = shelf.runs()
    assert shelf.named(oldest.id) == oldest
    with pytest.raises(UsageError, match=f"more than one kept run; the last one is {newest.id}"):
        shelf.named(newest.id[:8])


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", b"no gzip", b"\0" * 5000, None])
def test_a_damaged_file_is_said_to_be_one_and_hides_nothing(shelf: Shelf, damage: bytes | None) -> None:
    keep(shelf, 2)
    newest = shelf.runs()[0]
    data = newest.place.read_bytes()
    newest.place.write_bytes(data[:40] if damage is None else damage)
    (shelf.folder / "of a person.txt").write_text("mine")
    told = [run.summary() for run in shelf.runs()]
    assert [one.trouble for one in told] == ["damaged", ""]
    keep(shelf, 1)
    assert len(shelf.runs()) == 3
    assert (shelf.folder / "of a person.txt").exists()


def test_what_was_ended_while_it_wrote_leaves_nothing_for_long(shelf: Shelf) -> None:
    keep(shelf, 1)
    half = shelf.folder / ".0123456789ab"
    half.write_bytes(b"half a run")
    keep(shelf, 1)
    assert half.exists()
    os.utime(half, (time.time() - 7200,) * 2)
    keep(shelf, 1)
    assert not half.exists()
    assert len(shelf.runs()) == 3


def test_a_home_shared_by_very_many_machines_is_bounded(tmp_path: Path) -> None:
    for number in range(MOST_MACHINES + 20):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        os.utime(folder, (1_700_000_000 + number,) * 2)
    Shelf(tmp_path / "new").keep(diagnosis(), "1.0")
    left = {place.name for place in tmp_path.iterdir()}
    assert len(left) == MOST_MACHINES
    assert "new" in left
    assert "node0" not in left


def test_two_at_once_lose_no_run(shelf: Shelf) -> None:
    failures: list[BaseException] = []

    def write(python: str) -> None:
        try:
            keep(shelf, 40, python=python)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"/{name}/bin/python",)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(shelf.runs()) == 80


def test_the_switch_and_the_folder(tmp_path: Path) -> None:
    assert of_this_machine({"GPUDOCTOR_HISTORY": "off"}) is None
    shelf = of_this_machine({"GPUDOCTOR_STATE": str(tmp_path)})
    assert shelf
    assert shelf.folder.parent == tmp_path / "history"

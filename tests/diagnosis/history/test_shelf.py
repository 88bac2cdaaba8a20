"""Which runs are kept, and what becomes of them when the disk is full, the clock is wrong, or two write at once."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.diagnosis import Diagnosis, Verdict
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import history as runs
from gpudoctor.diagnosis.history import MOST_BYTES, MOST_MACHINES, MOST_RUNS, Shelf, of_this_machine
from tests.conftest import Program
from tests.processes import Ran

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


@pytest.fixture
def gpudoctor(called: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program in this process, with more in its environment."""

    def run(*words: str, env: dict[str, str] | None = None) -> Ran:
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            return called(*words)

    return run


def test_the_switch_and_the_folder(tmp_path: Path, gpudoctor: Program) -> None:
    assert of_this_machine({"GPUDOCTOR_HISTORY": "off"}) is None
    shelf = of_this_machine({"GPUDOCTOR_STATE": str(tmp_path)})
    assert shelf
    assert shelf.folder.parent == tmp_path / "history"
    done = gpudoctor("history", env={"GPUDOCTOR_HISTORY": "off"})
    assert (done.code, done.out) == (2, "")
    assert "GPUDOCTOR_HISTORY is off" in done.err


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("history/*/*.gz"))


def environ(folder: Path) -> dict[str, str]:
    return {"GPUDOCTOR_HISTORY": "", "GPUDOCTOR_STATE": str(folder)}


def test_a_check_is_kept_and_nothing_else(gpudoctor: Program, tmp_path: Path) -> None:
    told = tmp_path / "report.txt"
    told.write_text("NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.\n")
    for words in (["read", str(told)], ["snapshot", "--level", "quick", "-o", str(tmp_path / "s.json")], ["schema"]):
        gpudoctor(*words, env=environ(tmp_path))
    assert kept(tmp_path) == []
    gpudoctor("check", "--level", "quick", env={**environ(tmp_path), "GPUDOCTOR_HISTORY": "off"})
    assert kept(tmp_path) == []
    gpudoctor("check", "--level", "quick", env=environ(tmp_path))
    gpudoctor("preflight", "--level", "quick", env=environ(tmp_path))
    assert len(kept(tmp_path)) == 2


def test_what_the_interface_reads_is_kept_once_when_all_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    several = list(pipeline.watch("quick"))
    assert several
    (run,) = kept(tmp_path)
    assert f".{several[-1].verdict}." in run.name


def test_a_diff_with_a_run_of_another_python_says_so(gpudoctor: Program, tmp_path: Path) -> None:
    other = tmp_path / "bin/python3"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    gpudoctor("check", "--level", "quick", "--python", str(other), env=environ(tmp_path))
    (run,) = kept(tmp_path)
    done = gpudoctor("diff", run.name[:15], env=environ(tmp_path))
    assert done.out.startswith(f"gpudoctor diff: A = run {run.name[:19]}")
    assert done.err == f"gpudoctor: run {run.name[:19]} was of another Python: its torch is not this one\n"


@pytest.mark.parametrize("trouble", ["a file in its place", "not a folder", "gone"])
def test_no_trouble_of_the_folder_is_one_of_the_check(gpudoctor: Program, tmp_path: Path, trouble: str) -> None:
    folder = tmp_path / "state"
    if trouble == "a file in its place":
        folder.write_text("")
    elif trouble == "not a folder":
        folder = Path("/dev/full/state")
    else:
        folder = Path("/proc/1/nothing/state")
    done = gpudoctor("check", "--level", "quick", "--json", env=environ(folder))
    off = gpudoctor("check", "--level", "quick", "--json", env={"GPUDOCTOR_HISTORY": "off"})
    assert (done.code, done.err) == (off.code, "")
    assert done.document["verdict"] == off.document["verdict"]


def test_a_full_disk_is_no_trouble_and_leaves_nothing_half(gpudoctor: Program, tmp_path: Path) -> None:
    """No file may grow, as on a full disk: the run cannot be written."""
    folder = tmp_path / "state"
    words = ["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', sys.executable, "-m", "gpudoctor", "check", "--level", "quick"]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=600, env={**os.environ, **environ(folder)}
    )
    assert (done.returncode, done.stderr) == (gpudoctor("check", "--level", "quick").code, "")
    assert [place for place in folder.rglob("*") if place.is_file()] == []


def test_files_that_are_no_runs_are_no_trouble(gpudoctor: Program, tmp_path: Path) -> None:
    gpudoctor("check", "--level", "quick", env=environ(tmp_path))
    (run,) = kept(tmp_path)
    for name in ("99999999-999999-999", "20260101-000000-000", "20260101-000001-000"):
        run.with_name(name + run.name[19:]).write_bytes(os.urandom(3000))
    run.with_name("20260101-000002-000" + run.name[19:]).mkdir()
    done = gpudoctor("check", "--level", "quick", env=environ(tmp_path))
    assert (done.code, done.err) == (gpudoctor("check", "--level", "quick").code, "")
    listed = gpudoctor("history", env=environ(tmp_path))
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.count("(damaged)") == 3


def test_killed_at_any_moment_it_leaves_whole_runs(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gpudoctor.diagnosis.history import Shelf\n"
        "from tests.diagnosis.history.test_shelf import diagnosis\n"
        "while True: Shelf(Path(sys.argv[1])).keep(diagnosis(size=50_000), '1.0'); print('kept', flush=True)\n"
    )
    for number in range(8):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            time.sleep(0.02 + 0.007 * number)
            writer.send_signal(signal.SIGKILL)
    found = Shelf(tmp_path).runs()
    assert found
    assert all(run.summary().trouble == "" and run.snapshot().facts for run in found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["diff"], "gpudoctor diff --last-good"),
        (["diff", "--last-good", "a.json"], "stands for A"),
        (["diff", "--last-good"], "no check of this machine is kept"),
        (["diff", "20200101-000000"], "no kept run"),
        (["diff", "a.json", "b.json", "--level", "quick"], "of this machine now"),
    ],
)
def test_what_cannot_be_compared_says_what_to_type(
    gpudoctor: Program, tmp_path: Path, words: list[str], says: str
) -> None:
    done = gpudoctor(*words, env=environ(tmp_path))
    assert done.code == 2
    assert says in done.err

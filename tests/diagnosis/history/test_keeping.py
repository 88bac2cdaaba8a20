"""Which runs of the program are kept on this machine, with what in them, and what trouble of the folder means to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoctor.app import pipeline
from gpudoctor.diagnosis.history import Shelf
from tests.conftest import Program


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


def test_switched_off_the_history_says_so(gpudoctor: Program) -> None:
    done = gpudoctor("history", env={"GPUDOCTOR_HISTORY": "off"})
    assert (done.code, done.out) == (2, "")
    assert "GPUDOCTOR_HISTORY is off" in done.err

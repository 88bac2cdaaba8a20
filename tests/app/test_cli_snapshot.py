"""`snapshot`, `diff` and `read` of what was saved, as scripts use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Program


@pytest.fixture(scope="module")
def saved(gpudoctor: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of this machine."""
    place = tmp_path_factory.mktemp("saved") / "machine.json"
    done = gpudoctor("snapshot", "--level", "quick", "-o", str(place))
    assert (done.code, done.out, done.err) == (0, "", "")
    return place


def test_a_snapshot_gives_the_findings_of_the_live_run(gpudoctor: Program, saved: Path) -> None:
    live = gpudoctor("check", "--level", "quick", "--json")
    read = gpudoctor("read", "--json", str(saved))
    assert read.code == live.code
    assert read.document["target"]["kind"] == "snapshot"
    for key in ("verdict", "findings", "counts", "unjudged", "passed"):
        assert read.document[key] == live.document[key]


def test_two_snapshots_of_one_machine_do_not_differ(gpudoctor: Program, saved: Path) -> None:
    again = gpudoctor("snapshot", "--level", "quick")
    done = gpudoctor("diff", str(saved), "-", stdin=again.out)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].startswith("Nothing differs")


@pytest.mark.parametrize(
    "content",
    [
        b'{"schema": "gpudoctor/1", "target": {}, "facts": {"\\u001b[2J\\n.x": 3}}',
        b'{"schema": "gpudoctor-record/1", "host": {"files": {"/etc/',
        b'{"schema": "gpudoctor-record/1", "host": {"files": {"/etc/../../x": "\\u001b[2J"}}}',
    ],
    ids=["control characters", "record cut off", "record"],
)
def test_a_bad_file_on_either_side_is_one_line_and_exit_2(
    gpudoctor: Program, saved: Path, tmp_path: Path, content: bytes
) -> None:
    bad = tmp_path / "bad\x1b[2J\n.json"
    bad.write_bytes(content)
    for words in ((str(saved), str(bad)), (str(bad), str(saved))):
        done = gpudoctor("diff", *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "\x1b" not in done.err


def test_a_folder_cannot_be_written(gpudoctor: Program, tmp_path: Path) -> None:
    done = gpudoctor("snapshot", "-o", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"gpudoctor: -o {tmp_path}: Is a directory; give a file in a folder that you can write to\n"

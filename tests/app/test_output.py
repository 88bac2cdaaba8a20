"""A command's answer in a file: whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpudoctor.app import output
from gpudoctor.core.errors import UsageError


def test_a_new_file_has_the_permissions_of_the_session(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        output.put("text", str(tmp_path / "new"))
    finally:
        os.umask(mask)
    assert (tmp_path / "new").read_text() == "text\n"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_an_old_file_keeps_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before")
    (tmp_path / "old").chmod(0o600)
    (tmp_path / "link").symlink_to("old")
    output.put("after", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text() == "after\n"
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


def test_the_old_text_is_there_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        output.put("after", str(tmp_path / "old"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "before")]


@pytest.mark.parametrize(
    ("name", "says"), [(".", "Is a directory"), ("no/file", "No such file"), ("a\0b", "null byte")]
)
def test_where_nothing_can_be_written_is_said_before_and_after(tmp_path: Path, name: str, says: str) -> None:
    for act in (output.check, lambda place: output.put("text", place)):
        with pytest.raises(UsageError, match=says):
            act(str(tmp_path / name))


def test_a_device_is_written_to_and_not_replaced() -> None:
    output.check("/dev/null")
    output.put("text", "/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (None, "-"):
        output.check(name)
        output.put("text", name)
    assert capsys.readouterr().out == "text\ntext\n"

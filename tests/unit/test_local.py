"""This machine, or a tree in its place: links stay inside, refusals are not absences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudoctor.model.errors import UsageError
from gpudoctor.target.local import Local
from tests.unit.trees import Tree, refused


def test_absolute_links_stay_inside_the_tree(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/usr/share/a", "inside").link("/etc/a", "/usr/share/a").link("/x", "/etc").target()
    assert target.read("/x/a") == "inside"
    assert target.link("/x/a") == "/usr/share/a"
    assert target.listing("/x") == ["a"]


def test_links_cannot_climb_out_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    target = Tree(tmp_path / "root").link("/a", "../../../../secret").link("/b", "/../secret").target()
    assert not target.exists("/a")
    assert not target.exists("/b")
    assert not target.exists("/../secret")


def test_relative_links_and_dots(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/a/b/c", "x").link("/a/d", "./b/../b").target()
    assert target.read("/a/d/c") == "x"
    assert target.link("/a/d/c") == "/a/b/c"


def test_a_loop_does_not_exist_and_cannot_be_read(tmp_path: Path) -> None:
    target = Tree(tmp_path).link("/a", "/b").link("/b", "/a").target()
    assert not target.exists("/a")
    with pytest.raises(OSError, match="symbolic links"):
        target.read("/a")


def test_a_refusal_is_not_an_absence() -> None:
    with refused("/shut") as tree:
        target = tree.file("/shut/in/file").close()
        for ask in (target.exists, target.listing, target.read):
            with pytest.raises(PermissionError):
                ask("/shut/in")


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/big", b"\xff" * 100).target()
    assert target.read_bytes("/big", 10) == b"\xff" * 10
    assert target.read("/big", 1) == "\ufffd"


def test_a_path_that_cannot_be_is_not_there(tmp_path: Path) -> None:
    for target in (Local("quick"), Tree(tmp_path).target()):
        assert not target.exists("/proc/\0")
        assert target.listing("/\0/a") == []
        assert not target.exists("/proc/" + 300 * "x")
        assert target.listing("/proc/" + 300 * "x") == []
        assert target.link("/proc/" + 300 * "x").endswith("x")


def test_missing_folders_list_nothing(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/file").target()
    assert target.listing("/none") == target.listing("/file") == target.listing("/file/below") == []


def test_the_whole_machine() -> None:
    target = Local("quick")
    assert target.path("/proc/self") == Path("/proc/self")
    assert target.link("/proc/self") == f"/proc/{os.getpid()}"
    assert target.exists("/")


def test_programs_get_the_sessions_environment(tmp_path: Path) -> None:
    Tree(tmp_path).file("/bin/tool", '#!/bin/sh\necho "$A $B"\n', mode=0o755)
    target = Local("quick", environ={"A": "1", "B": "2", "PATH": str(tmp_path / "bin")})
    assert target.which("tool") == str(tmp_path / "bin/tool")
    assert target.run([str(tmp_path / "bin/tool")], env={"B": "3"}).out == "1 3\n"


@pytest.mark.parametrize(("content", "mode"), [("#!/bin/sh\nexit 0\n", 0o755), ("", 0o644)])
def test_what_is_no_python_is_refused(tmp_path: Path, content: str, mode: int) -> None:
    Tree(tmp_path).file("/python", content, mode)
    with pytest.raises(UsageError, match="--python"):
        Local("quick", python=str(tmp_path / "python")).verify()


def test_the_active_environment_is_meant(tmp_path: Path) -> None:
    Tree(tmp_path).file("/venv/bin/python", "#!/bin/sh\n", mode=0o755)
    assert Local("quick", environ={"VIRTUAL_ENV": str(tmp_path / "venv")}).python == str(tmp_path / "venv/bin/python")

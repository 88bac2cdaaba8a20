"""This machine, or a tree in its place: links stay inside, refusals are not absences."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Reason
from gpudoctor.probes._site import Site, site_of
from gpudoctor.target import local
from gpudoctor.target.local import Local
from tests.probes.trees import Tree, refused


def test_links_stay_inside_the_tree(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/usr/share/a", "inside").link("/etc/a", "/usr/share/a").link("/x", "/etc").target()
    assert target.read("/x/a") == "inside"
    assert target.link("/x/a") == "/usr/share/a"
    assert target.listing("/x") == ["a"]
    (tmp_path / "secret").write_text("outside")
    target = Tree(tmp_path / "root").link("/a", "../../../../secret").link("/b", "/../secret").target()
    assert not target.exists("/a")
    assert not target.exists("/b")
    assert not target.exists("/../secret")
    target = Tree(tmp_path / "dots").file("/a/b/c", "x").link("/a/d", "./b/../b").target()
    assert target.read("/a/d/c") == "x"
    assert target.link("/a/d/c") == "/a/b/c"
    target = Tree(tmp_path / "loop").link("/a", "/b").link("/b", "/a").target()
    assert not target.exists("/a")
    with pytest.raises(OSError, match="symbolic links"):
        target.read("/a")


def test_a_refusal_is_not_an_absence() -> None:
    with refused("/shut") as tree:
        target = tree.file("/shut/in/file").close()
        for ask in (target.exists, target.listing, target.read):
            with pytest.raises(PermissionError):
                ask("/shut/in")


def test_reading_stops_at_the_limit_and_missing_folders_list_nothing(tmp_path: Path) -> None:
    target = Tree(tmp_path).file("/big", b"\xff" * 100).target()
    assert target.read_bytes("/big", 10) == b"\xff" * 10
    assert target.read("/big", 1) == "\ufffd"
    target = Tree(tmp_path).file("/file").target()
    assert target.listing("/none") == target.listing("/file") == target.listing("/file/below") == []


def test_a_path_that_cannot_be_is_not_there(tmp_path: Path) -> None:
    for target in (Local("quick"), Tree(tmp_path).target()):
        assert not target.exists("/proc/\0")
        assert target.listing("/\0/a") == []
        assert not target.exists("/proc/" + 300 * "x")
        assert target.listing("/proc/" + 300 * "x") == []
        assert target.link("/proc/" + 300 * "x").endswith("x")


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


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 99", Reason.TIMED_OUT),
        ("kill -KILL $$", Reason.CRASHED),
        ("exit 3", Reason.FAILED),
        ("echo something else", Reason.FAILED),
    ],
)
def test_why_a_program_gave_no_answer(script: str, reason: Reason) -> None:
    assert Local("quick").run(["/bin/sh", "-c", script], timeout=1.0).reason is reason


def test_an_environment_made_by_venv_goes_before_condas(tmp_path: Path) -> None:
    """Conda's base environment is active in every shell of some users."""
    Tree(tmp_path).file("/venv/bin/python", mode=0o755).file("/conda/bin/python", mode=0o755)
    both = {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")}
    assert Local("quick", environ=both).python == str(tmp_path / "venv/bin/python")


def interpreter(folder: Path, name: str = "python") -> Path:
    """A real virtual environment's interpreter, which is a link."""
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / name


def prefix_of(python: str | None) -> str:
    assert python
    assert python.startswith("/")
    code = "import sys; print(sys.prefix)"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout.strip()


@pytest.mark.parametrize("asked", ["my venv/bin/python", "my venv/", "linked/bin/python"])
def test_a_relative_interpreter_stays_that_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    interpreter(tmp_path / "my venv")
    (tmp_path / "linked").symlink_to("my venv")
    monkeypatch.chdir(tmp_path)
    target = Local("quick", asked)
    target.verify()
    assert Path(prefix_of(target.python)).resolve() == (tmp_path / "my venv").resolve()
    assert target.python
    assert "/./" not in target.python


def test_a_link_to_an_environments_interpreter_means_what_python_makes_of_it(tmp_path: Path) -> None:
    real = interpreter(tmp_path / "venv")
    (tmp_path / "python").symlink_to(real)
    target = Local("quick", str(tmp_path / "python"))
    target.verify()
    site = site_of(target)
    assert isinstance(site, Site)
    assert site.prefix == prefix_of(str(tmp_path / "python"))


def test_home_and_path_are_looked_through_as_by_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = interpreter(tmp_path / "venv")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Local("quick", "~/venv/bin/python").python == str(python)
    assert Local("quick", "python", environ={"PATH": str(python.parent)}).python == str(python)


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_stale_environment(tmp_path: Path, variable: str) -> None:
    interpreter(tmp_path / "venv")
    moved = Local("quick", environ={variable: f"{tmp_path}/moved", "PATH": f"{tmp_path}/venv/bin"})
    assert moved.python == str(tmp_path / "venv/bin/python3")
    (tmp_path / "odd/bin/python").mkdir(parents=True)
    assert Local("quick", environ={variable: f"{tmp_path}/odd", "PATH": "/nowhere"}).python == sys.executable


def test_a_script_that_starts_another_python_is_not_the_interpreter(tmp_path: Path) -> None:
    real = interpreter(tmp_path / "venv")
    shim = tmp_path / "shims/python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho welcome\nexec "{real}" "$@"\n')
    shim.chmod(0o755)
    target = Local("quick", str(shim))
    target.verify()
    site = site_of(target)
    assert isinstance(site, Site)
    assert (site.python, site.prefix, site.environment) == (str(real), str(tmp_path / "venv"), "venv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("#!/bin/sh\necho Python 2.7\n", "Python 2.7"),
        ("no program\n", "cannot be started: Exec format error"),
        ("#!/no/such/interpreter\n", "cannot be started: No such file"),
        ("#!/bin/sh\nexit 7\n", "exit 7"),
        ("#!/bin/sh\nexec sleep 600\n", "it does not start"),
    ],
    ids=["Python 2", "text", "no interpreter", "fails", "hangs"],
)
def test_what_is_refused_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, words: str) -> None:
    monkeypatch.setattr(local, "START_SECONDS", 1.0 if "sleep" in content else 60.0)
    Tree(tmp_path).file("/python", content, 0o755)
    with pytest.raises(UsageError, match=words):
        Local("quick", python=str(tmp_path / "python")).verify()


@pytest.mark.parametrize("asked", ["empty", "nothing", "", "gone/python"])
def test_what_is_not_there_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="without bin/python" if asked == "empty" else "no such program"):
        Local("quick", asked)


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Local("quick", sys.executable).python == sys.executable
    with pytest.raises(UsageError, match="no such program"):
        Local("quick", "bin/python")

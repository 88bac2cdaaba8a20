"""Root runs no code of another user, and nobody code of the working directory: each attack beside its sound twin."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import probes as collecting
from gpudoctor.core import files, shipped
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Unread
from gpudoctor.probes import python_env, torch_live
from gpudoctor.probes._nvml import client
from gpudoctor.target import Answer, rights
from gpudoctor.target.local import Local
from tests import needs
from tests.guard.strangers import NAME, STRANGER, give, open_folder, program, stranger

__all__ = ["open_folder"]

PLANTED = """#!/bin/sh
echo planted >> {mark}
exec /bin/false
"""
PYTHON_PLANTED = "open({mark!r}, 'a').write('planted')\n"


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_warned", set())
    monkeypatch.setattr(rights, "consent", "")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that planted code writes: what must not be there."""
    return tmp_path / "mark"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can look into, as /home is."""
    folder = Path(tempfile.mkdtemp(prefix="guard-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def venv(place: Path) -> Path:
    """The interpreter of a virtual environment, which is root's."""
    real = next(filter(_runs_for_all, (os.path.realpath(sys.executable), "/usr/bin/python3")), None)
    environment = place / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "lib/python3.11/site-packages").mkdir(parents=True)
    (environment / "bin/python").symlink_to(real or needs.missing("a Python that every user may run"))
    (environment / "pyvenv.cfg").write_text(f"home = {Path(str(real)).parent}\n")
    return environment / "bin/python"


def _runs_for_all(python: str) -> bool:
    stranger()
    try:
        done = subprocess.run([python, "-I", "-c", ""], check=False, user=STRANGER, group=STRANGER, extra_groups=[])
    except OSError:
        return False
    return done.returncode == 0


def plant(folder: Path, name: str, mark: Path) -> Path:
    """A program of that name that leaves its mark."""
    place = folder / name
    place.write_text(PLANTED.format(mark=mark))
    place.chmod(0o755)
    return place


# ----------------------------------------------------------------------------------------- another user's Python


def test_a_python_of_root_is_run_without_a_word(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = Local("quick", str(venv))
    target.verify()
    assert target.run([str(venv), "-c", "print(1)"]).out == "1\n"
    assert not capsys.readouterr().err


def test_python_of_another_user_is_refused_to_root(venv: Path) -> None:
    give(venv.parent.parent)
    done = program(["check", "--python", str(venv)])
    assert done.code == 2
    assert done.err == (
        f"gpudoctor: --python {venv}: {venv.parent.parent} belongs to user {NAME}, and it would run as root:"
        f" --as-owner runs it as user {NAME}, --trust-python runs it as root\n"
    )


@pytest.mark.parametrize("what", ["pyvenv.cfg", "bin/python", "lib/python3.11/site-packages"])
def test_each_part_of_an_environment_counts(venv: Path, what: str) -> None:
    os.chown(venv.parent.parent / what, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UsageError, match=f"{what} belongs to user {NAME}"):
        Local("quick", str(venv))


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "evil.pth"])
def test_what_runs_when_it_starts_counts(venv: Path, name: str) -> None:
    custom = venv.parent.parent / "lib/python3.11/site-packages" / name
    custom.write_text("import os\n")
    assert Local("quick", str(venv)).python
    give(custom)
    with pytest.raises(UsageError, match=f"{name} belongs to user {NAME}"):
        Local("quick", str(venv))


def test_an_environment_that_all_can_write_to_has_no_owner_to_ask_it_as(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.parent.chmod(0o777)
    with pytest.raises(UsageError, match="can be written to by every user, and it would run as root: --trust-python"):
        Local("quick", str(venv))
    monkeypatch.setattr(rights, "consent", "as owner")
    with pytest.raises(UsageError, match="can be written to by every user"):
        Local("quick", str(venv))


def test_as_its_owner_it_has_that_users_rights_and_home(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(venv.parent.parent)
    monkeypatch.setattr(rights, "consent", "as owner")
    monkeypatch.setattr(rights, "_unreadable", lambda _: "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = Local("quick", str(venv))
    target.verify()
    ask = "import json, os; print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), dict(os.environ)]))"
    uids, gids, groups, environ = json.loads(target.run([str(venv), "-c", ask]).out)
    assert uids == [STRANGER] * 3
    assert 0 not in gids
    assert 0 not in groups
    assert environ["USER"] == NAME
    assert environ["HOME"] == str(Path(f"~{NAME}").expanduser())
    assert "XDG_CACHE_HOME" not in environ
    mine = json.loads(target.run([sys.executable, "-c", ask]).out)
    assert mine[0] == [os.getuid()] * 3, "our own children stay as we are"


def test_trusted_it_runs_as_root_and_whoever_is_not_root_runs_what_it_finds(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(venv.parent.parent)
    monkeypatch.setattr(rights, "consent", "trust")
    target = Local("quick", str(venv))
    assert target.run([str(venv), "-c", "import os; print(os.getuid())"]).out == "0\n"
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    assert rights.refusal(str(venv)) == ""
    assert rights.owner(str(venv)) is None


def test_both_ways_by_the_command_line(venv: Path) -> None:
    give(venv.parent.parent)
    for option, uid in (("--as-owner", STRANGER), ("--trust-python", 0)):
        done = program(["check", "--level", "quick", "--json", "--python", str(venv), option])
        assert done.code in (0, 1), done.err
        assert json.loads(done.out)["facts"]["python.environment"]["value"] == "venv", uid
    both = program(["check", "--as-owner", "--trust-python"])
    assert both.code == 2
    fix = program(["fix", "--yes", "--python", str(venv), "--as-owner"])
    assert fix.code == 2
    assert "run gpudoctor fix as that user" in fix.err


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_python_that_was_only_found_is_not_run_and_its_facts_say_why(
    venv: Path, mark: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.unlink()
    give(plant(venv.parent, "python", mark))
    (venv.parent.parent / "pyvenv.cfg").unlink()
    monkeypatch.setenv(variable, str(venv.parent.parent))
    target = Local("standard")
    target.verify()
    found = collecting.collect(target, [python_env, torch_live])
    for fact in ("python.version", "live.cuda_available"):
        said = found.get(fact)
        assert isinstance(said, Unread)
        assert f"belongs to user {NAME}, and it would run as root: --as-owner" in said.why
    assert not mark.exists()


# ------------------------------------------------------------------------------------------------------- PATH, cwd


@pytest.mark.parametrize("name", ["nvidia-smi", "nvcc", "journalctl", "python3"])
def test_root_runs_nothing_from_a_folder_that_all_can_write_to(
    open_folder: Path, tmp_path: Path, mark: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger()
    plant(open_folder, name, mark)
    sound = tmp_path / "sound"
    sound.mkdir()
    plant(sound, name, mark)
    path = f"{open_folder}:{sound}"
    target = Local("quick", environ={"PATH": path})
    assert target.which(name) == f"{sound}/{name}"
    assert (
        f"PATH: {open_folder} can be written to by every user: not used for what root runs" in capsys.readouterr().err
    )
    assert target.run(["/bin/sh", "-c", 'echo "$PATH"']).out == f"{sound}\n"
    assert target.environ["PATH"] == path, "a fact stays what it is"
    open_folder.chmod(0o755)
    assert Local("quick", environ={"PATH": path}).which(name) == f"{open_folder}/{name}"


def test_a_program_that_another_user_owns_is_not_run(tmp_path: Path, mark: Path) -> None:
    stranger()
    tool = plant(tmp_path, "nvidia-smi", mark)
    target = Local("quick", environ={"PATH": str(tmp_path)})
    target.run(["nvidia-smi"])
    assert mark.read_text() == "planted\n"
    give(tool)
    with pytest.raises(PermissionError, match=f"belongs to user {NAME}"):
        target.run(["nvidia-smi"])
    assert mark.read_text() == "planted\n"


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_no_program_is_looked_for_in_the_working_directory(
    tmp_path: Path, mark: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / entry
    folder.mkdir(exist_ok=True)
    plant(folder, "nvidia-smi", mark)
    monkeypatch.chdir(tmp_path)
    assert Local("quick", environ={"PATH": f"{entry}:/usr/bin"}).which("nvidia-smi") != f"{entry or '.'}/nvidia-smi"
    with pytest.raises(FileNotFoundError):
        Local("quick", environ={"PATH": entry}).run(["nvidia-smi"])
    assert Local("quick", environ={"PATH": f"{entry}:{folder}"}).which("nvidia-smi") == f"{folder}/nvidia-smi"


def test_the_whole_program_runs_nothing_of_the_folder_that_it_is_called_in(tmp_path: Path, mark: Path) -> None:
    """Modules that Python, we, and what we start import, and the programs that we run, under their own names."""
    names = ("json", "re", "torch", "simpleeval", "ctypes", "platformdirs", "sitecustomize", "usercustomize", "site")
    for name in names:
        (tmp_path / f"{name}.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    (tmp_path / "gpudoctor.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    for name in ("nvidia-smi", "nvcc", "journalctl", "ldconfig", "python3", "gcc", "sh"):
        plant(tmp_path, name, mark)
    done = program(["check", "--json"], {"PATH": f":.:{os.environ['PATH']}"}, cwd=tmp_path)
    assert json.loads(done.out)["schema"] == "gpudoctor/1"
    assert not mark.exists()


@pytest.mark.parametrize("name", ["json", "simpleeval", "argparse", "platformdirs"])
def test_with_m_nothing_is_imported_from_the_working_directory(tmp_path: Path, mark: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    argv = [sys.executable, "-m", "gpudoctor", "read", "-", "--json"]
    env = {**os.environ, "PYTHONPATH": str(needs.REPOSITORY)}
    done = subprocess.run(
        argv, check=False, input="driver 1", capture_output=True, text=True, cwd=tmp_path, timeout=300, env=env
    )
    assert json.loads(done.stdout)["schema"] == "gpudoctor/1"
    assert not mark.exists()


def test_a_gpudoctor_that_we_start_is_this_one(tmp_path: Path, mark: Path) -> None:
    """For preflight, mcp and --serve; not what the working directory has under that name."""
    for name in ("gpudoctor", "json", "runpy"):
        (tmp_path / f"{name}.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    argv = [*shipped.own_command(), "check", "--json", "--level", "quick"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert json.loads(done.stdout)["schema"] == "gpudoctor/1"
    assert not mark.exists()


# ------------------------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"])
def test_root_s_children_load_nothing_that_others_can_change(
    open_folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger()
    theirs, own = open_folder / "x.so", tmp_path / "y.so"
    theirs.write_text("")
    own.write_text("")
    environ = {"PATH": "/usr/bin:/bin", name: f"{theirs}:{own}"}
    target = Local("quick", environ=environ)
    assert rights.trusted_environ(environ)[name] == str(own)
    assert f"{name}: {open_folder} can be written to by every user: not used" in capsys.readouterr().err
    assert target.environ[name] == f"{theirs}:{own}", "what is measured by reading stays as it is"
    assert rights.trusted_environ({name: str(own)}) == {name: str(own)}


def test_a_home_that_sudo_kept_is_not_that_of_root_s_children(
    place: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python runs usercustomize and .pth files of the home's package folder, whoever owns it."""
    stranger()
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = place / "home/.local/lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "usercustomize.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    ask = [os.path.realpath(sys.executable), "-c", "import os; print(os.environ['HOME'])"]
    sound = Local("quick", environ={"HOME": str(place / "home"), "PATH": "/usr/bin:/bin"})
    assert sound.run(ask).out == f"{place / 'home'}\n"
    assert mark.exists(), "root's own is run"
    mark.unlink()
    give(place / "home")
    kept = Local("quick", environ={"HOME": str(place / "home"), "PATH": "/usr/bin:/bin"})
    assert kept.run(ask).out == f"{Path('~root').expanduser()}\n"
    assert not mark.exists()
    assert f"HOME: {place / 'home'} belongs to user {NAME}: not used for what root runs" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["TRITON_CACHE_DIR", "NCCL_NET_PLUGIN", "CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR"])
def test_no_cache_or_plugin_of_another_user_is_handed_on(place: Path, variable: str) -> None:
    stranger()
    theirs = place / "theirs"
    theirs.mkdir()
    assert rights.trusted_environ({variable: str(theirs)}) == {variable: str(theirs)}
    give(theirs)
    assert rights.trusted_environ({variable: str(theirs)}) == {}


def test_the_child_that_asks_nvml_takes_nothing_of_the_caller_s_environment(tmp_path: Path, mark: Path) -> None:
    """Neither what Python would run, nor what the loader would load first."""
    for name in ("sitecustomize", "usercustomize", "json", "pynvml"):
        (tmp_path / f"{name}.py").write_text(PYTHON_PLANTED.format(mark=str(mark)))
    env = {
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
        "PYTHONUSERBASE": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    target = Local("quick", environ=env)
    told = client.ask_nvml(target, client.NvmlRequest(client.limits(target, 1)))
    assert "could not be started" not in told.broken
    assert not mark.exists()


def test_the_child_that_asks_nvml_takes_no_library_that_the_session_preloads(tmp_path: Path) -> None:
    heard: list[str] = []

    class Heard(Local):
        def run(self, *how: Any, **more: Any) -> Answer:
            answer = super().run(*how, **more)
            heard.append(answer.err)
            return answer

    target = Heard("quick", environ={"PATH": os.environ["PATH"], "LD_PRELOAD": str(tmp_path / "odd.so")})
    client.ask_nvml(target, client.NvmlRequest(client.limits(target, 1)))
    assert heard
    assert "odd.so" not in "".join(heard)
    assert "odd.so" in target.run(["/bin/sh", "-c", "true"]).err, "what is asked of the session's own programs"


def test_the_working_directory_of_a_child_is_nobody_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry of LD_LIBRARY_PATH or PYTHONPATH is the working directory."""
    monkeypatch.chdir(tmp_path)
    assert Local("quick").run([sys.executable, "-c", "import os; print(os.getcwd())"]).out == "/\n"

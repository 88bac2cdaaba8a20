"""Environments on Windows are changed and restored: by real installers, in real environments, from a local index."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixes.index import Index
from tests.fixes.place import difference, files_of
from tests.fixes.test_fix_command import PAGE, RULE
from tests.fixes.wheels import Wheel
from tests.processes import Ran, until
from tests.windows.machines import RTX_4090, registry
from tests.windows.rig import Windows
from tests.windows.test_check import cuda, nvml

pytestmark = pytest.mark.full

TAG = "cp311-cp311-win_amd64"
ODD = "Jürgen O'Neil & 模型 100% ^x(1)"
"""A user's folder as Windows allows it: what cmd.exe, PowerShell and code pages stumble over."""


def torch(version: str, cuda: str, library: bytes) -> Wheel:
    """torch of that version as its wheel for Windows lies; `cuda` empty for one without it."""
    text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda or None!r}\nhip = None\ngit_version = 'a8d6afb'\n"
    files = {
        "torch/__init__.py": b"def main():\n    pass\n",
        "torch/version.py": text.encode(),
        f"torch/lib/torch_{'cuda' if cuda else 'cpu'}.dll": library,
        "torch/lib/c10.dll": library,
    }
    return Wheel("torch", version, (), files, {"torchrun": "torch:main"}, {"data/share/torch/NOTICE": b"stub\n"}, TAG)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    from tests.windows import rig

    dll = (rig.windows().folder / "py/vcruntime140.dll").read_bytes()  # a real one, that can be loaded
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        index.add(torch("2.9.0+cpu", "", dll), torch("1.0+cpu", "", dll), shelf="cpu")
        index.add(torch("2.9.0+cu130", "13.0", dll), shelf="cu130")
        index.add(torch("2.15.0+cu132", "13.2", dll), shelf="cu132")
        index.add(torch("2.0", "12.8", dll), Wheel("helper", "1"))
        yield index


@dataclass(frozen=True)
class Patient:
    """An environment on D: with torch for processors, and gpudoctor beside it."""

    windows: Windows
    index: Index
    folder: Path
    python: str

    def gpudoctor(self, *words: str) -> Ran:
        """Run gpudoctor on it, at level quick."""
        own = ["--level", "quick"] if words[0] == "fix" else []
        return self.windows.gpudoctor(*words, *own, "--python", self.python, env=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """Variables by which installers know this index alone."""
        state = f"D:\\{self.folder.parent.name}\\state"
        own = {"PIP_CONFIG_FILE": "nul", "PIP_NO_CACHE_DIR": "1", "UV_NO_CONFIG": "1", "UV_NO_CACHE": "1"}
        base = self.index.url("").rstrip("/")
        urls = {"GPUDOCTOR_TORCH_INDEX": base, "PIP_INDEX_URL": self.index.url(), "UV_INDEX_URL": self.index.url()}
        return {**own, **urls, "GPUDOCTOR_STATE": state, "WINEPATH": "D:\\bin"}

    @property
    def torch(self) -> str:
        """The version that is installed."""
        (found,) = (self.folder / "Lib/site-packages").glob("torch-*.dist-info")
        return found.name.removeprefix("torch-").removesuffix(".dist-info")

    def put(self, version: str) -> None:
        """Lay that torch into it, as an installer would."""
        (wheel,) = self.index.folder.glob(f"*/torch-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder / "Lib/site-packages")


def patient(windows: Windows, index: Index, name: str, python: str = "Scripts/python.exe") -> Patient:
    """A virtual environment of uv's with pip, or CPython's embeddable distribution, in a folder of that name."""
    folder = windows.new_folder() / name
    shutil.copytree(windows.with_environment() if "/" in python else windows.portable(), folder)
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), cuda())
    windows_path = str(folder.relative_to(windows.folder) / python).replace("/", "\\")
    return Patient(windows, index, folder, f"D:\\{windows_path}")


@contextmanager
def loaded(made: Patient, dll: str) -> Iterator[None]:
    """A program that has that DLL loaded."""
    code = "import ctypes, sys; ctypes.WinDLL(sys.argv[1]); print('loaded', flush=True); sys.stdin.read()"
    with made.windows.started(["D:\\py\\python.exe", "-c", code, dll]) as child:
        assert child.stdout
        assert child.stdout.readline().strip() == b"loaded"
        yield
        child.kill()


def test_a_dll_in_use_is_named_before_anything_changes(windows: Windows, index: Index) -> None:
    made = patient(windows, index, "env")
    made.put("2.9.0+cpu")
    before = files_of(made.folder)
    dll = made.python.replace("Scripts\\python.exe", "Lib\\site-packages\\torch\\lib\\c10.dll")
    with loaded(made, dll):
        ran = made.gpudoctor("fix", "--yes", "--json")
    assert ran.code == 1
    assert ran.document["why"] == f"{dll}: a program has it open: end that first. Nothing was changed"
    assert difference(before, files_of(made.folder)) == []


def test_a_cure_by_uv_is_taken_back_as_soon_as_its_dlls_are_free(windows: Windows, index: Index) -> None:
    made = patient(windows, index, ODD)
    made.put("2.9.0+cpu")
    before = files_of(made.folder)
    ran = made.gpudoctor("fix", "--yes", "--json")
    assert (ran.code, ran.document["outcome"]) == (0, "fixed"), ran.out + ran.err
    assert ran.document["judged"] == {"torch.cpu-build": False}
    assert made.torch == "2.9.0+cu130"
    assert "sudo" not in ran.out
    dll = made.python.replace("Scripts\\python.exe", "Lib\\site-packages\\torch\\lib\\torch_cuda.dll")
    with loaded(made, dll):
        stopped = made.gpudoctor("fix", "--undo", "last", "--yes", "--json")
    assert stopped.document["why"] == f"{dll}: a program has it open: end that; undo again goes on with it"
    back = made.gpudoctor("fix", "--undo", "last", "--yes")
    assert back.code == 0, back.out + back.err
    assert difference(before, files_of(made.folder)) == []


def test_setup_by_pip_in_a_portable_python(windows: Windows, index: Index) -> None:
    """As ComfyUI's: CPython's embeddable distribution, whose prefix is shared with all that lies there."""
    made = patient(windows, index, "python_embeded", "python.exe")
    before = contents(made)
    ran = made.gpudoctor("setup", "torch", "--apply", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert made.torch == "2.15.0+cu132"
    assert (made.folder / "Scripts/torchrun.exe").is_file()
    assert made.gpudoctor("fix", "--undo", "last", "--yes").code == 0
    assert difference(before, contents(made)) == []


def contents(made: Patient) -> dict[str, tuple[int, str]]:
    """Its files; empty folders do not count."""
    return {name: seen for name, seen in files_of(made.folder).items() if seen[1]}


def test_what_was_cut_off_is_taken_back(windows: Windows, index: Index) -> None:
    made = patient(windows, index, "env")
    made.put("1.0+cpu")
    page = made.folder.parent / f"rules/torch/{RULE}.toml"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE.replace("WANTED", "2.0"), "utf-8")
    before = files_of(made.folder)
    rules = f"D:\\{made.folder.parent.name}\\rules"
    index.pause, wheel = 3.0, "/simple/torch-2.0-"
    words = ["D:\\py\\python.exe", "-m", "gpudoctor", "fix", "--yes", "--rules", rules, RULE]
    words += ["--level", "quick", "--python", made.python]
    try:
        with windows.started(words, made.environ) as child:
            assert until(lambda: child.poll() or [path for path in index.asked if path.startswith(wheel)])
            child.send_signal(signal.SIGKILL)
        assert difference(before, files_of(made.folder)) != [], "the first step was done"
        assert until(lambda: not _running(made.folder.parent.name)), "its installer ends with it"
    finally:
        index.pause = 0.0
    back = made.gpudoctor("fix", "--undo", "last", "--yes")
    assert back.code == 0, back.out + back.err
    assert difference(before, files_of(made.folder)) == []


def _running(word: str) -> list[str]:
    """The processes of this machine with that word among theirs."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line and str(os.getpid()) not in line]

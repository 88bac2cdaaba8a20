"""A folder of wheels, as an index would have them: ours and what it needs; the interpreters that they are for."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from gpudoctor.app.pyz import needed
from tests import needs
from tests.needs import REPOSITORY


def stock(folder: Path) -> None:
    """Build ours, wheel and sdist, and pack the rest."""
    folder.mkdir()
    build(REPOSITORY, folder)
    for name in needed(tui=True):
        try:
            _pack(distribution(name), folder)
        except PackageNotFoundError:  # of another Python
            continue


def build(project: Path, goal: Path, *targets: str) -> None:
    """Build the project as pip and uv would; the folder is a copy of ours, whose own is not written to."""
    words = [word for target in targets or ("sdist", "wheel") for word in ("-t", target)]
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(goal), *words], check=True, cwd=project)


def install(place: Path, python: str, shelf: Path) -> None:
    """An environment as ``python -m venv`` makes it, and our wheel in it as the README says.

    It takes no network in our own Python; packages that are installed here may not be for another one.
    """
    if python == sys.executable:
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        pip = [str(place / "bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-index"]
        subprocess.run([*pip, "-f", str(shelf), "--no-compile", "gpudoctor"], check=True)
        return
    uv = needs.program("uv")
    subprocess.run([uv, "venv", "-q", "-p", python, str(place)], check=True)
    argv = [uv, "pip", "install", "-q", "-p", str(place / "bin/python"), "-f", str(shelf), "gpudoctor"]
    if subprocess.run([*argv, "--offline"], check=False, capture_output=True).returncode:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode:
            needs.missing(f"a package index for {python} ({done.stderr.strip().splitlines()[-1]})")


def _pack(of: Distribution, folder: Path) -> None:
    """The wheel that it was installed from, less its commands and what is compiled."""
    info = next(file.parts[0] for file in of.files or () if file.parts[0].endswith(".dist-info"))
    files = {str(file): Path(str(of.locate_file(file))) for file in of.files or () if ".." not in file.parts}
    wanted = {name: path for name, path in files.items() if path.suffix not in {".pyc", ".so"}}
    for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "WHEEL"):
        wanted.pop(f"{info}/{name}", None)
    contents = {name: path.read_bytes() for name, path in wanted.items()}
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl", "w") as wheel:
        for name, content in contents.items():
            wheel.writestr(name, content)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def _found(version: str) -> str | None:
    """That Python on PATH or of pyenv; a shim that starts none is none."""
    if version == OWN:
        return sys.executable
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])
    python = shutil.which(f"python{version}", path=path)
    works = python and subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
    return python if works else None


PYTHONS = {version: python for version in VERSIONS if (python := _found(version))}
"""By version; the one that runs the tests is always there."""


def bare(folder: Path, **more: str) -> dict[str, str]:
    """Variables of a process without a home, a cache or a Python of its own; `folder` is its only temporary one."""
    nowhere = "/proc/nowhere"
    given = {"PATH": "/usr/bin:/bin", "HOME": nowhere, "GPUDOCTOR_STATE": nowhere, "TMPDIR": str(folder)}
    return {**given, "LC_ALL": "C.UTF-8", **more}

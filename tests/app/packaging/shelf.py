"""A folder of wheels, as an index would have them: ours, built here, and what it needs, packed as it is here."""

from __future__ import annotations

import base64
import hashlib
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

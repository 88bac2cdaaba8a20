"""The Python that ``--python`` names on Windows: a launcher, a virtual environment, conda's folder, a portable one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import text_of
from gpudoctor.target import system_paths
from gpudoctor.target.local import Local

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="Windows' Python runs these")

HERE = Path(sys.executable).parent
LAYOUTS = {"venv": "Scripts/python.exe", "conda": "python.exe", "portable": "python.exe"}


@pytest.fixture
def layouts(tmp_path: Path) -> Path:
    """A folder with an environment of each kind: what lies in one tells what it is."""
    shutil.copytree("D:\\environment", tmp_path / "venv", copy_function=os.link)
    for name in ("conda", "portable"):
        shutil.copytree(HERE, tmp_path / name, copy_function=os.link)
    (tmp_path / "conda/conda-meta").mkdir()
    (tmp_path / "conda/conda-meta/history").touch()
    version = f"python{sys.version_info[0]}{sys.version_info[1]}"
    (tmp_path / f"portable/{version}._pth").write_text(f"{version}.zip\n.\nLib/site-packages\nimport site\n")
    for name in LAYOUTS:
        info = tmp_path / name / "Lib/site-packages/torch-2.9.0+cpu.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: torch\nVersion: 2.9.0+cpu\n")
        (info / "RECORD").write_text("torch/version.py,,\n")
        (info.parent / "torch").mkdir()
        (info.parent / "torch/version.py").write_text("__version__ = '2.9.0+cpu'\ncuda = None\nhip = None\n")
    (tmp_path / "portable/Lib/EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    return tmp_path


def read(python: str) -> Iterator[str]:
    """What a quick look says of that interpreter: its place, environment and version, torch's build, whose it is."""
    snapshot = pipeline.look("quick", python)
    for name in ("python.path", "python.prefix", "python.environment", "python.version", "torch.version"):
        yield text_of(snapshot.facts[name])
    yield text_of(snapshot.facts["python.externally_managed"])


@pytest.mark.parametrize(("name", "place"), LAYOUTS.items())
def test_an_environment_by_its_folder_and_by_its_interpreter(name: str, place: str, layouts: Path) -> None:
    python = layouts / name / place
    version = ".".join(map(str, sys.version_info[:3]))
    kind = {"portable": "system"}.get(name, name)
    for named in (layouts / name, python):
        managed = str(name == "portable")
        assert list(read(str(named))) == [str(python), str(layouts / name), kind, version, "2.9.0+cpu", managed]


def test_a_program_is_found_once_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path.as_posix()
    added = (("other.txt", None), ("Tool.BAT", f"{folder}/tool.bat"), ("tool.exe", f"{folder}/tool.exe"))
    for seconds, (file, found) in enumerate(added, 1):
        (tmp_path / file).touch()
        os.utime(tmp_path, (seconds, seconds))  # as files leave it that are not made in one instant
        assert system_paths.find_program("tool", [folder]) == found


def test_a_launcher_stands_for_the_interpreter_that_it_starts(tmp_path: Path) -> None:
    batch = tmp_path / "py.bat"
    batch.write_text(f'@echo off\n"{sys.executable}" %*\n')
    assert Local("quick", str(batch)).python == sys.executable.replace("\\", "/")


def test_a_launcher_without_any_interpreter_is_refused(tmp_path: Path) -> None:
    batch = tmp_path / "py.bat"
    batch.write_text("@echo No installed Python found! 1>&2\n@exit /b 103\n")
    with pytest.raises(UsageError, match="starts no Python: No installed Python found!"):
        Local("quick", str(batch))


def test_a_folder_without_an_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a folder without Scripts/python\.exe"):
        Local("quick", str(tmp_path))

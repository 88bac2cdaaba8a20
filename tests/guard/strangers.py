"""Another user of this machine, for real: files that belong to it, and processes that run as it."""

import os
import pwd
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests import needs
from tests.processes import Ran, finished

STRANGER = 65534
NAME = pwd.getpwuid(STRANGER).pw_name
Give = Callable[[Path], Path]
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpudoctor.__main__ import main; sys.exit(main())"


def stranger() -> int:
    """The user id of somebody else; needs root, who can give files away."""
    return STRANGER if os.geteuid() == 0 else needs.missing("root")


def give(place: Path, uid: int = STRANGER) -> Path:
    """Have that file, or folder with all in it, belong to the stranger."""
    for path in (place, *(place.rglob("*") if place.is_dir() and not place.is_symlink() else ())):
        os.chown(path, uid, uid, follow_symlinks=False)
    return place


def program(
    words: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None, uid: int | None = None
) -> Ran:
    """The program of this repository in a process of its own, as it is installed: nothing of the working directory."""
    as_user = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    argv = [sys.executable, "-I", "-c", RUN, str(needs.REPOSITORY), *words]
    return finished(argv, env={**os.environ, **(env or {})}, cwd=cwd, **as_user)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can write to."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder

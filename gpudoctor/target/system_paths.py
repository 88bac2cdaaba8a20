"""Where this system keeps programs and interpreters. Paths are spelled with ``/``, which Windows takes as well."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from gpudoctor.core.texts import map_texts
from gpudoctor.target import System

T = TypeVar("T")
_DRIVE = re.compile(r"(?<![\\w/])[A-Za-z]:[/\\\\](?:[^\"'*<>|?,;:\n]|(?<=\w)'(?=\w))*")

if sys.platform == "win32":
    SYSTEM: System = "windows"
    PYTHONS = ("python", "python3", "py")
    """Names on PATH of the interpreter that is meant; ``py`` is the launcher, which starts the newest."""
    IN_ENVIRONMENT = ("Scripts/python.exe", "python.exe", "bin/python.exe")
    _ENDINGS = (".exe", ".com", ".bat", ".cmd", "")
else:
    SYSTEM: System = "linux"
    PYTHONS = ("python3",)
    """Names on PATH of the interpreter that is meant."""
    IN_ENVIRONMENT = ("bin/python", "python")
    _ENDINGS = ("",)

_LAUNCHER = re.compile(r"/pyw?\.exe\Z|\.(?:bat|cmd)\Z", re.I)
_STORE_ALIAS = re.compile(r"/Microsoft/WindowsApps/[^/]+\Z", re.I)


def spelled(path: str) -> str:
    """The path with ``/`` for each backslash on Windows; unchanged elsewhere."""
    return path.replace("\\", "/") if SYSTEM == "windows" else path


def with_native_paths(value: T) -> T:
    """A copy of a fact, rows or text in which paths that begin with a Windows drive (``C:/``) have backslashes."""
    return map_texts(value, lambda text, _: _DRIVE.sub(lambda path: path[0].replace("/", "\\"), text))


def working_folder() -> str:
    """The working folder of children: ``/``, on Windows %SYSTEMROOT%; nothing is imported or found by chance there."""
    return os.environ.get("SYSTEMROOT", "C:\\Windows") if SYSTEM == "windows" else "/"


def is_absolute(path: str) -> bool:
    """Whether the path, of a search list or a setting, is absolute on this system."""
    return os.path.isabs(path)  # noqa: PTH117 - a text


def is_path(program: str) -> bool:
    """Whether it has a separator (``/``, on Windows also a backslash or colon), so that it is not looked up on PATH."""
    return "/" in program or (SYSTEM == "windows" and ("\\" in program or ":" in program))


def interpreters(folder: str) -> Iterator[str]:
    """The paths at which an environment in `folder` may have its Python interpreter; not checked to exist."""
    return (f"{folder}/{place}" for place in IN_ENVIRONMENT)


def prefix_of(python: str) -> str:
    """The folder of the environment or installation of an interpreter, by its path alone: its parent's parent.

    On Windows its parent, unless that is called Scripts or bin.
    """
    folder, _, _ = python.rpartition("/")
    if SYSTEM == "windows" and folder.rpartition("/")[2].lower() not in ("scripts", "bin"):
        return folder
    return folder.rpartition("/")[0]


def search_list(text: str, system: System = SYSTEM) -> list[str]:
    """The absolute folders of a variable such as PATH, split at ``;`` for Windows as `system`, else at ``:``.

    Other entries are left out. Where this runs on Windows, backslashes become ``/``.
    """
    parts = text.split(";" if system == "windows" else ":")
    return [spelled(part) for part in parts if part.startswith("/") or is_absolute(part)]


def programs(folder: str, *programs: str, system: System = SYSTEM) -> Iterator[str]:
    """The paths by which a folder of PATH can hold those programs.

    On Windows, with each ending (.exe, .bat, ...), those that exist; elsewhere one path each, not checked.
    """
    if system != SYSTEM or SYSTEM != "windows":  # a record of another system, or a name without endings
        return (f"{folder}/{name}" for name in programs)
    files = [f"{name}{ending}" for name in programs for ending in _ENDINGS]
    try:
        names = _names_in(folder, os.stat(folder).st_mtime_ns)  # noqa: PTH116 - a text
    except PermissionError:  # what may not be listed may be entered
        names = frozenset(map(str.lower, files))
    except OSError:
        names = frozenset()
    return (f"{folder.rstrip('/')}/{file}" for file in files if file.lower() in names)


@lru_cache(maxsize=256)
def _names_in(folder: str, changed: int) -> frozenset[str]:  # noqa: ARG001 - a new one when something was added
    """The names in a folder in lower case, cached by its modification time `changed`; raises `OSError`."""
    return frozenset(map(str.lower, os.listdir(folder)))  # noqa: PTH208 - names, not paths


def find_program(name: str, folders: Iterable[str]) -> str | None:
    """Full path of the first executable of that name in these folders, in their order; None where none has it.

    Not `shutil.which`, which on Windows looks into the working folder first; and importing it costs as much as all
    reading of /proc.
    """
    candidates = (path for folder in folders for path in programs(folder, name))
    return next((path for path in candidates if is_program(path)), None)


def locate(program: str, environ: Mapping[str, str]) -> str | None:
    """Path of the program that a command names: itself if a path, else looked up on PATH; None if not executable."""
    if is_path(program):
        return program if is_program(program) else None
    return find_program(program, search_list(environ.get("PATH", os.defpath)))


def is_program(path: str) -> bool:
    """Whether the path is an executable file, by the rights of this process; no folder is."""
    return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112


def is_launcher(python: str) -> bool:
    """Whether the path is, by its name, a Windows launcher of interpreters: ``py.exe`` or a batch file (pyenv-win)."""
    return SYSTEM == "windows" and bool(_LAUNCHER.search(python))


def is_store_alias(path: str) -> bool:
    """Whether the path is the Microsoft Store's alias of no bytes, which may lead to no program; True where unreadable.

    ``python.exe`` in %LOCALAPPDATA%/Microsoft/WindowsApps comes with Windows, before any Python was installed.
    """
    if not _STORE_ALIAS.search(path):
        return False
    try:
        return os.lstat(path).st_size == 0
    except OSError:
        return True

"""This machine, or a tree that looks like one (`root`)."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from gpudoctor.model.errors import UsageError
from gpudoctor.target import Answer, Watch, rights
from gpudoctor.target.child import run_child
from gpudoctor.target.stream import Stream

_CHUNK = 1 << 16
"""Bytes read at a time: to ask for as many as a file may have has the C library make room for them all."""
START = 30.0
"""Seconds for an interpreter to start: from cold network storage it may take that long."""
_MOST_LINKS = 40
"""Links followed in one path before it is called a loop; Linux follows as many."""


class Local:
    """Answers from the file system under `root` and from processes of this machine."""

    def __init__(
        self,
        level: str = "standard",
        python: str | None = None,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> None:
        self.name = os.uname().nodename
        self.level = level
        self.wait = wait
        self.listener: Callable[[str, str], None] = lambda _source, _detail: None
        self._root = Path(root)
        self._whole = str(self._root) == "/"
        self._as_is = self._whole and type(self).path is Local.path
        self._environ = dict(os.environ if environ is None else environ)
        self._asked = None if python is None else self._interpreter(python)

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    @cached_property
    def python(self) -> str | None:
        """The one asked for, else of an active environment, else first on PATH, else our own; an absolute path."""
        if self._asked:
            return self._asked
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = self._environ.get(variable)
            if prefix and prefix.startswith("/") and _is_program(f"{prefix}/bin/python"):
                return _absolute(f"{prefix}/bin/python")
        found = self.which("python3")
        return _absolute(found) if found else sys.executable

    def _interpreter(self, asked: str) -> str:
        """Absolute path of the program that ``--python`` names: a path, a name on PATH, or an environment's folder.

        Links stay as they are: through its link in ``bin`` an interpreter knows its environment.
        """
        place = os.path.expanduser(asked)  # noqa: PTH111 - the shell leaves ~ in --python=~/x
        if "/" not in place:
            place = self.which(place) or place
        for path in (place, f"{place}/bin/python", f"{place}/python"):
            if _is_program(path):
                python = _absolute(path)
                if self._whole and (why := rights.refusal(python)):
                    raise UsageError(f"--python {asked}: {why}")
                return python
        what = "a folder without bin/python" if os.path.isdir(place) else "no such program"  # noqa: PTH112
        raise UsageError(f"--python {asked}: {what}; give the path of an interpreter, such as .venv/bin/python")

    def path(self, path: str) -> Path:
        """Under a root of its own a link to ``/usr/src/x`` means ``root/usr/src/x``, as it does for the patient."""
        if "\0" in path:  # Python calls it a ValueError; to whoever asks, it is a file that is not there
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return Path(path) if self._whole else self._inside(path)

    def _place(self, path: str) -> str | Path:
        """As `path`; of this machine itself without making one, which costs more than a small file's reading."""
        return path if self._as_is and "\0" not in path else self.path(path)

    def read(self, path: str, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        if not self._as_is:
            with self.path(path).open("rb") as file:
                return _pieces(file.read, limit)
        handle = os.open(self._place(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _pieces(partial(os.read, handle), limit)
        finally:
            os.close(handle)

    def listing(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._place(path)))  # noqa: PTH208 - names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return []
            raise

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._place(path))  # noqa: PTH116 - whether Path.exists hides a refusal depends on the Python
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return False
            raise
        return True

    def link(self, path: str) -> str:
        if self._whole:
            return os.path.realpath(path)
        return "/" + os.path.relpath(self._inside(path), self._root)

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(self.path(path))
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def modified(self, path: str) -> float:
        return os.stat(self.path(path)).st_mtime  # noqa: PTH116 - also where a probe is watched

    def which(self, program: str) -> str | None:
        """As `shutil.which`, whose import costs as much as all our reading of /proc; only in folders to be trusted."""
        places = (f"{folder}/{program}" for folder in self._search)
        found = (place for place in places if os.access(place, os.X_OK) and not os.path.isdir(place))  # noqa: PTH112
        return next(found, None)

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        whole, begins = self._begins(argv, env or {})
        return run_child(argv, timeout, whole, stdin, limit, silence, watch, **begins)

    def stream(self, argv: Sequence[str]) -> Stream:
        """Run a program that talks on and on; raises `OSError` where it cannot be started."""
        whole, begins = self._begins(argv, {})
        return Stream(argv, whole, **begins)

    def _begins(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        """The environment of a child and how it begins: the program by its full path, in no folder that it could load
        from, and as whom it may run. Raises `OSError` for what is not there or is not run.
        """
        program = argv[0] if "/" in argv[0] else Local.which(self, argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        owner = rights.owner(program)
        whole = owner.environ({**self._environ, **env}) if owner else {**self._closed, **env}
        if here := _working_folder():
            whole.setdefault("PYENV_DIR", here)  # which of its own Pythons pyenv's script starts may depend on it
        return whole, {"executable": program, "cwd": "/", **(owner.begins() if owner else {})}

    @cached_property
    def _search(self) -> list[str]:
        return [folder for folder in rights.search(self._environ.get("PATH", os.defpath)).split(":") if folder]

    @cached_property
    def _closed(self) -> dict[str, str]:
        return rights.closed(self._environ)

    def _inside(self, path: str) -> Path:
        """Where `path` really is under the root, links followed as in a chroot."""
        done: list[str] = []
        rest = [part for part in reversed(path.split("/")) if part]
        links = 0
        while rest:
            part = rest.pop()
            if part == "..":
                done[-1:] = []
            elif part != ".":
                here = self._root.joinpath(*done, part)
                if not os.path.islink(here):  # noqa: PTH114 - Path.is_symlink raises for a name too long to be one
                    done.append(part)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                goal = os.readlink(here)  # noqa: PTH115 - text, not a path of ours
                done = [] if goal.startswith("/") else done
                rest.extend(part for part in reversed(goal.split("/")) if part)
        return self._root.joinpath(*done)

    def verify(self) -> None:
        """Refuse a `python` that was asked for and is no Python; its answer is waited for while the probes work."""
        if self._asked is None or _of_an_environment(self._asked):
            return
        argv = [self._asked, "-E", "-S", "-c", "import sys; print('Python %d.%d' % sys.version_info[:2])"]
        try:
            answer = Local.run(self, argv, START)
        except OSError as error:
            raise UsageError(f"--python {self._asked}: it cannot be started: {error.strerror or error}") from None
        version = re.search(r"Python (\d+)\.(\d+)\s*$", answer.out)  # a wrapper may print a greeting first
        if version and (int(version[1]), int(version[2])) >= (3, 6):
            return
        if answer.status is None:
            raise UsageError(f"--python {self._asked}: it does not start ({answer.how})")
        what = version[0].strip() if version else answer.how
        raise UsageError(f"--python {self._asked}: not a Python interpreter 3.6 or newer ({what})")


def _pieces(read: Callable[[int], bytes], limit: int) -> bytes:
    """All that `read` gives, up to `limit` bytes."""
    parts = []
    while limit > 0 and (part := read(min(limit, _CHUNK))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112


def _absolute(path: str) -> str:
    """The path from the root, links kept; raises `UsageError` where the working folder is gone."""
    try:
        whole = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118
    except FileNotFoundError:
        if not path.startswith("/"):
            raise UsageError(f"{path}: the working folder is gone; give a path that begins with /") from None
        return path
    return whole if ".." in whole.split("/") else os.path.normpath(whole)  # behind a link .. leads elsewhere


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return ""


def _of_an_environment(python: str) -> bool:
    """Whether that is the interpreter of a virtual environment, which need not be run to be known for one."""
    folder, name = os.path.split(python)
    return name.startswith(("python", "pypy")) and os.path.isfile(f"{folder}/../pyvenv.cfg")  # noqa: PTH113

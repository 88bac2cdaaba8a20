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

from gpudoctor.core import system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.target import Answer, System, Watch, rights, system_paths
from gpudoctor.target.child import Stream, run_child

_CHUNK_BYTES = 1 << 16
"""Bytes read at a time: to ask for as many as a file may have has the C library make room for them all."""
START_SECONDS = 30.0
"""Seconds for an interpreter to start: from cold network storage it may take that long."""
_EXECUTABLE = "import os,sys;os.write(1,sys.executable.encode())"
"""Prints the interpreter's path; without a sign of which cmd.exe makes anything."""
_MOST_LINKS = 40
"""Links followed in one path before it is called a loop; Linux follows as many."""


class Local:
    """Answers from the file system under `root` and from processes of this machine.

    `python` is what ``--python`` names (None: find one); `wait` is the seconds that GPUs may take to wake. Raises
    `UsageError` where `python` is no program.
    """

    def __init__(
        self,
        level: str = "standard",
        python: str | None = None,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> None:
        self.name = system.node_name()
        self.level = level
        self.wait = wait
        self.listener: Callable[[str, str], None] = lambda _source, _detail: None
        self._root = Path(root)
        self._is_system_root = root == "/"
        self.system: System = system_paths.SYSTEM if self._is_system_root else "linux"
        self._paths_are_native = self._is_system_root and type(self).path is Local.path
        self._environ = dict(os.environ if environ is None else environ)
        self._requested_python = None if python is None else self._interpreter(python)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables of the session being diagnosed."""
        return self._environ

    @cached_property
    def python(self) -> str | None:
        """The interpreter requested, else of VIRTUAL_ENV, else of CONDA_PREFIX, else python3 on PATH, else our own."""
        if self._requested_python:
            return self._requested_python
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = self._environ.get(variable)
            if prefix and system_paths.is_absolute(prefix):
                candidates = system_paths.interpreters(system_paths.spelled(prefix))
                python = next(filter(system_paths.is_program, candidates), None)
                if python:
                    return _absolute(python)
        on_path = list(filter(None, map(self.which, system_paths.PYTHONS)))
        program = next((path for path in on_path if not system_paths.is_store_alias(path)), None)
        return self._behind_launcher(_absolute(program)) if program else system_paths.spelled(sys.executable)

    def _interpreter(self, requested: str) -> str:
        """Absolute path of the program that ``--python`` names: a path, a name on PATH, or an environment's folder.

        Symbolic links are kept: through its link in ``bin`` an interpreter finds its environment. Raises `UsageError`
        for no program, or one that root must not run.
        """
        candidate = os.path.expanduser(requested)  # noqa: PTH111 - the shell leaves ~ in --python=~/x
        if not system_paths.is_path(candidate):
            candidate = self.which(candidate) or candidate
        candidate = system_paths.spelled(candidate)
        for path in (candidate, *system_paths.interpreters(candidate)):
            if system_paths.is_program(path):
                python = _absolute(path)
                if self._is_system_root and (why := rights.refusal(python)):
                    raise UsageError(say("--python {path}: {why}", path=requested, why=why))
                return self._behind_launcher(python)
        none = "a folder without {name}" if os.path.isdir(candidate) else "no such program"  # noqa: PTH112
        what = say(none, name=system_paths.IN_ENVIRONMENT[0])
        raise UsageError(
            say(
                "--python {path}: {what}; give the path of an interpreter, such as .venv/bin/python",
                path=requested,
                what=what,
            )
        )

    def _behind_launcher(self, python: str) -> str:
        """The interpreter that a launcher of Windows (``py.exe``, a batch file) starts, which is run for that.

        Any other path unchanged. A launcher lies in no environment, so that its place tells nothing. Raises
        `UsageError` where it starts none.
        """
        if not system_paths.is_launcher(python):
            return python
        answer = run_child([python, "-I", "-c", _EXECUTABLE], START_SECONDS, self._environ)
        found = answer.out.strip()
        if not answer.ok or not system_paths.is_program(found):
            raise UsageError(
                say(
                    "{python} starts no Python: {complaint}; name one with --python",
                    python=python,
                    complaint=answer.complaint or answer.how,
                )
            )
        return system_paths.spelled(found)

    def path(self, path: str) -> Path:
        """The path to open here; under another root, links lead inside that, as in a chroot.

        Raises `FileNotFoundError` for a path with a null byte.
        """
        if "\0" in path:  # Python calls it a ValueError; to whoever asks, it is a file that is not there
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return Path(path) if self._is_system_root else self._inside(path)

    def _openable(self, path: str) -> str | Path:
        """What to open for that path: as `path` gives, but the text itself for this machine's own root.

        Making a Path costs more than a small read.
        """
        return path if self._paths_are_native and "\0" not in path else self.path(path)

    def read(self, path: str, limit: int = 1 << 20) -> str:
        """The file's first `limit` bytes as text; bytes that are not UTF-8 are replaced. Raises `OSError`."""
        return self.read_bytes(path, limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        """The file's first `limit` bytes. Raises `OSError`."""
        if not self._paths_are_native:
            with self.path(path).open("rb") as file:
                return _read_up_to(file.read, limit)
        handle = os.open(self._openable(path), system.READ)
        try:
            return _read_up_to(partial(os.read, handle), limit)
        finally:
            os.close(handle)

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty for a missing folder, a file, or a name too long to exist.

        Raises `OSError` where it may not be listed.
        """
        try:
            return sorted(os.listdir(self._openable(path)))  # noqa: PTH208 - names, not paths
        except OSError as error:
            if error.errno in system.NO_SUCH_PATH:
                return []
            raise

    def exists(self, path: str) -> bool:
        """Whether the path exists, links followed; raises `OSError` where it may not be looked at."""
        try:
            os.stat(self._openable(path))  # noqa: PTH116 - whether Path.exists hides a refusal depends on the Python
        except OSError as error:
            if error.errno in system.NO_SUCH_PATH:
                return False
            raise
        return True

    def link(self, path: str) -> str:
        """The path with all symbolic links resolved inside the root; it need not exist.

        A loop raises `OSError` under another root than ``/``.
        """
        if self._is_system_root:
            return system_paths.spelled(os.path.realpath(path))
        return "/" + os.path.relpath(self._inside(path), self._root)

    def space(self, path: str) -> tuple[int, int]:
        """Total bytes, and free bytes for an unprivileged user, of the file system that holds `path`."""
        return system.disk_space(self.path(path))

    def inodes(self, path: str) -> tuple[int, int]:
        """Total and free inodes of the file system that holds `path`; (0, 0) where their number is not fixed."""
        return system.inodes(self.path(path))

    def modified(self, path: str) -> float:
        """Modification time in seconds since 1970; raises `OSError` where there is no such path."""
        return os.stat(self.path(path)).st_mtime  # noqa: PTH116 - also where a probe is watched

    def which(self, program: str) -> str | None:
        """Full path of the program on PATH, looked for only in trusted folders; None where there is none."""
        return system_paths.find_program(program, self._search_folders)

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
        """The `Answer` of a program run on this machine with the trusted environment and `env`; see `Target.run`.

        Raises `OSError`.
        """
        variables, popen_options = self._start_options(argv, env or {})
        return run_child(argv, timeout, variables, stdin, limit, silence, watch, **popen_options)

    def stream(self, argv: Sequence[str]) -> Stream:
        """Start a long-running program with the trusted environment; raises `OSError` where it cannot be started."""
        variables, popen_options = self._start_options(argv, {})
        return Stream(argv, variables, **popen_options)

    def _start_options(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        """(environment, `Popen` options) of a child: the program's full path, ``/`` as folder, the user to run it as.

        The environment is the trusted one, or that of the program's owner, with `env` and PYENV_DIR added. Raises
        `FileNotFoundError` for a program that is not on PATH and `PermissionError` for one that root must not run.
        """
        program = argv[0] if system_paths.is_path(argv[0]) else Local.which(self, argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        owner = rights.owner(program)
        variables = owner.environ({**self._environ, **env}) if owner else {**self._trusted_environ, **env}
        if working_folder := _working_folder():  # by which pyenv's script may choose the Python that it starts
            variables.setdefault("PYENV_DIR", working_folder)
        return variables, {
            "executable": program,
            "cwd": system_paths.working_folder(),
            **(owner.popen_options() if owner else {}),
        }

    @cached_property
    def _search_folders(self) -> list[str]:
        """The folders of PATH that programs are looked for in, without those that root must not trust."""
        return [
            system_paths.spelled(folder)
            for folder in rights.trusted_search_path(self._environ.get("PATH", os.defpath)).split(os.pathsep)
            if folder
        ]

    @cached_property
    def _trusted_environ(self) -> dict[str, str]:
        """The session's variables without those by which another user could change what root runs; cached."""
        return rights.trusted_environ(self._environ)

    def _inside(self, path: str) -> Path:
        """Where the target's `path` lies under the root, links resolved as in a chroot; raises `OSError` for a loop."""
        resolved: list[str] = []
        pending = [part for part in reversed(path.split("/")) if part]
        links_followed = 0
        while pending:
            part = pending.pop()
            if part == "..":
                resolved[-1:] = []
            elif part != ".":
                name, link_target = self._entry(resolved, part)
                if not link_target:
                    resolved.append(name)
                    continue
                links_followed += 1
                if links_followed > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                resolved = [] if link_target.startswith("/") else resolved
                pending.extend(part for part in reversed(link_target.split("/")) if part)
        return self._root.joinpath(*resolved)

    def _entry(self, folder: Sequence[str], name: str) -> tuple[str, str]:
        """The name under the root of an entry of that folder, and its target if it is a symbolic link, else empty."""
        place = self._root.joinpath(*folder, name)
        is_link = os.path.islink(place)  # noqa: PTH114 - Path.is_symlink raises for a name too long to be one
        return name, os.readlink(place) if is_link else ""  # noqa: PTH115 - text, not a path of ours

    def verify(self) -> None:
        """Start the Python given by ``--python``; raises `UsageError` where it is no Python 3.6 or newer.

        Nothing is started where none was given or it belongs to a virtual environment.
        """
        if self._requested_python is None or _is_in_virtual_environment(self._requested_python):
            return
        argv = [self._requested_python, "-E", "-S", "-c", "import sys; print('Python %d.%d' % sys.version_info[:2])"]
        try:
            answer = Local.run(self, argv, START_SECONDS)
        except OSError as error:
            raise UsageError(
                say(
                    "--python {path}: it cannot be started: {why}",
                    path=self._requested_python,
                    why=error.strerror or error,
                )
            ) from None
        version = re.search(r"Python (\d+)\.(\d+)\s*$", answer.out)  # a wrapper may print a greeting first
        if version and (int(version[1]), int(version[2])) >= (3, 6):
            return
        if answer.status is None:
            raise UsageError(
                say(
                    "--python {path}: it does not start ({how})",
                    path=self._requested_python,
                    how=answer.how,
                )
            )
        what = version[0].strip() if version else answer.how
        raise UsageError(
            say(
                "--python {path}: not a Python interpreter 3.6 or newer ({what})",
                path=self._requested_python,
                what=what,
            )
        )


def _read_up_to(read: Callable[[int], bytes], limit: int) -> bytes:
    """All bytes that repeated calls of `read(size)` give, up to `limit` or an empty answer."""
    parts = []
    while limit > 0 and (part := read(min(limit, _CHUNK_BYTES))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _absolute(path: str) -> str:
    """The path made absolute and normalised, links kept, ``..`` left as it is.

    Raises `UsageError` where it is relative and the working folder is gone.
    """
    folder = _working_folder()
    if not folder and not system_paths.is_absolute(path):
        raise UsageError(say("{path}: the working folder is gone; give a path that begins with /", path=path))
    absolute = system_paths.spelled(os.path.join(folder, path))  # noqa: PTH118
    if ".." in absolute.split("/"):  # behind a link .. leads elsewhere
        return absolute
    return system_paths.spelled(os.path.normpath(absolute))


def _working_folder() -> str:
    """The current working folder; empty where it has been deleted."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return ""


def _is_in_virtual_environment(python: str) -> bool:
    """Whether a path, by name an interpreter's, has a ``pyvenv.cfg`` in the folder above its own."""
    folder, name = os.path.split(python)
    return name.startswith(("python", "pypy")) and os.path.isfile(f"{folder}/../pyvenv.cfg")  # noqa: PTH113

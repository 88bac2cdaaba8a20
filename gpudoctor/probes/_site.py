"""Where the target interpreter finds its packages: read from files where they settle it, else asked of it.

A virtual environment and a conda environment are settled by their own files (``pyvenv.cfg``, ``conda-meta``), which
takes a millisecond. A system interpreter decides by its build (dist-packages, user site, ``.pth`` files), so it is
asked in a child process, once for all probes of a target.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.target import Target, system_paths

Answer = TypeVar("Answer")

_CHILD = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json, site
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "implementation": sys.implementation.name,
    "prefix": sys.prefix, "base": sys.base_prefix, "path": sys.path,
    "sites": getattr(site, "getsitepackages", lambda: [])(),
    "user": site.getusersitepackages() if site.ENABLE_USER_SITE else ""}))
"""


@frozen
class Site:
    """An interpreter and its package folders, in the order of its ``sys.path``; `user` is one of them, or empty.

    `python` is the interpreter itself where the target's is a script that starts it, such as pyenv's.
    """

    python: str
    version: str
    implementation: str
    environment: str
    prefix: str
    base: str
    folders: tuple[str, ...]
    user: str
    source: str

    @property
    def minor(self) -> str:
        """The interpreter's major and minor version: ``3.12``."""
        return ".".join(self.version.split(".")[:2])


def site_of(target: Target) -> Site | Absent | Unread:
    """The target interpreter and its package folders, worked out once per target.

    Absent if there is no interpreter, unread if its files may not be read or it does not run.
    """
    return once_per_target(target, "site", lambda: _find_site(target))


_answers: WeakKeyDictionary[Target, dict[str, object]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Target, threading.RLock] = WeakKeyDictionary()
_guard = threading.Lock()


def once_per_target(target: Target, key: str, find: Callable[[], Answer]) -> Answer:
    """The result of `find()`, called once per target and `key`, also if several threads ask at the same time."""
    with _guard:
        lock = _locks.setdefault(target, threading.RLock())
    with lock:
        answers = _answers.setdefault(target, {})
        if key not in answers:
            answers[key] = find()
        return answers[key]  # type: ignore[return-value]


def _find_site(target: Target) -> Site | Absent | Unread:
    """The site by pyvenv.cfg or conda-meta, else by asking the interpreter.

    Absent without an interpreter; unread if its files may not be read or it does not answer.
    """
    python = target.python
    if not python:
        return Absent("there is no Python interpreter")
    prefix = system_paths.prefix_of(python)
    try:
        settings = pyvenv(target, prefix)
        if settings is not None and settings.get("include-system-site-packages", "false").lower() != "true":
            found = _venv_site(target, python, prefix, settings)
        elif settings is None and target.exists(f"{prefix}/conda-meta"):
            found = _conda_site(target, python, prefix)
        else:
            found = None
    except OSError as error:
        return Unread(f"the environment of {python} could not be read: {error}")
    return found or _ask_interpreter(target, python)


def pyvenv(target: Target, prefix: str) -> dict[str, str] | None:
    """The settings in the `prefix`'s ``pyvenv.cfg``, keys in lower case; None without one. Raises `OSError`."""
    try:
        text = target.read(f"{prefix}/pyvenv.cfg")
    except (FileNotFoundError, NotADirectoryError):
        return None
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs if value}


def _venv_site(target: Target, python: str, prefix: str, settings: dict[str, str]) -> Site | None:
    """The site of a virtual environment, by its pyvenv.cfg (`settings`); None if it was made for another Python."""
    match = re.match(r"\d+\.\d+(\.\d+)?", settings.get("version") or settings.get("version_info", ""))
    minor = _minor(target, python, prefix)
    if not minor or not match or not match[0].startswith(f"{minor}."):
        return None  # made for another Python than is behind it now: let it speak for itself
    home = settings.get("home", "")
    return Site(
        python,
        match[0],
        settings.get("implementation", "cpython").lower(),
        "venv",
        prefix,
        home.rpartition("/")[0],
        tuple(_folders_with_pth(target, _pythonpath_folders(target), [f"{prefix}/lib/python{minor}/site-packages"])),
        "",
        f"{prefix}/pyvenv.cfg",
    )


def _conda_site(target: Target, python: str, prefix: str) -> Site | None:
    """The site of a conda environment; None if its Python version is not clear. Raises `OSError`."""
    versions = [
        match[1] for name in target.listing(f"{prefix}/conda-meta") if (match := re.match(r"python-(\d[\d.]*)-", name))
    ]
    minor = _minor(target, python, prefix)
    if len(versions) != 1 or not minor or not versions[0].startswith(f"{minor}."):
        return None
    user = _user_site(target, minor)
    sites = [*filter(None, (user,)), f"{prefix}/lib/python{minor}/site-packages"]
    folders = tuple(_folders_with_pth(target, _pythonpath_folders(target), sites))
    return Site(python, versions[0], "cpython", "conda", prefix, prefix, folders, user, f"{prefix}/conda-meta")


def _minor(target: Target, python: str, prefix: str) -> str | None:
    """The environment's Python version, ``3.12``: by the file that `python` links to, else by the only library folder.

    None if unclear, or without site-packages.
    """
    found = [name[6:] for name in target.listing(f"{prefix}/lib") if re.fullmatch(r"python3\.\d+", name)]
    with_site = [minor for minor in found if target.exists(f"{prefix}/lib/python{minor}/site-packages")]
    behind = re.search(r"/python(3\.\d+)$", target.link(python))
    if behind:
        return behind[1] if behind[1] in with_site else None
    return with_site[0] if len(with_site) == 1 else None


def _user_site(target: Target, minor: str) -> str:
    """The user's package folder for that Python version; empty if it does not exist or is switched off."""
    environ = target.environ
    base = environ.get("PYTHONUSERBASE") or (f"{environ['HOME']}/.local" if environ.get("HOME") else "")
    folder = f"{base}/lib/python{minor}/site-packages"
    return folder if base and not environ.get("PYTHONNOUSERSITE") and target.exists(folder) else ""


def _pythonpath_folders(target: Target) -> list[str]:
    """The absolute folders of the session's PYTHONPATH, in order."""
    return system_paths.search_list(target.environ.get("PYTHONPATH", ""), target.system)


def _folders_with_pth(target: Target, front: list[str], sites: list[str]) -> Iterator[str]:
    """Yields `front`, then each of `sites` followed by the folders that its ``.pth`` files add; each once."""
    seen: set[str] = set()
    for folder in (*front, *sites):
        added = _pth_folders(target, folder) if folder in sites else []
        for path in (folder, *added):
            if path not in seen:
                seen.add(path)
                yield path


def _pth_folders(target: Target, folder: str) -> list[str]:
    """The existing paths that a package folder's ``.pth`` files add; lines of code (``import ...``) are skipped.

    Files that cannot be read are passed over.
    """
    paths: list[str] = []
    try:
        names = target.listing(folder)
    except OSError:
        return []  # the interpreter's site module passes over it too
    for name in names:
        if not name.endswith(".pth") or name.startswith("."):
            continue
        try:
            lines = target.read(f"{folder}/{name}", 1 << 16).splitlines()
        except OSError:
            continue
        for line in lines:
            entry = line.strip()
            if entry and not entry.startswith(("#", "import ", "import\t")):
                path = system_paths.spelled(entry) if system_paths.is_absolute(entry) else f"{folder}/{entry}"
                if target.exists(path):
                    paths.append(path)
    return paths


def _real_interpreter(target: Target, python: str) -> str:
    """The interpreter that a script such as pyenv's starts; `python` itself if it is no script or fails."""
    try:
        if target.read_bytes(python, 2) != b"#!":
            return python
        answer = target.run([python, "-c", "import sys; print(sys.executable)"], 6.0)
    except OSError:
        return python
    path = system_paths.spelled(answer.out.strip().rpartition("\n")[2])
    return path if system_paths.is_absolute(path) else python


def _ask_interpreter(target: Target, python: str) -> Site | Unread:
    """The site as the interpreter itself reports it, run in a child; unread if it fails or prints something else."""
    try:
        answer = target.run([python, "-c", _CHILD], 6.0)
        reply = json.loads(answer.out.strip().rpartition("\n")[2])
        version = str(reply["version"])
        prefix, base, user = (system_paths.spelled(str(reply[name] or "")) for name in ("prefix", "base", "user"))
        own = {*(system_paths.spelled(str(site)) for site in reply["sites"]), user}
        library = f"/python{version.rpartition('.')[0]}"
        paths = [system_paths.spelled(str(path)) for path in reply["path"]]
        folders = [path for path in paths if not path.endswith((".zip", library, "/lib-dynload"))]
    except OSError as error:
        return Unread(f"{python} could not be started: {error.strerror or error}")
    except (ValueError, KeyError, TypeError):
        complaint = answer.complaint or "it printed nothing"
        why = f"{python} did not say where its packages are ({answer.how}): {complaint[:120]}"
        return Unread(why, reason=answer.reason)
    kind = "venv" if prefix != base else "conda" if target.exists(f"{prefix}/conda-meta") else "system"
    folders += [path for path in own if path and path not in folders and path != user and target.exists(path)]
    source = f"{python} -c 'import sys, site'"
    return Site(
        _real_interpreter(target, python),
        version,
        str(reply["implementation"]),
        kind,
        prefix,
        base,
        tuple(folders),
        user if user in folders else "",
        source,
    )

"""With whose rights programs of this machine are run: root runs nothing that another user can change.

What root finds on PATH, in an environment or by a variable may be another user's. Such a program is not run, unless
whoever called gpudoctor said so: ``--as-owner`` has it run as the user whom it belongs to, ``--trust-python`` as root.
Whoever is not root has lent nobody more than what is already theirs: nothing is checked then.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpudoctor.core import files, shipped, system
from gpudoctor.target.proc import names

Consent = Literal["", "as owner", "trust"]
consent: Consent = ""
"""What was said of another user's Python; app.cli sets it, for the whole process."""

_LOADED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "HOME")
"""Variables that decide what a child loads: that they are not heeded is said."""
_CUSTOM = (".pth", "sitecustomize.py", "usercustomize.py")
_OF_A_SESSION = re.compile(r"XDG_\w+|SUDO_\w+|TMPDIR|MAIL|PWD|OLDPWD|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK")


class Owner(NamedTuple):
    """The user that a program belongs to and as whom it is run; `name` is empty where the machine has no such user."""

    uid: int
    gid: int
    name: str
    home: str

    def popen_options(self) -> Mapping[str, Any]:
        """The options of `subprocess.Popen` that run a program as this user: user, group, extra_groups."""
        groups = system.groups_of(self.name, self.gid) if self.name else []
        return {"user": self.uid, "group": self.gid, "extra_groups": groups}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Those variables with HOME, USER and LOGNAME of this user, without a session's (XDG_*, SUDO_*, PWD, ...)."""
        variables = {name: value for name, value in environ.items() if not _OF_A_SESSION.fullmatch(name)}
        return {**variables, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def consent_options() -> list[str]:
    """The option that gives a started gpudoctor the same consent: [--as-owner], [--trust-python] or empty."""
    return {"as owner": ["--as-owner"], "trust": ["--trust-python"], "": []}[consent]


def refusal(program: str) -> str:
    """Why root must not run that program, in words that name the option which allows it; empty where it may be run.

    Always empty where we are not root or `consent` is ``trust``. With ``as owner`` another user's program is refused
    only where that user cannot trust or run it.
    """
    doubt = _doubt_of_program(program, 0) if system.is_root() and not _is_own_interpreter(program) else None
    if doubt is None or consent == "trust":
        return ""
    if consent == "as owner" and doubt.owned:
        owners_doubt = _doubt_of_program(program, doubt.uid)
        if owners_doubt is None:
            return _unreadable(doubt.uid)
        return f"{owners_doubt}: not even its owner can trust it; --trust-python runs it as root"
    as_owner = f"--as-owner runs it as {doubt.whose}, " if doubt.owned else ""
    return f"{doubt}, and it would run as root: {as_owner}--trust-python runs it as root"


def is_foreign(program: str) -> bool:
    """Whether root must not run that program, or must run it as another user; False where we are not root."""
    return bool(refusal(program)) or owner(program) is not None


def owner(program: str) -> Owner | None:
    """The user as whom root runs that program; None for the current user. Raises `PermissionError` if refused."""
    if why := refusal(program):
        raise PermissionError(errno.EPERM, why)
    if consent != "as owner" or not system.is_root() or _is_own_interpreter(program):
        return None
    doubt = _doubt_of_program(program, 0)
    return None if doubt is None else _user_of(doubt.uid)


def trusted_search_path(search_path: str) -> str:
    """PATH without relative folders, and for root without folders that another user can change (with a warning)."""
    folders = [folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117
    return os.pathsep.join(folder for folder in folders if not system.is_root() or not _doubt_of_folder(folder, "PATH"))


def trusted_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child: PATH by `trusted_search_path`; for root nothing that another user can change.

    A variable that names such a file or folder is left out (HOME becomes root's own); of a list of folders, only those
    folders are. With the consent ``trust`` only PATH is changed.
    """
    trusted = dict(environ)
    if "PATH" in trusted:
        trusted["PATH"] = trusted_search_path(trusted["PATH"])
    if not system.is_root() or consent == "trust":
        return trusted
    for name, value in environ.items():
        if name == "PATH" or "/" not in value:
            continue
        parts = re.split(r"[:\s]" if name == "LD_PRELOAD" else ":", value)
        allowed = [part for part in parts if not part.startswith("/") or not _doubt_of_folder(part, name)]
        if name in _LOADED:
            allowed = [
                part for part in allowed if part.startswith("/") or (name == "LD_PRELOAD" and "/" not in part and part)
            ]
        if allowed:
            trusted[name] = ":".join(allowed) if allowed != parts else value
        else:
            del trusted[name]
    if "HOME" not in trusted and "HOME" in environ:
        trusted["HOME"] = _user_of(0).home
    return trusted


def _doubt_of_folder(path: str, variable: str) -> files.Doubt | None:
    """Who else could change the path that a variable names (in TMPDIR: a new file there); None for nobody.

    Warns, once, where the variable decides what a child loads.
    """
    doubt = files.doubt(f"{path}/new" if variable == "TMPDIR" else path)
    if doubt and variable in _LOADED and (variable == "HOME" or os.path.exists(path)):  # noqa: PTH110
        files.warn_once(f"{variable}: {doubt}: not used for what root runs")
    return doubt


def _doubt_of_program(program: str, uid: int) -> files.Doubt | None:
    """Who but `uid` and root could change the program, its folders, or what an interpreter loads at start; None for
    nobody.
    """
    if doubt := files.doubt(program, uid):
        return doubt
    return next((doubt for path in _files_loaded(program) if (doubt := files.doubt(path, uid))), None)


def _files_loaded(program: str) -> Iterator[str]:
    """Paths that a Python interpreter loads at start: pyvenv.cfg, libraries, site-packages, .pth files.

    By the program's path and by what it links to; nothing where its name is not a Python's.
    """
    if not _is_python(program):
        return
    for prefix in dict.fromkeys(str(Path(path).parent.parent) for path in (program, os.path.realpath(program))):
        yield f"{prefix}/pyvenv.cfg"
        for library in ("lib", "lib64", "local/lib"):
            for folder in names(f"{prefix}/{library}"):
                if re.fullmatch(r"python3[.\d]*t?", folder):
                    yield (library_folder := f"{prefix}/{library}/{folder}")
                    for site in (f"{library_folder}/site-packages", f"{library_folder}/dist-packages"):
                        yield site
                        yield from (f"{site}/{name}" for name in names(site) if name.endswith(_CUSTOM))


def _is_python(program: str) -> bool:
    """Whether the program's name begins with python or pypy."""
    return os.path.basename(program).startswith(("python", "pypy"))  # noqa: PTH119


def _is_own_interpreter(program: str) -> bool:
    """Whether it is `sys.executable` or a python of its environment, by the path as text: no link is followed."""
    same = os.path.dirname(os.path.dirname(program)) == sys.prefix  # noqa: PTH120
    return program == sys.executable or (same and _is_python(program))


def _user_of(uid: int) -> Owner:
    """The user with that id; one without name and groups, at home in ``/``, where the machine does not know it."""
    try:
        user = system.account(uid)
    except KeyError:  # nobody whom this machine knows: it has no groups
        return Owner(uid, uid, "", "/")
    return Owner(uid, user.gid, user.name, user.home)


def _unreadable(uid: int) -> str:
    """Why that user cannot run our child programs: the folder of ours that it may not enter; empty where it can."""
    folder = str(shipped.folder("probes")) if not shipped.ARCHIVE else "/"
    while folder != "/":
        state = os.stat(folder)  # noqa: PTH116
        if not state.st_mode & 0o001 and state.st_uid != uid:
            name = files.user_name(uid)
            return (
                f"user {name} may not read gpudoctor's files in {folder}:"
                f" install it where {name} may, or --trust-python"
            )
        folder = os.path.dirname(folder)  # noqa: PTH120
    return ""

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

from gpudoctor import shipped, trusted

Consent = Literal["", "as owner", "trust"]
consent: Consent = ""
"""What was said of another user's Python; the front door sets it, for the whole process."""

_LOADED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "HOME")
"""Variables that decide what a child loads: that they are not heeded is said."""
_CUSTOM = (".pth", "sitecustomize.py", "usercustomize.py")
_OF_A_SESSION = re.compile(r"XDG_\w+|SUDO_\w+|TMPDIR|MAIL|PWD|OLDPWD|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK")


class Owner(NamedTuple):
    """A user whom a program belongs to, as whom it is run."""

    uid: int
    gid: int
    name: str
    home: str

    def begins(self) -> Mapping[str, Any]:
        """What `subprocess.Popen` is given."""
        groups = os.getgrouplist(self.name, self.gid) if self.name else []
        return {"user": self.uid, "group": self.gid, "extra_groups": groups}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """That environment as this user's own."""
        kept = {name: value for name, value in environ.items() if not _OF_A_SESSION.fullmatch(name)}
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def words() -> list[str]:
    """The options by which a gpudoctor that this one starts is told the same."""
    return {"as owner": ["--as-owner"], "trust": ["--trust-python"], "": []}[consent]


def refusal(program: str) -> str:
    """Why root does not run that program, and what to type; empty where it may be run."""
    found = _doubt(program, 0) if os.geteuid() == 0 and not _ours(program) else None
    if found is None or consent == "trust":
        return ""
    if consent == "as owner" and found.owned:
        other = _doubt(program, found.uid)
        if other is None:
            return _unreadable(found.uid)
        return f"{other}: not even its owner can trust it; --trust-python runs it as root"
    as_owner = f"--as-owner runs it as {found.whose}, " if found.owned else ""
    return f"{found}, and it would run as root: {as_owner}--trust-python runs it as root"


def foreign(program: str) -> bool:
    """Whether root is not to run that program, or not as root."""
    return bool(refusal(program)) or owner(program) is not None


def owner(program: str) -> Owner | None:
    """As whom it is run, where it is not as ourselves; raises `PermissionError` for what is not run."""
    if why := refusal(program):
        raise PermissionError(errno.EPERM, why)
    if consent != "as owner" or os.geteuid() != 0 or _ours(program):
        return None
    found = _doubt(program, 0)
    return None if found is None else _user(found.uid)


def search(path: str) -> str:
    """A search path as programs are looked for in it: not in the working directory, and by root in nobody's folder."""
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    return ":".join(folder for folder in folders if os.geteuid() != 0 or not _said(folder, "PATH"))


def closed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child: as it is, with PATH as we look through it; for root without what others can change.

    A variable that names such a file or folder is left out; of several folders, those are.
    """
    given = dict(environ)
    if "PATH" in given:
        given["PATH"] = search(given["PATH"])
    if os.geteuid() != 0 or consent == "trust":
        return given
    for name, value in environ.items():
        if name == "PATH" or "/" not in value:
            continue
        parts = re.split(r"[:\s]" if name == "LD_PRELOAD" else ":", value)
        kept = [part for part in parts if not part.startswith("/") or not _said(part, name)]
        if name in _LOADED:
            kept = [
                part for part in kept if part.startswith("/") or (name == "LD_PRELOAD" and "/" not in part and part)
            ]
        if kept:
            given[name] = ":".join(kept) if kept != parts else value
        else:
            del given[name]
    if "HOME" not in given and "HOME" in environ:
        given["HOME"] = _user(0).home
    return given


def _said(place: str, name: str) -> trusted.Doubt | None:
    found = trusted.doubt(f"{place}/new" if name == "TMPDIR" else place)
    if found and name in _LOADED and (name == "HOME" or os.path.exists(place)):  # noqa: PTH110
        trusted.say(f"{name}: {found}: not used for what root runs")
    return found


def _doubt(program: str, uid: int) -> trusted.Doubt | None:
    """Who else could change what runs: the file, its folders, and of an interpreter what it loads when it starts."""
    if found := trusted.doubt(program, uid):
        return found
    return next((found for place in _loads(program) if (found := trusted.doubt(place, uid))), None)


def _loads(program: str) -> Iterator[str]:
    if not _is_python(program):
        return
    for prefix in dict.fromkeys(str(Path(place).parent.parent) for place in (program, os.path.realpath(program))):
        yield f"{prefix}/pyvenv.cfg"
        for library in ("lib", "lib64", "local/lib"):
            for folder in _names(f"{prefix}/{library}"):
                if re.fullmatch(r"python3[.\d]*t?", folder):
                    yield (whole := f"{prefix}/{library}/{folder}")
                    for site in (f"{whole}/site-packages", f"{whole}/dist-packages"):
                        yield site
                        yield from (f"{site}/{name}" for name in _names(site) if name.endswith(_CUSTOM))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _is_python(program: str) -> bool:
    return os.path.basename(program).startswith(("python", "pypy"))  # noqa: PTH119


def _ours(program: str) -> bool:
    """Whether it is the interpreter that runs us already, or one of the same environment."""
    same = os.path.dirname(os.path.dirname(program)) == sys.prefix  # noqa: PTH120
    return program == sys.executable or (same and _is_python(program))


def _user(uid: int) -> Owner:
    import pwd

    try:
        found = pwd.getpwuid(uid)
    except KeyError:  # nobody whom this machine knows: it has no groups
        return Owner(uid, uid, "", "/")
    return Owner(uid, found.pw_gid, found.pw_name, found.pw_dir)


def _unreadable(uid: int) -> str:
    """Why that user cannot run our children, whose programs lie beside us; empty where it can."""
    place = str(shipped.folder("probes")) if not shipped.ARCHIVE else "/"
    while place != "/":
        state = os.stat(place)  # noqa: PTH116
        if not state.st_mode & 0o001 and state.st_uid != uid:
            name = trusted.name_of(uid)
            return (
                f"user {name} may not read gpudoctor's files in {place}: install it where {name} may, or --trust-python"
            )
        place = os.path.dirname(place)  # noqa: PTH120
    return ""

"""Whether only this user and root can change a file: what others can change is neither run nor believed.

As sshd does with StrictModes: the file, its folder and every folder above it belong to this user or to root, and nobody
else can write to them. A sticky folder such as /tmp is fine above what is ours. Links count where they lead, and belong
to this user or to root as well. Folders above the user's own home are the administrator's affair, save for root.

Once a path is found sound, nobody else can exchange what lies there: it may be checked first and opened afterwards.
"""

from __future__ import annotations

import os
import stat
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gpudoctor.model.errors import UsageError

_MOST_LINKS = 40
"""Links followed in one path before it is called a loop; Linux follows as many."""
_OVERFLOW = 65534
"""Whom files belong to whose owner is not mapped into this user namespace."""
_GIVEN = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""Files that whoever started us has opened already."""


class Doubt(NamedTuple):
    """Why a path is not trusted: somebody else can change what is at `place`, which is on the way to it."""

    place: str
    whose: str
    """``user alice``, ``group lab``, ``every user``."""
    owned: bool
    """Whether `place` belongs to them; else it is its mode that lets them write."""

    def __str__(self) -> str:
        return f"{self.place} {'belongs to' if self.owned else 'can be written to by'} {self.whose}"

    @property
    def cure(self) -> str:
        """What to type."""
        import shlex

        place = shlex.quote(self.place)
        if not self.owned:
            return f"chmod go-w {place}"
        return f"chown {'root' if os.geteuid() == 0 else '$USER'} {place}"


def doubt(path: str | Path, uid: int | None = None) -> Doubt | None:
    """Why what is at that path is not to be trusted by that user (by default who we are); None where it is sound.

    Of a path that is not there yet: whether somebody else could put something there, other than in a sticky folder.
    """
    uid = os.geteuid() if uid is None else uid
    name = os.path.join(os.getcwd(), path) if not os.path.isabs(path) else str(path)  # noqa: PTH109, PTH117, PTH118
    if name.startswith(_GIVEN):
        return None
    exempt = _above_home(uid) if uid else frozenset[str]()
    here, rest, links = "/", [part for part in reversed(name.split("/")) if part not in ("", ".")], 0
    found = _about("/", os.lstat("/"), uid, last=not rest)
    while found is None and rest:
        part = rest.pop()
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120
            continue
        place = f"{here.rstrip('/')}/{part}"
        try:
            state = os.lstat(place)
        except OSError:  # not there, or not for us to see: whoever opens it is told
            return None
        if stat.S_ISLNK(state.st_mode):
            links += 1
            if links > _MOST_LINKS:
                return None
            goal = os.readlink(place)  # noqa: PTH115
            here = "/" if goal.startswith("/") else here
            rest += [part for part in reversed(goal.split("/")) if part not in ("", ".")]
            found = None if place in exempt else _owned(place, state, uid)
            continue
        here = place
        found = None if place in exempt else _about(place, state, uid, last=not rest)
    return found


def foreign(place: str | Path) -> Doubt | None:
    """As `doubt`, of a file in a folder that was found sound."""
    try:
        state = os.lstat(place)
    except OSError:
        return None
    return _about(str(place), state, os.geteuid(), last=True)


def scratch() -> None:
    """Have temporary files made where nobody else can exchange them: forget a TMPDIR that is open to others."""
    named = os.environ.get("TMPDIR")
    if named and (found := doubt(f"{named}/new")):
        say(f"TMPDIR is not used: {found}, and could exchange files there")
        del os.environ["TMPDIR"]


def _owned(place: str, state: os.stat_result, uid: int) -> Doubt | None:
    """Whether it belongs to somebody else."""
    if state.st_uid in (0, uid) or (state.st_uid == _OVERFLOW and _unmapped()):
        return None
    return Doubt(place, f"user {name_of(state.st_uid)}", owned=True)


def _about(place: str, state: os.stat_result, uid: int, *, last: bool) -> Doubt | None:
    if foreign := _owned(place, state, uid):
        return foreign
    mode = state.st_mode
    if not mode & 0o022 or stat.S_ISCHR(mode) or (mode & stat.S_ISVTX and stat.S_ISDIR(mode) and not last):
        return None
    if mode & 0o002:
        return Doubt(place, "every user", owned=False)
    return None if _alone(state.st_gid, uid, place) else Doubt(place, f"group {_group(state.st_gid)}", owned=False)


def _alone(gid: int, uid: int, place: str) -> bool:
    """Whether that group is root's, or has this user alone, as many systems give each user, with umask 002."""
    import grp
    import pwd

    if "system.posix_acl_access" in _attributes(place):  # then the group's bits are those of others, too
        return False
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _attributes(place: str) -> list[str]:
    try:
        return os.listxattr(place, follow_symlinks=False)
    except OSError:  # a file system without
        return []


@lru_cache(maxsize=1)
def _unmapped() -> bool:
    """Whether files whose owner this user namespace does not know show as those of `_OVERFLOW`: most are root's."""
    try:
        rows = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return not any(first <= _OVERFLOW < first + count for first, _, count in rows)


@lru_cache(maxsize=4)
def _above_home(uid: int) -> frozenset[str]:
    """The folders above that user's home, as it is named and where it really is."""
    import pwd

    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:  # a container that is run as a user of no name
        home = os.environ.get("HOME", "") if uid == os.geteuid() else ""
    if not home.startswith("/"):
        return frozenset()
    places = Path(home), Path(os.path.realpath(home))
    return frozenset(str(folder) for place in places for folder in place.parents)


def name_of(uid: int) -> str:
    """The user's name, or the number where it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def named(path: str | Path, what: str) -> None:
    """Hold a file that was named on the command line to it: `what` is how, such as ``--rules DIR``.

    Raises `UsageError` where just anybody can change it, or for root a group. What belongs to one other user is taken
    at the word of whoever named it, and that is said.
    """
    found = doubt(path)
    if found is None:
        return
    if not found.owned and (os.geteuid() == 0 or found.whose == "every user"):
        raise UsageError(f"{what}: {found}, and what it says is acted upon: {found.cure}, or name a copy of your own")
    say(f"{what}: {found}, who can change what it says")


_said: set[str] = set()


def say(sentence: str) -> None:
    """Tell of something that is not trusted, once, on standard error."""
    if sentence not in _said:
        _said.add(sentence)
        sys.stderr.write(f"gpudoctor: {sentence}\n")

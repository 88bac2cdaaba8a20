"""Files that are whole or not there, and that only this user and root can change; and where ours are kept.

What others can change is neither run nor believed. As sshd does with StrictModes: the file, its folder and every folder
above it belong to this user or to root, and nobody else can write to them. A sticky folder such as /tmp is fine above
what is ours. Links count where they lead, and belong to this user or to root as well. Folders above the user's own home
are the administrator's affair, save for root.

Once a path is found sound, nobody else can exchange what lies there: it may be checked first and opened afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.core import system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

_MOST_LINKS = 40
"""Links followed in one path before it is called a loop; Linux follows as many."""
_OVERFLOW_UID = 65534
"""Whom files belong to whose owner is not mapped into this user namespace."""
_GIVEN = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""Files that whoever started us has opened already."""


class Doubt(NamedTuple):
    """Why a path is not trusted: another user can change `place`, which is it or on the way to it."""

    place: str
    whose: str
    """``user alice``, ``group lab``, ``every user``."""
    uid: int = -1
    """The user to whom `place` belongs; -1 where it is its mode that lets them write."""

    @property
    def owned(self) -> bool:
        """Whether `place` belongs to them (otherwise its mode lets them write)."""
        return self.uid >= 0

    def __str__(self) -> str:
        return f"{self.place} {'belongs to' if self.owned else 'can be written to by'} {self.whose}"

    @property
    def cure(self) -> str:
        """The shell command that makes `place` trusted: a ``chmod`` of its mode, or a ``chown`` to us."""
        place = shlex.quote(self.place)
        if not self.owned:
            return f"chmod go-w {place}"
        return f"chown {'root' if system.is_root() else '$USER'} {place}"


def doubt(path: str | Path, uid: int | None = None) -> Doubt | None:
    """Why another user could change what is at that path; None where only `uid` (default: ours) and root can.

    Follows links and judges every folder on the way; a sticky one such as /tmp is fine there, and of a missing path
    only the folders above it count. For users other than root the folders above their home are not judged. None also
    for what cannot be read, for open files (``/dev/stdin``), and always on Windows.
    """
    if system.ACCESS_IS_LISTED:
        return None
    uid = system.user_id() if uid is None else uid
    name = os.path.join(os.getcwd(), path) if not os.path.isabs(path) else str(path)  # noqa: PTH109, PTH117, PTH118
    if name.startswith(_GIVEN):
        return None
    exempt = _parents_of_home(uid) if uid else frozenset[str]()
    here, rest, links = "/", [part for part in reversed(name.split("/")) if part not in ("", ".")], 0
    found = _doubt_about("/", os.lstat("/"), uid, last=not rest)
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
            found = None if place in exempt else _foreign_owner(place, state, uid)
            continue
        here = place
        found = None if place in exempt else _doubt_about(place, state, uid, last=not rest)
    return found


def foreign(place: str | Path) -> Doubt | None:
    """Why another user could change that file or folder itself: folders above it are not checked, links not followed.

    None where only we and root can, where it cannot be read, and always on Windows.
    """
    try:
        state = os.lstat(place)
    except OSError:
        return None
    if system.ACCESS_IS_LISTED:
        return None
    return _doubt_about(str(place), state, system.user_id(), last=True)


def make_private(folder: Path) -> None:
    """Creates the folder and its parents where missing, mode 0700; existing ones stay as they are; raises `OSError`."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)


def secure_tmpdir() -> None:
    """Drops TMPDIR from the environment, with a warning, where other users could exchange files there."""
    folder = os.environ.get("TMPDIR")
    if folder and (found := doubt(f"{folder}/new")):
        warn_once(f"TMPDIR is not used: {found}, and could exchange files there")
        del os.environ["TMPDIR"]


def _foreign_owner(place: str, state: os.stat_result, uid: int) -> Doubt | None:
    """The doubt that `place` belongs to another user; None for this user, root, or unmapped owners."""
    if state.st_uid in (0, uid) or (state.st_uid == _OVERFLOW_UID and _is_overflow_unmapped()):
        return None
    return Doubt(place, f"user {user_name(state.st_uid)}", state.st_uid)


def _doubt_about(place: str, state: os.stat_result, uid: int, *, last: bool) -> Doubt | None:
    """The doubt that others own or can write to `place`, else None.

    Unless it is the `last` of its path, a sticky folder that others can write to, such as /tmp, is fine.
    """
    if foreign := _foreign_owner(place, state, uid):
        return foreign
    mode = state.st_mode
    if not mode & 0o022 or stat.S_ISCHR(mode) or (mode & stat.S_ISVTX and stat.S_ISDIR(mode) and not last):
        return None
    if mode & 0o002:
        return Doubt(place, "every user")
    return None if _is_private_group(state.st_gid, uid, place) else Doubt(place, f"group {_group_name(state.st_gid)}")


def _is_private_group(gid: int, uid: int, place: str) -> bool:
    """Whether the group is root's or has only this user as a member, as with umask 002; False where `place` has an ACL.

    ``wheel``, and Debian's ``staff``, which owns /usr/local, count as root's while they have no members.
    """
    if "system.posix_acl_access" in _extended_attributes(place):  # then the group's bits are those of others, too
        return False
    if gid == 0:
        return True
    try:
        group, members = system.group(gid)
    except KeyError:
        return gid == uid  # a container that is run as a user of no name
    try:
        if group in ("staff", "wheel") and not members:
            return True
        user = system.account(uid)
    except KeyError:
        return False
    return user.gid == gid and group == user.name and not members - {user.name}


def _extended_attributes(place: str) -> list[str]:
    """Names of the file's extended attributes; empty where unsupported."""
    try:
        return system.extended_attributes(place)
    except OSError:  # a file system without
        return []


@lru_cache(maxsize=1)
def _is_overflow_unmapped() -> bool:
    """Whether uid 65534 stands for owners outside this user namespace (mostly root); cached."""
    try:
        rows = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return not any(first <= _OVERFLOW_UID < first + count for first, _, count in rows)


@lru_cache(maxsize=4)
def _parents_of_home(uid: int) -> frozenset[str]:
    """The folders above that user's home, by its name and resolved; empty without a home."""
    try:
        home = system.account(uid).home
    except KeyError:  # a container that is run as a user of no name
        home = os.environ.get("HOME", "") if uid == system.user_id() else ""
    if not home.startswith("/"):
        return frozenset()
    places = Path(home), Path(os.path.realpath(home))
    return frozenset(str(folder) for place in places for folder in place.parents)


def user_name(uid: int) -> str:
    """The user's name, or the number as text."""
    try:
        return system.account(uid).name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    """The group's name, or the number as text."""
    try:
        return system.group(gid)[0]
    except KeyError:
        return str(gid)


def check_named_file(path: str | Path, what: str) -> None:
    """Refuse a file named on the command line that others can change; `what` is the option, as ``--rules DIR``.

    Raises `UsageError` where its mode lets every user write, for root also a group; warns where a group can write (we
    are not root) or another user owns it.
    """
    found = doubt(path)
    if found is None:
        return
    if not found.owned and (system.is_root() or found.whose == "every user"):
        raise UsageError(
            say(
                "{what}: {found}, and what it says is acted upon: {cure}, or name a copy of your own",
                what=what,
                found=found,
                cure=found.cure,
            )
        )
    warn_once(f"{what}: {found}, who can change what it says")


_warned: set[str] = set()


def warn_once(sentence: str) -> None:
    """Writes the warning to standard error, once per run."""
    if sentence not in _warned:
        _warned.add(sentence)
        sys.stderr.write(f"gpudoctor: {sentence}\n")


# ---- Files that are whole or not there ----
# Whatever ends the program or the machine in between.


def write(place: Path, data: bytes) -> None:
    """Writes the file atomically and flushes its folder to disk; raises `OSError`, then the old one stands."""
    put(place, data)
    system.sync_folder(place.parent)


def put(place: Path, data: bytes, mode: int = 0) -> None:
    """Writes the file atomically; with `mode` as its permissions, else by the umask; raises `OSError`."""
    fresh = place.with_name(f".{place.name[:60]}.{os.urandom(4).hex()}")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode:
            fresh.chmod(mode)
        system.replace(fresh, place)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


# ---- Folders in which gpudoctor keeps what outlasts a run ----

STATE = "GPUDOCTOR_STATE"
"""The variable that names another folder."""
HISTORY = "history"
"""Where, in either folder, the history of checks lies."""


def configured_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that ``GPUDOCTOR_STATE`` names, absolute; None where it is not set."""
    return Path(named).absolute() if (named := environ.get(STATE)) else None


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for state: the configured one, else the default; it is not created.

    Raises `UsageError` where others can change the configured one; the default is not checked.
    """
    named = configured_folder(environ)
    if named and (found := doubt(named)):
        raise UsageError(
            say(
                "{state}: {found}, who could plant records there: {cure}, or name another folder",
                state=STATE,
                found=found,
                cure=found.cure,
            )
        )
    return named or default_folder()


def default_folder() -> Path:
    """The path ``gpudoctor`` in the user's state folder; for root ``.local/state/gpudoctor`` in its own home.

    ``sudo`` may leave HOME and XDG_STATE_HOME as they were: root must not write into a user's home.
    """
    if system.is_root():
        return _root_folder(".local/state/gpudoctor", "/var/lib/gpudoctor")
    return _user_folders().user_state_path


def cache_folder() -> Path:
    """The path of the cache, for compiled copies of a checkout's pages; root never uses another user's home."""
    return _trusted_folder(_user_folders().user_cache_path, ".cache/gpudoctor", "/var/cache/gpudoctor")


def config_folder() -> Path:
    """The path for settings of the interface; root never uses another user's home."""
    return _trusted_folder(_user_folders().user_config_path, ".config/gpudoctor", "/etc/gpudoctor")


def _user_folders() -> PlatformDirs:
    """The folders that this system has for what programs keep for the user; none of them is created."""
    from platformdirs import PlatformDirs  # with random and two compressors, and a report is read without

    return PlatformDirs("gpudoctor", appauthor=False)


def _trusted_folder(default_folder: Path, place: str, otherwise: str) -> Path:
    """`default_folder`; where we are root and others could change it, `place` in root's home, else `otherwise`."""
    foreign = system.is_root() and default_folder.is_absolute() and doubt(default_folder)
    return _root_folder(place, otherwise) if foreign else default_folder


def _root_folder(place: str, otherwise: str) -> Path:
    """The path `place` in root's home; `otherwise` where the password database has no root."""
    try:
        return Path(system.account(0).home, place)
    except KeyError:  # a machine without a list of users
        return Path(otherwise)

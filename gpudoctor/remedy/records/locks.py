"""One run at a time: on this machine for each user, and in each environment for all of them.

The lock of an environment is a file in it that all those can open who can change it. The kernel lets go of it when its
holder ends, however that is; what the file then says is of a run that was cut off.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor import trusted
from gpudoctor.model.errors import DoctorError
from gpudoctor.remedy.keeping import tree
from gpudoctor.remedy.keeping.environment import Environment


@contextmanager
def held(what: str, place: Path, run: str) -> Iterator[None]:
    """Hold that lock; raises `DoctorError` that says who holds it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = _opened(place)
    except OSError as error:
        raise DoctorError(f"{place}: {error.strerror}; nothing was run") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DoctorError(
                f"another run is under way {what}: {_said(handle) or 'of another gpudoctor'}; wait for it"
            ) from None
        user = trusted.name_of(os.geteuid())
        if (former := _said(handle)) and f", user {user}, process" not in former:  # our own are in our journals
            trusted.say(f"a run was cut off {what}: {former}; gpudoctor fix --undo last, as that user, takes it back")
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"run {run}, user {user}, process {os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _opened(place: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        handle = os.open(place, flags)
    else:
        tree.as_above(place, os.stat(place.parent))  # noqa: PTH116
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no plain file")
    return handle


def _said(handle: int) -> str:
    """What a holder wrote: it may be anybody who can change the environment."""
    text = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def taken(place: Path) -> bool:
    """Whether somebody holds that lock now."""
    try:
        with place.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever held it, or it is not ours to know
        return False
    return False


def of_machine(journals: Path) -> Path:
    """The lock of all runs of this user; root's is that of all changes to the system."""
    return journals / ".lock"


def of_environment(target: Environment) -> Path:
    """The lock of one environment, whoever changes it; it lies in the first of its trees that we may write to."""
    mine = (place for place in target.trees if os.access(_existing(place), os.W_OK))
    root = next(mine, target.trees[0])
    try:
        return tree.hidden(root) / "lock"
    except OSError as error:
        raise DoctorError(f"{Path(root, tree.HIDDEN)}: {error.strerror}; nothing was run") from error


def _existing(root: str) -> Path:
    """The tree, or the nearest folder above it that is there: a user's own site-packages may be still to come."""
    return next(place for place in (Path(root), *Path(root).parents) if place.exists())

"""One run at a time: on this machine for each user, and in each environment for all of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.model.errors import DoctorError
from gpudoctor.remedy.keeping.environment import Environment
from gpudoctor.remedy.keeping.tree import HIDDEN


@contextmanager
def held(what: str, place: Path, run: str) -> Iterator[None]:
    """Hold that lock; raises `DoctorError` that says who holds it. The kernel lets go of it when we end, however."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise DoctorError(f"{place}: {error.strerror}; nothing was run") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode("utf-8", "replace").strip()
            raise DoctorError(
                f"another run is under way {what}: {holder or 'of another gpudoctor'}; wait for it"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"run {run}, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


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
    mine = (tree for tree in target.trees if os.access(_existing(tree), os.W_OK))
    return Path(next(mine, target.trees[0]), HIDDEN, "lock")


def _existing(tree: str) -> Path:
    """The tree, or the nearest folder above it that is there: a user's own site-packages may be still to come."""
    return next(place for place in (Path(tree), *Path(tree).parents) if place.exists())

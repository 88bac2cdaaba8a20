"""The folders in which this user's compiled kernels are kept: our own measurements leave them alone."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import sys
from typing import Dict, List, Mapping, NamedTuple

from .._kernel import Broken, Outcome, Spec
from . import Context

KERNELS = (Spec("compile.caches", "room for compiled kernels", "GiB", "", scope="node"),)
_MIN_FREE = 64 << 20
"""Bytes: a training job's kernels with what they are made from."""


class Place(NamedTuple):
    """A cache folder and `there`, it or its nearest existing parent; `free` in bytes."""

    folder: str
    variable: str
    """What moves it."""
    there: str
    writable: bool
    noexec: bool
    free: int


def run(context: Context, _: Spec) -> Outcome:
    """Check that the user's caches of Triton and inductor can hold and load compiled kernels; value: free GiB.

    Writes nothing. Raises `Broken` with what is wrong with them.
    """
    places = [_inspect(variable, folder) for variable, folder in folders(context.before).items()]
    bad = [trouble for place in places for trouble in troubles(place)]
    if bad:
        variables = " and ".join(place.variable for place in places if troubles(place))
        raise Broken("; ".join(bad), "set %s to a folder on a local disk" % variables)
    return Outcome(
        value=min(place.free for place in places) / (1 << 30),
        details={place.variable: place.folder for place in places},
    )


def folders(environ: Mapping[str, str]) -> Dict[str, str]:
    """Cache folders of Triton and inductor by the variable that moves each; the default where it is not set."""
    home = environ.get("TRITON_HOME") or os.path.expanduser("~")
    user = re.sub(r"[\\/:*?\"<>|]", "_", _user_name())
    return {
        "TRITON_CACHE_DIR": environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"),
        "TORCHINDUCTOR_CACHE_DIR": environ.get("TORCHINDUCTOR_CACHE_DIR")
        or os.path.join(environ.get("TMPDIR") or "/tmp", "torchinductor_" + user),
    }


def troubles(place: Place) -> List[str]:
    """What is wrong with a cache folder, one sentence each: not writable, noexec, too full; empty if nothing is."""
    faults = []
    if not place.writable:
        faults.append("%s may not be written to" % place.there)
    if place.noexec:
        faults.append("%s is on a file system mounted noexec: no library can be loaded from there" % place.there)
    if place.free < _MIN_FREE:
        faults.append("%s has %d MiB left" % (place.there, place.free >> 20))
    return ["compiled kernels cannot be kept in %s: %s" % (place.folder, fault) for fault in faults]


def _inspect(variable: str, folder: str) -> Place:
    """Whether the folder, or its nearest existing parent, is writable or mounted noexec, and its free bytes."""
    existing = os.path.abspath(folder)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    writable = os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)
    if sys.platform == "win32":
        return Place(folder, variable, existing, writable, False, shutil.disk_usage(existing).free)
    status = os.statvfs(existing)
    noexec = bool(status.f_flag & getattr(os, "ST_NOEXEC", 8))
    return Place(folder, variable, existing, writable, noexec, status.f_bavail * status.f_frsize)


def _user_name() -> str:
    """Login name; where the uid has none the uid as text, on Windows empty."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a uid without a name, as in containers
        if sys.platform == "win32":
            return ""
        return str(os.getuid())

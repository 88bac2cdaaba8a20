"""The folders in which this user's compiled kernels are kept: our own measurements leave them alone."""

from __future__ import annotations

import getpass
import os
import re
from typing import Dict, List, Mapping, NamedTuple

from .._kernel import Broken, Outcome, Spec
from ._rung import Context

KERNELS = (Spec("compile.caches", "room for compiled kernels", "GiB", "", scope="node"),)
_LEAST = 64 << 20
"""Bytes: a training job's kernels with what they are made from."""


class Place(NamedTuple):
    """A folder that is there, or that would have to be made in `there`."""

    folder: str
    variable: str
    """What moves it."""
    there: str
    writable: bool
    noexec: bool
    free: int


def run(context: Context, _: Spec) -> Outcome:
    """Whether kernels can be kept there and loaded from there; nothing is written."""
    places = [_looked_at(variable, folder) for variable, folder in folders(context.before).items()]
    bad = [trouble for place in places for trouble in troubles(place)]
    if bad:
        raise Broken("; ".join(bad), "set %s to a folder on a local disk" % _variables(places))
    return Outcome(
        value=min(place.free for place in places) / (1 << 30),
        details={place.variable: place.folder for place in places},
    )


def folders(environ: Mapping[str, str]) -> Dict[str, str]:
    """By the variables that name them, else where Triton and inductor put them."""
    home = environ.get("TRITON_HOME") or os.path.expanduser("~")
    user = re.sub(r"[\\/:*?\"<>|]", "_", _user())
    return {
        "TRITON_CACHE_DIR": environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"),
        "TORCHINDUCTOR_CACHE_DIR": environ.get("TORCHINDUCTOR_CACHE_DIR")
        or os.path.join(environ.get("TMPDIR") or "/tmp", "torchinductor_" + user),
    }


def troubles(place: Place) -> List[str]:
    """What is wrong with it, in words."""
    said = []
    if not place.writable:
        said.append("%s may not be written to" % place.there)
    if place.noexec:
        said.append("%s is on a file system mounted noexec: no library can be loaded from there" % place.there)
    if place.free < _LEAST:
        said.append("%s has %d MiB left" % (place.there, place.free >> 20))
    return ["compiled kernels cannot be kept in %s: %s" % (place.folder, one) for one in said]


def _looked_at(variable: str, folder: str) -> Place:
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    found = os.statvfs(there)
    writable = os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
    noexec = bool(found.f_flag & getattr(os, "ST_NOEXEC", 8))
    return Place(folder, variable, there, writable, noexec, found.f_bavail * found.f_frsize)


def _variables(places: List[Place]) -> str:
    return " and ".join(place.variable for place in places if troubles(place))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a uid without a name, as in containers
        return str(os.getuid())

"""The folders in which gpudoctor keeps what outlasts a run: journals of repairs, the history of checks, and more."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from gpudoctor import trusted
from gpudoctor.model.errors import UsageError

STATE = "GPUDOCTOR_STATE"
"""The variable that names another folder."""
HISTORY = "history"
"""Where, in either folder, the history of checks lies."""


def given(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that ``GPUDOCTOR_STATE`` names."""
    return Path(named).absolute() if (named := environ.get(STATE)) else None


def given_or_usual(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for state; raises `UsageError` where the one that ``GPUDOCTOR_STATE`` names is open to others."""
    named = given(environ)
    if named and (found := trusted.doubt(named)):
        raise UsageError(f"{STATE}: {found}, who could plant records there: {found.cure}, or name another folder")
    return named or usual()


def usual() -> Path:
    """``gpudoctor`` in the user's state folder; root has its own.

    ``sudo`` may leave HOME and XDG_STATE_HOME as they were: root must not write into a user's home.
    """
    if os.geteuid() == 0:
        return _of_root(".local/state/gpudoctor", "/var/lib/gpudoctor")
    import platformdirs

    return platformdirs.user_state_path("gpudoctor")


def cache() -> Path:
    """Where compiled copies of a checkout's pages lie; for root never in the home of another user."""
    import platformdirs

    return _sound(platformdirs.user_cache_path("gpudoctor"), ".cache/gpudoctor", "/var/cache/gpudoctor")


def config() -> Path:
    """Where the interface keeps what was chosen in it; for root never in the home of another user."""
    import platformdirs

    return _sound(platformdirs.user_config_path("gpudoctor"), ".config/gpudoctor", "/etc/gpudoctor")


def _sound(usual: Path, place: str, otherwise: str) -> Path:
    foreign = os.geteuid() == 0 and usual.is_absolute() and trusted.doubt(usual)
    return _of_root(place, otherwise) if foreign else usual


def _of_root(place: str, otherwise: str) -> Path:
    """That folder in the home that the list of users has for root."""
    try:
        return Path(pwd.getpwuid(0).pw_dir, place)
    except KeyError:  # a machine without a list of users
        return Path(otherwise)

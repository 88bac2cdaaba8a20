"""The folders in which gpudoctor keeps what outlasts a run: journals of repairs, the history of checks, and more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from gpudoctor.core import files, system
from gpudoctor.core.errors import UsageError

STATE = "GPUDOCTOR_STATE"
"""The variable that names another folder."""
HISTORY = "history"
"""Where, in either folder, the history of checks lies."""


def configured_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that ``GPUDOCTOR_STATE`` names, absolute; None where it is not set."""
    return Path(named).absolute() if (named := environ.get(STATE)) else None


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for state, as configured or the default; raises `UsageError` where others can write to it."""
    named = configured_folder(environ)
    if named and (found := files.doubt(named)):
        raise UsageError(f"{STATE}: {found}, who could plant records there: {found.cure}, or name another folder")
    return named or default_folder()


def default_folder() -> Path:
    """``gpudoctor`` in the user's state folder; root has its own.

    ``sudo`` may leave HOME and XDG_STATE_HOME as they were: root must not write into a user's home.
    """
    if system.is_root():
        return _root_folder(".local/state/gpudoctor", "/var/lib/gpudoctor")
    return platformdirs.user_state_path("gpudoctor")


def cache() -> Path:
    """The folder for compiled copies of a checkout's pages; root never uses another user's home."""
    return _trusted_folder(platformdirs.user_cache_path("gpudoctor"), ".cache/gpudoctor", "/var/cache/gpudoctor")


def config() -> Path:
    """The folder for settings of the interface; root never uses another user's home."""
    return _trusted_folder(platformdirs.user_config_path("gpudoctor"), ".config/gpudoctor", "/etc/gpudoctor")


def _trusted_folder(default_folder: Path, place: str, otherwise: str) -> Path:
    """The user's folder, or for root a folder of its own where the user's is not trusted."""
    foreign = system.is_root() and default_folder.is_absolute() and files.doubt(default_folder)
    return _root_folder(place, otherwise) if foreign else default_folder


def _root_folder(place: str, otherwise: str) -> Path:
    """That folder in root's home, by the password database, else `otherwise`."""
    try:
        return Path(system.account(0).home, place)
    except KeyError:  # a machine without a list of users
        return Path(otherwise)

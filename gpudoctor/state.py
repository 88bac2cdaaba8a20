"""The folder in which gpudoctor keeps what outlasts a run: journals of repairs, and the history of checks."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

STATE = "GPUDOCTOR_STATE"
"""The variable that names another folder."""
HISTORY = "history"
"""Where, in either folder, the history of checks lies."""


def given(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that ``GPUDOCTOR_STATE`` names."""
    return Path(named).absolute() if (named := environ.get(STATE)) else None


def usual() -> Path:
    """``gpudoctor`` in the user's state folder; root has its own.

    ``sudo`` may leave HOME and XDG_STATE_HOME as they were: root must not write into a user's home.
    """
    if os.geteuid() == 0:
        try:
            return Path(pwd.getpwuid(0).pw_dir, ".local/state/gpudoctor")
        except KeyError:  # a machine without a list of users
            return Path("/var/lib/gpudoctor")
    import platformdirs

    return platformdirs.user_state_path("gpudoctor")

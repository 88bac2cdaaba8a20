"""Where plans are run: whose Python, who judges it, and where the journals lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor import state
from gpudoctor.model.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True)
class Site:
    """This machine as a place where steps are run.

    `python` is the interpreter whose environment may be changed, None where no plan may. `judge` reads the machine
    anew and judges it. `environ` is what the steps' commands inherit, less what would divert them.
    """

    journals: Path
    python: str | None
    judge: Callable[[], Diagnosis]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: bool = field(default_factory=lambda: os.geteuid() == 0)


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where runs are kept: the folder that ``GPUDOCTOR_STATE`` names, else ``gpudoctor/runs`` in the state folder.

    Raises `UsageError` where others can write to it.
    """
    folder = state.given_or_usual(environ)
    return folder if state.given(environ) else folder / "runs"

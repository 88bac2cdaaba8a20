"""Simulated machines whose checks are kept, with logs of package managers that are of these days."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import HOST, Machine

DAY = 86400
_BOOTED_AGO = 864_000
_INSTALLED_AGO = 60 * DAY


def machine(profile: str, folder: Path, state: Path, files: Mapping[str, str], patch: Mapping[str, Any]) -> Machine:
    """That profile with these files, booted ten days ago by the clock of these days; its checks are kept in `state`."""
    state.mkdir(exist_ok=True)
    host = {"files": {"/proc/stat": f"btime {int(time.time()) - _BOOTED_AGO}\n", **files}, **patch.get("host", {})}
    words = {**patch.get("machine", {})}
    words["environ"] = {"GPUDOCTOR_HISTORY": "", "GPUDOCTOR_STATE": f"{HOST}{state}", **words.get("environ", {})}
    told = {key: part for key, part in patch.items() if key not in ("host", "machine", "expect", "title", "profile")}
    folder.mkdir()
    made = Machine(scenario.expanded({"profile": profile, "machine": words, "host": host, **told}), folder)
    for record in folder.rglob("*.dist-info/RECORD"):  # installed long ago, not when the machine was laid out
        os.utime(record, (time.time() // DAY * DAY - _INSTALLED_AGO,) * 2)
    return made


def sick(name: str) -> dict[str, Any]:
    """A scenario as it is written, to be laid over its profile."""
    raw: dict[str, Any] = json.loads((scenario.SICK / f"{name}.json").read_text("utf-8"))
    raw.get("host", {}).pop("files", None)
    return raw


def ago(seconds: float, form: str = "%Y-%m-%d  %H:%M:%S") -> str:
    """That long ago, as a log in UTC has it."""
    return time.strftime(form, time.gmtime(time.time() - seconds))


def kept(state: Path) -> list[Path]:
    """The files of kept runs, the oldest first."""
    return sorted(state.glob("history/*/*.gz"))


def aged(state: Path, seconds: float) -> None:
    """Make every kept run so much older, by its name."""
    for place in kept(state):
        stamp = ago(seconds, "%Y%m%d-%H%M%S")
        place.rename(place.with_name(re.sub(r"^\d{8}-\d{6}", stamp, place.name)))


def day(seconds: float) -> str:
    """``3 November 2025``, that long ago."""
    then = time.gmtime(time.time() - seconds)
    return f"{then.tm_mday} {time.strftime('%B %Y', then)}"


__all__ = ["DAY", "Machine", "Ran", "aged", "ago", "day", "kept", "machine", "sick"]

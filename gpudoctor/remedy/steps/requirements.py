"""What must hold just before a step, looked at anew: a plan may be hours old."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from gpudoctor.model.plan import Plan, PlanStep, Requirement
from gpudoctor.remedy.keeping.distributions import Lock

_VERSION = re.compile(r"\d[\w.+!]*")


def unmet(step: PlanStep, environ: Mapping[str, str], root: bool) -> str:
    """Why the step cannot be run now, empty where it can."""
    if "root" in step.needs and not root:
        return "needs root, which this is not"
    path = environ.get("PATH", os.defpath)
    if step.argv and not shutil.which(step.argv[0], path=path):
        return f"{step.argv[0]}: no such program"
    return next(filter(None, (_missing(item, path) for item in step.requires)), "")


def moved_on(plan: Plan, installed: Lock) -> str:
    """What was installed after the plan was made, by others: a version that the plan neither found nor brings."""
    known: dict[str, list[str]] = {}
    for change in (change for step in plan.steps for change in step.changes):
        known.setdefault(change.name, []).extend((change.before, change.after))
    for item in installed:
        versions = known.get(item.name, [""])
        if _VERSION.fullmatch(versions[-1]) and item.version not in versions:  # else what it brings is not known
            was = " and ".join(dict.fromkeys(filter(None, versions)))
            return f"{item.name} {item.version} is installed now, and the plan knows of {was}: make a new plan"
    return ""


def _missing(item: Requirement, path: str) -> str:
    if item.kind == "program":
        return "" if shutil.which(item.subject, path=path) else f"{item.subject}: no such program"
    if item.kind == "unchanged":  # `moved_on` looks at what the plan knows of it
        return ""
    place = _existing(item.subject)
    if item.kind == "writable":
        return "" if os.access(place, os.W_OK) else f"{item.subject} cannot be written to"
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize >> 20
    return "" if free >= item.mib else f"{item.subject} has {free} MiB free, and {item.mib:.0f} are needed"


def _existing(place: str) -> str:
    """The place itself, or the nearest folder above it that is there."""
    try:
        folder = Path(os.path.abspath(place))  # noqa: PTH100
        return str(next(one for one in (folder, *folder.parents) if one.exists()))
    except (OSError, ValueError):
        return "/"

"""Why Slurm ended a job or a step, as its controller tells while they end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.target import Target

_SECONDS = 5.0
_JOB = re.compile(r"\bJobState=(\w+)(?: Reason=(\w+))?")
_STEP = re.compile(r"^StepId=.*\n\s*State=(\w+)", re.M)
_WORDS = {"TIMEOUT": "time limit", "TimeLimit": "time limit", "PREEMPTED": "pre-emption", "NODE_FAIL": "node failure"}
_CANCELLED = frozenset({"CANCELLED", "COMPLETING"})


def end_by_slurm(target: Target, environ: Mapping[str, str]) -> Fact:
    """``time limit``, ``cancelled``, ... (`failure.slurm`) of the job in whose environment we are; asks scontrol.

    Seen with Slurm 22.05: a job at its limit is COMPLETING with the reason TimeLimit, one that scancel ends without a
    reason; a step at its own limit has the state TIMEOUT while its job is RUNNING.
    """
    job, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")
    if not job.isdecimal():
        return Absent("it did not run in a job of Slurm")
    state, reason = _asked(target, _JOB, "job", job)
    found = _WORDS.get(reason) or _WORDS.get(state)
    if found:
        return Known(found, "scontrol show job")
    if step.isdecimal() and _WORDS.get(_asked(target, _STEP, "step", f"{job}.{step}")[0]):
        return Known("time limit", "scontrol show step")
    if state in _CANCELLED:
        return Known("cancelled", "scontrol show job")
    return Absent(f"the job is {state}") if state else Unread("scontrol did not answer")


def _asked(target: Target, pattern: re.Pattern[str], kind: str, name: str) -> tuple[str, str]:
    """State and reason that ``scontrol show`` tells; empty where it does not answer."""
    try:
        answer = target.run(["scontrol", "show", kind, name], timeout=_SECONDS)
    except OSError:
        return "", ""
    match = pattern.search(answer.out)
    return (match[1], match[2] or "" if pattern.groups > 1 else "") if match else ("", "")

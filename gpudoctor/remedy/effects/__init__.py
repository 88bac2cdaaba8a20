"""What a plan's steps would bring about: the snapshot as it would be, judged again before anything is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpudoctor.knowledge import complete
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.model.foreseen import Foreseen
from gpudoctor.model.plan import Plan, PlanStep
from gpudoctor.model.rule import Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.remedy.effects import packages
from gpudoctor.remedy.effects.commands import command_of
from gpudoctor.remedy.effects.outlook import ANEW, Outlook

Judge = Callable[[Snapshot], Diagnosis]
"""Every rule on that snapshot, which is complete: what follows from its facts by the tables is in it."""

EXPERIENCE = ("live", "live_gpu", "measured", "rung", "rate", "deviation", "collective", "gpu.tf32_gain", "gpu.at_work")
"""What was tried out on the machine: it must be tried again after any change."""
SEEN_THROUGH: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("driver.version",), ("driver.cuda_version", "driver.library_version", "driver.library_versions")),
    (("driver.version",), ("driver.module_version", "driver.module_disk_version", "libs.libcuda_version")),
    (("driver", "host.secure_boot", "wsl", "container", "libs.libcuda_kind"), ("nvml", "cuda_driver", "cuda_device")),
    (("nvml.state", "driver.module_loaded"), ("gpu.count",)),
    (("env.CUDA_VISIBLE_DEVICES",), ("cuda_driver", "cuda_device")),
    (("env.LD_LIBRARY_PATH", "env.library_path"), ("env.library_path", "libs", "lib", "cuda_driver", "libnccl")),
    (("env.LD_PRELOAD",), ("libs", "lib", "cuda_driver", "libnccl")),
)
"""Where a step makes one of the first, the second were seen as it was before."""
OF_THIS_BOOT = ("xid", "sxid", "aer", "mce", "oom", "stuck", "kernel_log")
"""What the kernel's log tells: it begins anew with a reboot."""
SERVICES = (
    "driver.fabric_manager",
    "driver.fabric_manager_version",
    "driver.persistenced",
    "imex.state",
    "fabric.subnet_manager",
)
"""What a reboot starts, where it is installed."""


def after(snapshot: Snapshot, steps: Iterable[Step | PlanStep]) -> Snapshot:
    """The snapshot as it would be once these steps are done, with what follows by the tables.

    What was read before and need no longer hold is unread.
    """
    outlook = Outlook(snapshot)
    for step in steps:
        changed = packages.change(outlook, step.argv)
        if changed or step.makes or step.touches != "nothing" or "reboot" in step.needs:
            outlook.forget(EXPERIENCE)
        if "reboot" in step.needs:
            _start_anew(outlook)
        for causes, seen in SEEN_THROUGH:
            if any(_within(name, causes) for name, _ in step.makes):
                outlook.forget(seen)
        for name, value in step.makes:
            outlook.make(name, value)
    return outlook.whole()


def _start_anew(outlook: Outlook) -> None:
    """The machine is up again: a new kernel log, and the services as they are installed now."""
    outlook.forget(OF_THIS_BOOT)
    outlook.forget(name for name in SERVICES if outlook.text(name) != "not installed")
    installed = outlook.facts.get("fabric.installed_version")
    if isinstance(installed, Known):
        outlook.put("driver.fabric_manager_version", installed)


def _within(name: str, families: Iterable[str]) -> bool:
    return any(name == family or name.startswith(f"{family}.") for family in families)


def foreseen(diagnosis: Diagnosis, plan: Plan, judge: Judge) -> Foreseen:
    """What the chosen steps of the plan would clear, leave, and bring about."""
    steps = [step for step in plan.chosen if not step.verify]
    mended = {step.cause for step in steps if tells(step)}
    silent = {step.cause for step in steps if step.cause and step.cause not in mended}
    return seen(diagnosis, after(diagnosis.snapshot, steps), judge, mended, silent)


def tells(step: Step | PlanStep) -> bool:
    """Whether it is known what the step makes true."""
    return bool(step.makes) or command_of(step.argv) is not None


def seen(
    diagnosis: Diagnosis,
    then: Snapshot,
    judge: Judge,
    mended: Iterable[str] = (),
    silent: Iterable[str] = (),
) -> Foreseen:
    """The findings of that later snapshot against those of the diagnosis.

    Of causes that are `mended` the lines of text that told of them are set aside; what becomes of those that are
    `silent` is not known. What was folded under its cause and is found without it stays; what comes up only because
    something must be read again is none of the steps'.
    """
    causes = set(mended)
    then = _without_lines(then, _told_by(diagnosis, causes))
    judged = judge(then)
    consequences = {name for finding in diagnosis.findings if finding.id in causes for name in finding.explains}
    if lines := _told_by(judged, consequences):  # folded until now, so that nobody knew which lines told of them
        then = _without_lines(then, lines)
        judged = judge(then)
    before, found = _loud(diagnosis), _loud(judged)
    cleared = [name for name in before if name in judged.passed and name not in set(silent)]
    pending = {name for name in before if name not in cleared and (name not in found or name in set(silent))}
    folded = {name: finding.id for finding in before.values() for name in finding.explains}
    new = [name for name in found if name not in before and name not in folded]
    if new:
        new = [name for name in new if name not in _loud(judge(_as_little_known(diagnosis.snapshot, then)))]
    return Foreseen(
        cleared=tuple(cleared),
        stays=tuple(name for name in found if name not in pending and (name in before or folded.get(name) in cleared)),
        new=tuple(new),
        unjudged=tuple(name for name in before if name in pending),
    )


def _loud(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.id: finding for finding in diagnosis.findings if finding.severity != "info"}


def _told_by(diagnosis: Diagnosis, causes: set[str]) -> set[int]:
    """The lines of text that tell of these causes, and of what they explain."""
    for finding in diagnosis.findings:
        if finding.id in causes:
            causes = causes | set(finding.explains)
    return {
        item.index
        for finding in diagnosis.findings
        if finding.id in causes
        for item in finding.evidence
        if item.fact == "text.line" and item.index is not None
    }


def _without_lines(snapshot: Snapshot, lines: set[int]) -> Snapshot:
    rows = snapshot.rows("text")
    if not lines or not isinstance(rows, tuple):
        return snapshot
    kept = tuple({**row, "line": ANEW} if place in lines else row for place, row in enumerate(rows))
    return replace(snapshot, groups={**snapshot.groups, "text": kept})


def _as_little_known(before: Snapshot, then: Snapshot) -> Snapshot:
    """The machine as it is, of which no more is known than will be: what comes up on it, no step brought about."""
    facts: dict[str, Fact] = {**before.facts, **{name: fact for name, fact in then.facts.items() if fact == ANEW}}
    groups: dict[str, Rows] = {**before.groups, **{name: rows for name, rows in then.groups.items() if rows == ANEW}}
    return complete(replace(before, facts=facts, groups=groups))


__all__ = ["ANEW", "Foreseen", "Judge", "after", "foreseen", "seen", "tells"]

"""What a plan's steps would bring about: the snapshot as it would be, judged again before anything is run.

`commands` parses pip, uv and conda commands, `packages` applies them to facts, `outlook` is the snapshot being changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Fact, Rows, known
from gpudoctor.core.plan import Foreseen, Plan, PlanStep
from gpudoctor.core.rule import Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.fixes.effects import packages
from gpudoctor.fixes.effects.commands import command_of
from gpudoctor.fixes.effects.outlook import ANEW, Outlook

Judge = Callable[[Snapshot], Diagnosis]
"""Every rule on that snapshot, which is complete: what follows from its facts by the tables is in it."""

EXPERIENCE = (
    *("live", "live_gpu", "measured", "memory_fault", "rung", "rate", "deviation", "collective"),
    *("gpu.tf32_gain", "gpu.at_work"),
)
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
OF_THIS_BOOT = ("xid", "sxid", "aer", "link_loss", "mce", "oom", "stuck", "kernel_log")
"""What the kernel's log tells: it begins anew with a reboot."""
SERVICES = (
    "driver.fabric_manager",
    "driver.fabric_manager_version",
    "driver.persistenced",
    "imex.state",
    "fabric.subnet_manager",
)
"""What a reboot starts, where it is installed."""


def snapshot_after(snapshot: Snapshot, steps: Iterable[Step | PlanStep]) -> Snapshot:
    """Snapshot as it would be after these steps, with derived facts; what they may have changed unseen is Unread."""
    outlook = Outlook(snapshot)
    for step in steps:
        changed = packages.apply_command(outlook, step.argv)
        if changed or step.makes or step.touches != "nothing" or "reboot" in step.needs:
            outlook.forget(EXPERIENCE)
        if "reboot" in step.needs:
            _apply_reboot(outlook)
        for causes, seen in SEEN_THROUGH:
            if any(name == cause or name.startswith(f"{cause}.") for name, _ in step.makes for cause in causes):
                outlook.forget(seen)
        for name, value in step.makes:
            outlook.make(name, value)
    return outlook.whole()


def _apply_reboot(outlook: Outlook) -> None:
    """Forget facts of the former boot and of installed services; the fabric manager's version is that installed, if
    known.
    """
    outlook.forget(OF_THIS_BOOT)
    outlook.forget(name for name in SERVICES if outlook.text(name) != "not installed")
    if installed := known(outlook.facts.get("fabric.installed_version")):
        outlook.put("driver.fabric_manager_version", installed)


def predict(diagnosis: Diagnosis, plan: Plan, judge: Judge) -> Foreseen:
    """Which findings the plan's chosen steps would clear, leave, or bring about, and which stay unknown."""
    steps = [step for step in plan.chosen if not step.verify]
    mended = {step.cause for step in steps if is_foreseeable(step)}
    silent = {step.cause for step in steps if step.cause and step.cause not in mended}
    return compare_findings(diagnosis, snapshot_after(diagnosis.snapshot, steps), judge, mended, silent)


def is_foreseeable(step: Step | PlanStep) -> bool:
    """True if the step's effect is known: it states facts that it makes true, or runs a known package command."""
    return bool(step.makes) or command_of(step.argv) is not None


def compare_findings(
    diagnosis: Diagnosis,
    then: Snapshot,
    judge: Judge,
    mended: Iterable[str] = (),
    silent: Iterable[str] = (),
) -> Foreseen:
    """The diagnosis's findings compared with those of the later snapshot `then`: cleared, staying, new, unjudged.
    `mended` are cured causes, whose log lines no longer count; `silent` are causes whose cure has unknown effects.
    Findings that appear only because a fact must be read again are not new.
    """
    causes = set(mended)
    then = _with_lines_unread(then, _text_lines_of(diagnosis, causes))
    judged = judge(then)
    consequences = {name for finding in diagnosis.findings if finding.id in causes for name in finding.explains}
    if lines := _text_lines_of(judged, consequences):  # folded until now, so that nobody knew which lines told of them
        then = _with_lines_unread(then, lines)
        judged = judge(then)
    before, found = _relevant_findings(diagnosis), _relevant_findings(judged)
    cleared = [name for name in before if name in judged.passed and name not in set(silent)]
    pending = {name for name in before if name not in cleared and (name not in found or name in set(silent))}
    folded = {name: finding.id for finding in before.values() for name in finding.explains}
    new = [name for name in found if name not in before and name not in folded]
    if new:
        new = [
            name for name in new if name not in _relevant_findings(judge(_with_same_unread(diagnosis.snapshot, then)))
        ]
    return Foreseen(
        cleared=tuple(cleared),
        stays=tuple(name for name in found if name not in pending and (name in before or folded.get(name) in cleared)),
        new=tuple(new),
        unjudged=tuple(name for name in before if name in pending),
    )


def _relevant_findings(diagnosis: Diagnosis) -> dict[str, Finding]:
    """Findings by id, without those of severity info."""
    return {finding.id: finding for finding in diagnosis.findings if finding.severity != "info"}


def _text_lines_of(diagnosis: Diagnosis, causes: set[str]) -> set[int]:
    """Indices in the group ``text``, from 0, of log lines that are evidence of these causes or of what they explain."""
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


def _with_lines_unread(snapshot: Snapshot, lines: set[int]) -> Snapshot:
    """The snapshot with these rows of the group ``text`` Unread."""
    rows = snapshot.rows("text")
    if not lines or not isinstance(rows, tuple):
        return snapshot
    kept = tuple({**row, "line": ANEW} if place in lines else row for place, row in enumerate(rows))
    return replace(snapshot, groups={**snapshot.groups, "text": kept})


def _with_same_unread(before: Snapshot, then: Snapshot) -> Snapshot:
    """The snapshot `before` with every fact and group Unread that is to be read again in `then`."""
    facts: dict[str, Fact] = {**before.facts, **{name: fact for name, fact in then.facts.items() if fact == ANEW}}
    groups: dict[str, Rows] = {**before.groups, **{name: rows for name, rows in then.groups.items() if rows == ANEW}}
    return complete(replace(before, facts=facts, groups=groups))

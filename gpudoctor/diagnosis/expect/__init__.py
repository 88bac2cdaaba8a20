"""What a machine must be: a profile of lines, each a fact with what it is to be; a line that is unmet is a finding.

    text -> Profile (reading) -> outcomes on a Snapshot (line_judgements) -> Diagnosis held to it (`held_to`)

A profile is TOML, by hand or from a golden machine (`writing`); those that ship are under ``rules/profiles``. `profile`
has its values, `bounds` limits the time that a foreign profile may take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpudoctor.core.diagnosis import Diagnosis, Finding, Note, verdict_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.expect.bounds import Bounded
from gpudoctor.diagnosis.expect.line_judgements import ConditionJudgement, FactJudgement, Outcome, UnjudgedLine
from gpudoctor.diagnosis.expect.profile import FactLine, Line, Profile, finding_id
from gpudoctor.diagnosis.expect.reading import load
from gpudoctor.diagnosis.expression import Facts
from gpudoctor.diagnosis.judge.folding import sort_key
from gpudoctor.diagnosis.rulebook import Rulebook

__all__ = ["Profile", "held_to", "load"]


# ---- A diagnosis held to a profile ----
# What is unmet joins the findings, under its cause or behind all causes.


def held_to(diagnosis: Diagnosis, profile: Profile, book: Rulebook) -> Diagnosis:
    """The diagnosis with every line of the profile judged as well, and a note that counts those that hold.

    Unmet lines join the findings, under their cause where one explains them; lines that hold and open ones join passed
    and unjudged. Results of an earlier profile are replaced. A line that the level asked for does not measure leaves
    the verdict as it is; any other that cannot be judged makes it unknown, unless an error was found.
    """
    diagnosis = _without_profile_results(diagnosis)
    unmet: list[tuple[Line, Finding]] = []
    open_: list[UnjudgedLine] = []
    held: list[str] = []
    for line, outcome in judge_lines(profile, diagnosis.snapshot):
        if isinstance(outcome, Finding):
            unmet.append((line, outcome))
        elif isinstance(outcome, UnjudgedLine):
            open_.append(outcome)
        else:
            held.append(finding_id(line.name))
    findings = _with_unmet_lines(diagnosis.findings, unmet)
    known = diagnosis.verdict != "unknown" and not any(item.asked for item in open_)
    verdict = verdict_of(findings, known)
    if verdict == "broken":
        findings = [finding for finding in findings if not _is_sound(finding, book)]
    return replace(
        diagnosis,
        findings=tuple(findings),
        verdict=verdict,
        unjudged=(*diagnosis.unjudged, *(item.unjudged for item in open_)),
        passed=(*diagnosis.passed, *held),
        notes=(*diagnosis.notes, _note(profile, len(unmet), open_, held)),
    )


def _without_profile_results(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without the results of any profile; the verdict is unknown where only those made it broken."""
    prefix = finding_id("")
    findings = tuple(
        replace(finding, explains=tuple(child for child in finding.explains if not child.startswith(prefix)))
        for finding in diagnosis.findings
        if not finding.id.startswith(prefix)
    )
    errors = any(finding.severity == "error" for finding in findings)
    return replace(
        diagnosis,
        findings=findings,
        unjudged=tuple(item for item in diagnosis.unjudged if not item.id.startswith(prefix)),
        passed=tuple(rule_id for rule_id in diagnosis.passed if not rule_id.startswith(prefix)),
        notes=tuple(note for note in diagnosis.notes if not any(rule.startswith(prefix) for rule in note.rules)),
        verdict=diagnosis.verdict if errors or diagnosis.verdict != "broken" else "unknown",
    )


def _with_unmet_lines(findings: Sequence[Finding], unmet: Sequence[tuple[Line, Finding]]) -> list[Finding]:
    """The findings and the unmet lines in one order, that of causes; lines of like rank stay in the profile's order.

    A line that a finding `explains` is folded under the first such finding, which becomes an error if the line is one.
    """
    causes = list(findings)
    own: dict[str, Finding] = {}
    for line, finding in unmet:
        at = next((at for at, cause in enumerate(causes) if explains(cause, line, finding)), None)
        if at is None:
            own[finding.id] = finding
        else:
            cause = causes[at]
            severity = "error" if finding.severity == "error" else cause.severity
            causes[at] = replace(cause, explains=tuple(sorted({*cause.explains, finding.id})), severity=severity)
    order = {finding: number for number, finding in enumerate(own)}
    return sorted([*causes, *own.values()], key=lambda item: (*sort_key(item)[:-1], order.get(item.id, -1), item.id))


def _is_sound(finding: Finding, book: Rulebook) -> bool:
    """Whether the finding's rule is one that says all is well; False for a rule that the book does not have."""
    rule = book.find(finding.id)
    return rule is not None and rule.sound


def _note(profile: Profile, unmet: int, open_: Sequence[UnjudgedLine], held: Sequence[str]) -> Note:
    """The note on a held profile, with all its facts: ``As expected by hgx-h100: 14 lines hold, 1 does not.``

    It also counts lines that are not judged, and those for want of a higher level.
    """
    lines = list(profile.lines.values())
    facts = tuple(dict.fromkeys(line.fact for line in lines if isinstance(line, FactLine)))
    text = f"As expected by {profile.name}: {_count_phrase(len(held), 'line holds', 'lines hold')}"
    text += f", {_count_phrase(unmet, 'does not', 'do not')}" if unmet else ""
    text += f", {_count_phrase(len(open_), 'is not judged', 'are not judged')}" if open_ else ""
    later = sum(not item.asked for item in open_)
    text += f" ({later} for want of a higher level)" if later else ""
    return Note(facts, f"{text}.", tuple(finding_id(line.name) for line in lines))


def _count_phrase(count: int, one: str, several: str) -> str:
    """The count and the words `one` or `several` behind it: ``2 lines hold``."""
    return f"{count} {one if count == 1 else several}"


# ---- Every line of a profile judged on a snapshot ----


def judge_lines(profile: Profile, snapshot: Snapshot) -> Iterator[tuple[Line, Outcome]]:
    """Every line of the profile with its outcome: a finding if unmet, an `UnjudgedLine`, or None if it holds.

    All share one budget of evaluation steps.
    """
    evaluator = Bounded(Facts(snapshot))
    for line in profile.lines.values():
        if isinstance(line, FactLine):
            yield line, FactJudgement(line, profile, snapshot, evaluator).outcome()
        else:
            yield line, ConditionJudgement(line, profile, snapshot, evaluator).outcome()


# ---- Which unmet lines are mere consequences of a cause that was found ----
# These are folded under it.

_GPUS = (
    r"gpu\.|gpu_\w+\.|nvlink\.|mig\.|p2p\.|cuda_driver\.|cuda_device\.|live\.|live_gpu\.|measured\.|nvml\.|topology\."
)
_DRIVER = r"driver\.|fabric\.|imex\.|container\.lacks"
_NONE = rf"(?:{_GPUS}|{_DRIVER}|pci\.)"
_CONSEQUENCES: Mapping[str, str] = {
    "host.no-gpu": _NONE,
    "host.other-vendor": _NONE,
    **dict.fromkeys(
        (
            "driver.missing",
            "driver.module-not-built",
            "driver.module-not-loaded",
            "driver.nouveau",
            "driver.secure-boot",
            "driver.version-mismatch",
            "driver.init-failed",
            "driver.gpu-dropped",
            "driver.too-old-for-gpu",
            "driver.open-module-required",
            "driver.device-nodes",
            "nvml.failed",
            "container.no-gpu",
            "container.capabilities",
            "container.cgroup-lost",
            "container.driver-in-image",
            "wsl.libcuda",
            "wsl.linux-driver",
        ),
        rf"(?:{_GPUS}|{_DRIVER})",
    ),
    "gpu.fell-off-bus": rf"(?:{_GPUS}|driver\.bound_count|pci\.)",
    "gpu.reset-required": rf"(?:{_GPUS})",
    "gpu.nvlink-down": r"(?:nvlink\.|gpu\.links|gpu\.fabric_|p2p\.|measured\.)",
    "driver.fabric-manager": r"(?:fabric\.|driver\.fabric_|gpu\.fabric_|nvlink\.|gpu\.links|live|measured\.|cuda_d)",
    "driver.fabric-pending": r"gpu\.fabric_",
    "driver.imex": r"imex\.",
    "driver.cuda-failed": r"(?:cuda_driver\.|cuda_device\.|live|measured\.)",
    "driver.uvm": r"(?:driver\.uvm|cuda_driver\.|cuda_device\.|live|measured\.)",
    "gpu.mig": r"(?:gpu\.mig|mig\.|cuda_d|live|measured\.)",
    "gpu.mig-pending": r"gpu\.mig",
    "gpu.compute-mode": r"gpu\.compute_mode",
    "gpu.ecc": r"gpu\.(?:ecc_|remap|retired|sram|recovery)",
    "gpu.throttled": r"(?:gpu\.(?:throttle|clock_mhz|power)|measured\.)",
    "gpu.slow": r"measured\.",
    "gpu.copies-slow": r"measured\.",
    "gpu.pcie-degraded": r"(?:gpu\.link_|pci\.link_|measured\.)",
    "gpu.pcie-switch": r"(?:pci\.uplink|measured\.)",
    "nccl.infiniband": r"rdma\.",
    "nccl.slow": r"measured\.",
    "nccl.failed": r"measured\.",
    "container.shm": r"limits\.shm",
    "container.shm-small": r"limits\.shm",
    "torch.missing": r"(?:torch\.|live)",
    "torch.cpu-build": r"(?:torch\.|live)",
    "torch.rocm-build": r"(?:torch\.|live)",
    "torch.import-failed": r"live",
    "torch.import-broken": r"live",
    "torch.cuda-unavailable": r"live",
    "torch.driver-too-old": r"live",
    "env.visible-devices": r"(?:cuda_d|live|env\.CUDA_VISIBLE)",
    "env.visible-devices-partial": r"(?:cuda_d|live|env\.CUDA_VISIBLE)",
}
"""The facts, by the beginning of their names, that are not as they should be because of a cause."""


def explains(cause: Finding, line: Line, unmet: Finding) -> bool:
    """Whether the line is unmet because of that cause, by a table of the facts that each cause upsets.

    What is wrong with one GPU does not explain what is wrong with another; guesses and information explain nothing.
    """
    if cause.confidence == "possible" or cause.severity == "info":
        return False
    if cause.about and unmet.about and not unmet.about <= cause.about:
        return False
    pattern = _CONSEQUENCES.get(cause.id)
    facts = [line.fact] if isinstance(line, FactLine) else [_fact_or_group_prefix(item.fact) for item in unmet.evidence]
    return bool(pattern and facts) and all(re.match(pattern or "", fact) for fact in facts)


def _fact_or_group_prefix(name: str) -> str:
    """A fact's name as it is; a group's name with a dot behind it, to be matched as the beginning of its facts."""
    return name if "." in name else f"{name}."

"""What a machine must be: a profile of lines, each a fact with what it is to be; a line that is unmet is a finding.

    text -> Profile (reading) -> outcomes on a Snapshot (judging) -> Diagnosis held to it (holding)

A profile is TOML, by hand or from a golden machine (writing); those that ship are under ``rules/profiles``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpudoctor.expect.bounds import Bounded
from gpudoctor.expect.fact_lines import FactJudgement
from gpudoctor.expect.judgement import Judgement, Open, Outcome
from gpudoctor.expect.profile import ConditionLine, FactLine, Line, Profile, finding_id
from gpudoctor.expect.reading import load
from gpudoctor.expect.words import listed, shown
from gpudoctor.expression import Facts, fill
from gpudoctor.judge.cures import all_hold
from gpudoctor.judge.ranking import place
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Note, Verdict
from gpudoctor.model.fact import Absent, Known, Row, Unread
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge
from gpudoctor.rulebook import Rulebook

__all__ = ["Profile", "held_to", "load"]


# ---- A diagnosis held to a profile ----
# What is unmet joins the findings, under its cause or behind all causes.


def held_to(diagnosis: Diagnosis, profile: Profile, book: Rulebook) -> Diagnosis:
    """The diagnosis with every line of the profile judged as well, and a note that counts those that hold.

    What an earlier profile said of it, as of a host that was held to one already, gives way to what this one says.
    A line that the level asked for does not measure leaves the verdict as it is; any other that cannot be told leaves
    no verdict, unless an error was found.
    """
    diagnosis = _alone(diagnosis)
    unmet: list[tuple[Line, Finding]] = []
    open_: list[Open] = []
    held: list[str] = []
    for line, outcome in judged(profile, diagnosis.snapshot):
        if isinstance(outcome, Finding):
            unmet.append((line, outcome))
        elif isinstance(outcome, Open):
            open_.append(outcome)
        else:
            held.append(finding_id(line.name))
    findings = _with(diagnosis.findings, unmet)
    verdict = _verdict(diagnosis.verdict, findings, any(item.asked for item in open_))
    if verdict == "broken":
        findings = [finding for finding in findings if not _sound(finding, book)]
    return replace(
        diagnosis,
        findings=tuple(findings),
        verdict=verdict,
        unjudged=(*diagnosis.unjudged, *(item.unjudged for item in open_)),
        passed=(*diagnosis.passed, *held),
        notes=(*diagnosis.notes, _note(profile, len(unmet), open_, held)),
    )


def _alone(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without what any profile said."""
    prefix = finding_id("")
    if not any(one.startswith(prefix) for one in _ids(diagnosis)):
        return diagnosis
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
        passed=tuple(one for one in diagnosis.passed if not one.startswith(prefix)),
        notes=tuple(note for note in diagnosis.notes if not any(rule.startswith(prefix) for rule in note.rules)),
        verdict=diagnosis.verdict if errors or diagnosis.verdict != "broken" else "unknown",
    )


def _ids(diagnosis: Diagnosis) -> Iterator[str]:
    yield from diagnosis.passed
    yield from (finding.id for finding in diagnosis.findings)
    yield from (item.id for item in diagnosis.unjudged)
    yield from (child for finding in diagnosis.findings for child in finding.explains)


def _with(findings: Sequence[Finding], unmet: Sequence[tuple[Line, Finding]]) -> list[Finding]:
    """The findings and, in their order, the unmet lines; what a cause explains is folded under it."""
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
    return sorted([*causes, *own.values()], key=lambda one: (*place(one)[:-1], order.get(one.id, -1), one.id))


def _verdict(before: Verdict, findings: Sequence[Finding], unread: bool) -> Verdict:
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "broken"
    if before == "unknown" or unread:
        return "unknown"
    return "impaired" if "warning" in severities else before


def _sound(finding: Finding, book: Rulebook) -> bool:
    """Whether it says that all is well."""
    rule = book.find(finding.id)
    return rule is not None and rule.sound


def _note(profile: Profile, unmet: int, open_: Sequence[Open], held: Sequence[str]) -> Note:
    """``As expected by hgx-h100: 14 lines hold, 1 does not, 2 are not judged.``"""
    lines = list(profile.lines.values())
    facts = tuple(dict.fromkeys(line.fact for line in lines if isinstance(line, FactLine)))
    text = f"As expected by {profile.name}: {_many(len(held), 'line holds', 'lines hold')}"
    text += f", {_many(unmet, 'does not', 'do not')}" if unmet else ""
    text += f", {_many(len(open_), 'is not judged', 'are not judged')}" if open_ else ""
    later = sum(not item.asked for item in open_)
    text += f" ({later} for want of a higher level)" if later else ""
    return Note(facts, f"{text}.", tuple(finding_id(line.name) for line in lines))


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


# ---- Every line of a profile judged on a snapshot ----


def judged(profile: Profile, snapshot: Snapshot) -> Iterator[tuple[Line, Outcome]]:
    """Every line with what came of it; all together have one budget of time."""
    evaluator = Bounded(Facts(snapshot))
    for line in profile.lines.values():
        if isinstance(line, FactLine):
            yield line, FactJudgement(line, profile, snapshot, evaluator).outcome()
        else:
            yield line, ConditionJudgement(line, profile, snapshot, evaluator).outcome()


# ---- A line with conditions as on a rule's page, judged on a snapshot ----
# Of the machine, or of every row of a group.


class ConditionJudgement(Judgement[ConditionLine]):
    """By its conditions, all of which must hold."""

    def outcome(self) -> Outcome:
        """Of the machine, or of every row of the group."""
        line = self.line
        if not line.each:
            return self._whole()
        rows = self.snapshot.rows(line.each)
        if isinstance(rows, Unread):
            return self.open(line.each, rows.why)
        if isinstance(rows, Absent) or not rows:
            evidence = [Evidence(line.each, rows if isinstance(rows, Absent) else Known(0, "number of rows"))]
            title = f"There is no {line.each} here, and {line.name} is about each ({self.profile.name})"
            return self.finding(title, line.told.why, evidence, line.each, ())
        return self._by_row(rows)

    def _whole(self) -> Outcome:
        facts = Facts(self.snapshot)
        self.evaluator.names = facts
        holds = all_hold(self.line.when, self.evaluator)
        if isinstance(holds, CannotJudge):
            return self.open(holds.what, holds.why)
        if holds:
            return None
        return self.finding(self._title("", facts), self.line.told.why, _evidence(facts), "", ())

    def _by_row(self, rows: Sequence[Row]) -> Outcome:
        unmet: list[tuple[int, Facts]] = []
        pending: CannotJudge | None = None
        for index in range(len(rows)):
            facts = Facts(self.snapshot, self.line.each, index)
            self.evaluator.names = facts
            holds = all_hold(self.line.when, self.evaluator)
            if isinstance(holds, CannotJudge):
                pending = pending or holds
            elif not holds:
                unmet.append((index, facts))
        if unmet:
            names = listed(self.line.each, [(index, rows[index]) for index, _ in unmet], len(rows))
            self.evaluator.names = unmet[0][1]
            evidence = [item for _, facts in unmet for item in _evidence(facts)]
            where = [index for index, _ in unmet]
            return self.finding(self._title(names, unmet[0][1]), self.line.told.why, evidence, self.line.each, where)
        return self.open(pending.what, pending.why) if pending else None

    def _title(self, names: str, facts: Facts) -> str:
        on = f"{names}: " if names else ""
        if self.line.says:
            return f"{on}{fill(self.line.says, self.evaluator)} ({self.profile.name})"
        seen = [f"{name} is {shown(state)}" for (name, _), state in facts.touched.items() if "." in name]
        here = f"{', '.join(dict.fromkeys(seen[:4]))}, " if seen else ""
        return f"{on}{here}expected {self._wanted()} ({self.profile.name})"

    def _wanted(self) -> str:
        return " and ".join(self.line.when)


def _evidence(facts: Facts) -> list[Evidence]:
    """What the condition rested on."""
    return [Evidence(name, state, index) for (name, index), state in facts.touched.items()]


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
    """Whether the line is unmet because of that cause, as far as the facts it rests on tell.

    What is wrong with one GPU does not explain what is wrong with another; a guess explains nothing.
    """
    if cause.confidence == "possible" or cause.severity == "info":
        return False
    if cause.about and unmet.about and not unmet.about <= cause.about:
        return False
    pattern = _CONSEQUENCES.get(cause.id)
    facts = [line.fact] if isinstance(line, FactLine) else [_dotted(item.fact) for item in unmet.evidence]
    return bool(pattern and facts) and all(re.match(pattern or "", fact) for fact in facts)


def _dotted(name: str) -> str:
    """A fact's name; of a whole group, such as ``gpu``, its beginning."""
    return name if "." in name else f"{name}."

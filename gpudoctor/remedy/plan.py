"""The plan that cures what a diagnosis found: the first cure of each cause, in the order of the diagnosis.

The other cures stand beside it, left out. A command that two causes want is run once. Nothing is run here.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Known
from gpudoctor.model.plan import Plan, PlanStep, Way
from gpudoctor.model.rule import Step

_WORDS = ("DEFAULT",)
"""Words in capitals that a command takes as they are; any other stands for what only a person knows."""
_FREEZE = {"pip": ("-m", "pip", "freeze"), "uv": ("uv", "pip", "freeze"), "conda": ("conda", "list", "--explicit")}


def of(diagnosis: Diagnosis, only: Collection[str] = (), root: bool = False) -> Plan:
    """The plan for the findings of these ids, or for every cause that is an error or a warning.

    `root` is whether steps that need root can be run. Nothing can be run where the diagnosis is not of this machine.
    """
    builder = _Builder(diagnosis, root)
    causes = _causes(diagnosis, only)
    for name, findings in causes.items():
        builder.cure(name, findings)
    title = ", ".join(causes) if len(causes) <= 2 else f"{len(causes)} causes"
    return builder.plan(title or "nothing to cure")


def _causes(diagnosis: Diagnosis, only: Collection[str]) -> dict[str, list[Finding]]:
    explained = {name for finding in diagnosis.findings for name in finding.explains}
    causes: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        root = finding.id not in explained and finding.severity != "info"
        if finding.fixes and (finding.id in only if only else root):
            causes.setdefault(finding.id, []).append(finding)
    return causes


@dataclass
class _Builder:
    diagnosis: Diagnosis
    root: bool
    steps: list[PlanStep] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)

    def cure(self, name: str, findings: Sequence[Finding]) -> None:
        """The steps of every cure of that cause, one of them chosen, then the look whether it is gone."""
        titles: dict[str, tuple[str, list[Step]]] = {}
        for finding in findings:  # one a GPU: the same cures, each with its own commands
            for fix in finding.fixes:
                _, steps = titles.setdefault(fix.title, (fix.undo, []))
                steps += [step for step in fix.steps if step not in steps]
        best = self._best([steps for _, steps in titles.values()])
        for number, (title, (undo, steps)) in enumerate(titles.items(), 1):
            self.ways.append(Way(name, number, title, undo))
            for step in steps:
                if number != best or not self._planned(step):
                    self.steps.append(_step(step, name, number, chosen=number == best))
        title = f"verify: {name} is gone"
        look = PlanStep("", title, text="Reads again and judges again.", makes_true=title, cause=name, verify=name)
        self.steps.append(look)

    def _best(self, cures: Sequence[Sequence[Step]]) -> int:
        """The number of the cure that another cause's cure brings about as well; else the first."""
        for number, steps in enumerate(cures, 1):
            if all(self._planned(step) for step in steps):
                return number
        return 1

    def _planned(self, step: Step) -> bool:
        """Whether the plan has it already: the same command, or the same words where it is done by hand."""
        return any(
            step.argv == done.argv and (step.argv or step.text == done.text) for done in self.steps if done.chosen
        )

    def plan(self, title: str) -> Plan:
        """All of it, led by a note of what is installed now where packages are changed."""
        snapshot = self.diagnosis.snapshot
        note = _note(self.steps)
        steps = [*([note] if note else []), *self.steps]
        prefix, torch = snapshot.get("python.prefix"), snapshot.get("torch.version")
        changes = any(step.touches == "environment" for step in steps)
        where = str(prefix.value) if isinstance(prefix, Known) else snapshot.target.python or ""
        undo = {step.cause: step.way for step in steps if step.chosen and step.way}
        return Plan(
            title=title,
            machine=snapshot.target.name,
            steps=tuple(
                replace(step, id=str(number), hindrance=self._hindrance(step)) for number, step in enumerate(steps, 1)
            ),
            ways=tuple(self.ways),
            environment=where if changes else "",
            before=(f"torch {torch.value}",) if isinstance(torch, Known) and changes else (),
            undo=tuple(dict.fromkeys(way.undo for way in self.ways if undo.get(way.cause) == way.number and way.undo)),
        )

    def _hindrance(self, step: PlanStep) -> str:
        target = self.diagnosis.snapshot.target
        if target.kind != "local":
            return f"not from here: {target.name or 'the report'} is another machine"
        if step.verify:
            return ""
        if not step.argv:
            return "by hand: done by a person"
        if blank := next(_blanks(step.argv), ""):
            return f"{blank} is to be filled in by you"
        return "needs root, which this is not" if "root" in step.needs and not self.root else ""


def _step(step: Step, cause: str, way: int, chosen: bool) -> PlanStep:
    return PlanStep("", title_of(step), step.argv, step.text, step.needs, step.touches, "", cause, way, chosen=chosen)


def _note(steps: Sequence[PlanStep]) -> PlanStep | None:
    """The step that prints what is installed now, by the tool that is going to change it."""
    for step in steps:
        if step.touches != "environment" or not step.chosen:
            continue
        tool = step.argv[2] if step.argv[1:2] == ("-m",) and len(step.argv) > 2 else PurePath((*step.argv, "")[0]).name
        freeze = _FREEZE.get(tool)
        if not freeze or "venv" in step.argv:
            continue
        python = step.argv[step.argv.index("--python") : step.argv.index("--python") + 2] if tool == "uv" else ()
        argv = (step.argv[0], *freeze) if tool == "pip" else (*freeze, *python)
        return PlanStep("", "note what is installed now", argv, makes_true="the record can tell what was there before")
    return None


def _blanks(argv: Sequence[str]) -> Iterator[str]:
    """Words that stand for what only a person knows: IMAGE, POD."""
    return (word for word in argv if word.isalpha() and word.isupper() and len(word) > 1 and word not in _WORDS)


def title_of(step: Step) -> str:
    """A step in few words: its command without the paths, or the first sentence of what is to be done."""
    if not step.argv:
        return step.text.split(". ")[0].split(": ")[0].rstrip(".")
    words = list(step.argv)
    while len(words) > 1 and words[0] in ("sudo", "env"):
        words = words[1:]
    if words[1:2] == ["-m"] and len(words) > 2:
        words = words[2:]
    words[0] = PurePath(words[0]).name
    return shlex.join(words)

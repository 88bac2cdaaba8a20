"""The plan that cures what a diagnosis found: one cure of each cause, from the ground up, merged into one list.

The other cures stand beside it, left out. A command that two causes want is run once, the machine is started anew once.
Each cause is planned on the machine as the steps before it leave it: what they clear needs no cure of its own, and a
cure that would bring about another error is not offered first. Nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Known, Value, listed
from gpudoctor.model.plan import Change, Plan, PlanStep, Requirement, Way
from gpudoctor.model.rule import LAYERS, Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.remedy import effects
from gpudoctor.remedy.effects import Judge
from gpudoctor.remedy.effects.commands import bare, command_of
from gpudoctor.remedy.planning.cures import Cure, cures_of, same
from gpudoctor.remedy.planning.wording import makes_true, title_of

_FREEZE = {"pip": ("-m", "pip", "freeze"), "uv": ("uv", "pip", "freeze"), "conda": ("conda", "list", "--explicit")}
_ON_RECORD = "the record can tell what was there before"
MOST_FORESEEN = 8
"""Causes up to which each is planned on the machine as the others' steps leave it: a plan is made while one waits."""
_REBOOTS = (("reboot",), ("systemctl", "reboot"))


def of(diagnosis: Diagnosis, only: Collection[str] = (), root: bool = False, judge: Judge | None = None) -> Plan:
    """The plan for the findings of these ids, or for every cause that is an error or a warning.

    `root` is whether steps that need root can be run. Nothing can be run where the diagnosis is not of this machine.
    `judge` is what the rules say of a snapshot: with it cures of up to `MOST_FORESEEN` causes are judged by what they
    would make true.
    """
    causes = _causes(diagnosis, only)
    foresight = judge if len(causes) <= MOST_FORESEEN else None
    builder = _Builder(diagnosis, root, Prospect(diagnosis, foresight), Names(diagnosis.snapshot))
    if judge and not foresight:
        builder.remarks.append(f"{len(causes)} causes at once: what the cure of one does to another was not foreseen")
    for name, findings in causes.items():
        builder.cure(name, findings)
    title = ", ".join(causes) if len(causes) <= 2 else f"{len(causes)} causes"
    return builder.plan(title or say("nothing to cure"))


def _causes(diagnosis: Diagnosis, only: Collection[str]) -> dict[str, list[Finding]]:
    """What is to be cured, from the lowest layer up; within one, in the order of the diagnosis."""
    explained = {name for finding in diagnosis.findings for name in finding.explains}
    causes: dict[str, list[Finding]] = {}
    for finding in sorted(diagnosis.findings, key=lambda finding: _height(finding.layer)):
        root = finding.id not in explained and finding.severity != "info"
        if finding.fixes and (finding.id in only if only else root):
            causes.setdefault(finding.id, []).append(finding)
    return causes


def _height(layer: str) -> int:
    return LAYERS.index(layer) if layer in LAYERS else len(LAYERS)


@dataclass
class _Builder:
    diagnosis: Diagnosis
    root: bool
    prospect: Prospect
    names: Names
    blocks: list[list[PlanStep]] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def cure(self, name: str, findings: Sequence[Finding]) -> None:
        """The steps of every cure of that cause, one of them chosen, then the look whether it is gone."""
        then = self.prospect.findings(name, findings)
        cures, best = self._offered(name, cures_of(then or findings, self.diagnosis.snapshot))
        if not then:
            best = 0
            self.remarks.append(f"{name} is cured by the steps before it")
        block: list[PlanStep] = []
        for number, cure in enumerate(cures, 1):
            self.ways.append(Way(name, number, cure.title, cure.undo))
            wanted = (step for step in cure.steps if number != best or not self._planned(step))
            block += [_step(step, name, number, cure.title, chosen=number == best) for step in wanted]
        title = say("verify: {rule} is gone", rule=name)
        look = PlanStep("", title, text=say("Reads again and judges again."), makes_true=title, cause=name, verify=name)
        self.blocks.append([*block, look])
        self.prospect.take(name, cures[best - 1].steps if best else ())

    def _offered(self, name: str, cures: list[Cure]) -> tuple[list[Cure], int]:
        """The cures, those first that bring about nothing new; and the number of the one to choose, 0 for none."""
        best = self._best(cures)
        first = self.prospect.of(name, cures[0]) if cures else Outcome()
        if not first.adds:
            return cures, best
        told = [(first, cures[0]), *((self.prospect.of(name, cure), cure) for cure in cures[1:])]
        told.sort(key=_rank)
        for outcome, cure in told:
            if outcome.adds:
                self.remarks.append(f"{cure.title} would bring about {', '.join(outcome.adds)}")
        undone = set(told[0][0].adds) & self.prospect.cleared
        if undone:
            self.remarks.append(f"{name} is looked at again first: its cures and that of {min(undone)} are at odds")
        return [cure for _, cure in told], 0 if undone else 1

    def _best(self, cures: Sequence[Cure]) -> int:
        """The number of the cure that another cause's cure brings about as well; else the first."""
        for number, cure in enumerate(cures, 1):
            if all(self._planned(step) for step in cure.steps):
                return number
        return 1

    def _planned(self, step: Step) -> bool:
        """Whether the plan has it already; reboots are brought together at the end."""
        return step.argv not in _REBOOTS and any(same(step, done) for done in self.prospect.steps)

    def plan(self, title: str) -> Plan:
        """All of it, led by a note of what is installed now where packages are changed."""
        snapshot = self.diagnosis.snapshot
        steps = [self._safe(step) for step in _arranged(self.blocks)]
        note = _note(steps)
        steps = [*([note] if note else []), *steps]
        prefix, torch = snapshot.get("python.prefix"), snapshot.get("torch.version")
        changes = any(step.touches == "environment" for step in steps)
        where = str(prefix.value) if isinstance(prefix, Known) else snapshot.target.python or ""
        undo = {step.cause: step.way for step in steps if step.chosen and step.way}
        return Plan(
            title=title,
            machine=snapshot.target.name,
            steps=tuple(
                replace(step, id=str(number), hindrance=self._hindrance(step), requires=requires(step, where))
                for number, step in enumerate(_changing(snapshot, steps), 1)
            ),
            ways=tuple(self.ways),
            environment=where if changes else "",
            before=(f"torch {torch.value}",) if isinstance(torch, Known) and changes else (),
            undo=tuple(dict.fromkeys(way.undo for way in self.ways if undo.get(way.cause) == way.number and way.undo)),
            remarks=tuple(dict.fromkeys(self.remarks)),
        )

    def _safe(self, step: PlanStep) -> PlanStep:
        """The step, done by hand where a name that was read from the machine cannot stand in a command."""
        why = self.names.refuse(step.argv)
        return replace(step, argv=(), title="by hand", text=f"Not run: {why}. {step.text}".strip()) if why else step

    def _hindrance(self, step: PlanStep) -> str:
        target = self.diagnosis.snapshot.target
        if target.kind != "local":
            return say("not from here: {machine} is another machine", machine=target.name or say("the report"))
        if step.verify:
            return ""
        if not step.argv:
            return "by hand: done by a person"
        if blank := next(blanks(step.argv), ""):
            return f"{blank} is to be filled in by you"
        return "needs root, which this is not" if "root" in step.needs and not self.root else ""


def _rank(told: tuple[Outcome, Cure]) -> int:
    """Which cure to prefer: one that clears its cause and adds nothing; last those that say nothing of what they do."""
    outcome, cure = told
    if outcome.adds:
        return 2
    return 0 if outcome.clears else 1 if any(map(effects.tells, cure.steps)) else 3


def _step(step: Step, cause: str, way: int, cure: str, chosen: bool) -> PlanStep:
    return PlanStep(
        "",
        title_of(step),
        step.argv,
        step.text,
        step.needs,
        step.touches,
        makes_true=makes_true(step, cure),
        cause=cause,
        way=way,
        chosen=chosen,
        makes=step.makes,
    )


def _arranged(blocks: Sequence[Sequence[PlanStep]]) -> Iterator[PlanStep]:
    """Block after block; where some start the machine anew, that is done once, when all of them are ready for it."""
    starting = [place for place, block in enumerate(blocks) if any(map(_reboots, block))]
    together = starting[-1] + 1 if len(starting) > 1 else 0
    behind: list[PlanStep] = []
    reboots: list[PlanStep] = []
    for block in blocks[:together]:
        cut = next((place for place, step in enumerate(block) if _reboots(step) or step.verify), len(block))
        yield from block[:cut]
        reboots += filter(_reboots, block[cut : cut + 1])
        behind += block[cut + 1 :] if any(map(_reboots, block[cut : cut + 1])) else block[cut:]
    if reboots:
        makes = {name: value for step in reboots for name, value in step.makes}
        yield replace(reboots[-1], makes=tuple(makes.items()))
    yield from behind
    for block in blocks[together:]:
        yield from block


def _reboots(step: PlanStep) -> bool:
    return step.chosen and step.argv in _REBOOTS


def _changing(snapshot: Snapshot, steps: Sequence[PlanStep]) -> Iterator[PlanStep]:
    """The chosen steps with the packages that each changes, from one version to another."""
    done: list[PlanStep] = []
    before = _versions(snapshot)
    for step in steps:
        if not step.chosen or step.touches != "environment" or not step.argv:
            done += [step] if step.chosen else []
            yield step
            continue
        done.append(step)
        now = _versions(effects.after(snapshot, done))
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        yield replace(step, changes=tuple(Change(name, before.get(name, ""), now.get(name, "")) for name in names))
        before = now


def _versions(snapshot: Snapshot) -> dict[str, str]:
    """The packages that are installed, as far as they are known; torch first."""
    torch = snapshot.get("torch.version")
    found = {"torch": str(torch.value)} if isinstance(torch, Known) else {}
    for row in listed(snapshot.rows("package")):
        name, version = row.get("name"), row.get("version")
        if isinstance(name, Known) and isinstance(version, Known):
            found.setdefault(str(name.value), str(version.value))
    return found


def _note(steps: Sequence[PlanStep]) -> PlanStep | None:
    """The step that prints what is installed now, by the tool that is going to change it."""
    for step in steps:
        if step.touches != "environment" or not step.chosen or not step.argv:
            continue
        tool = step.argv[2] if step.argv[1:2] == ("-m",) and len(step.argv) > 2 else PurePath(step.argv[0]).name
        freeze = _FREEZE.get(tool)
        if not freeze or "venv" in step.argv:
            continue
        python = step.argv[step.argv.index("--python") : step.argv.index("--python") + 2] if tool == "uv" else ()
        argv = (step.argv[0], *freeze) if tool == "pip" else (*freeze, *python)
        return PlanStep("", say("note what is installed now"), argv, makes_true=say(_ON_RECORD))
    return None


# ---- What keeps a step from being run, and what must hold before it ----

_WORDS = ("DEFAULT",)
"""Words in capitals that a command takes as they are; any other stands for what only a person knows."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SHELL = re.compile(r"[;&|`$<>(){}'\"\\*?!#\s]")
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(\[[\w.,-]+\])?((===?|[<>~!]=|[<>=])[\w.+!*]+(,\s?[<>~!=]{1,3}[\w.+!*]+)*(=[\w.*]+)?)?"
)
_PLACE = re.compile(r"([\w.-]+ @ )?https?://\S+|[/~.\\].*|[A-Za-z]:[\\/].*")
"""A URL, a wheel by its URL, or a path; none begins with what a program would take for an option."""


def blanks(argv: Sequence[str]) -> Iterator[str]:
    """Words that stand for what only a person knows: IMAGE, POD."""
    return (word for word in argv if word.isalpha() and word.isupper() and len(word) > 1 and word not in _WORDS)


class Names:
    """The names and paths that a snapshot holds: whoever wrote it chose them, and no word of a command may be one that
    a program would take for something else.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        values = [fact.value for fact in snapshot.facts.values() if isinstance(fact, Known)]
        for group, rows in snapshot.groups.items():
            if group != "text" and isinstance(rows, tuple):
                values += [fact.value for row in rows for fact in row.values() if isinstance(fact, Known)]
        told = {text for value in values for text in _texts(value)}
        self.options = {text for text in told if text.startswith("-")}
        self.scripts = {text for text in told if len(text) > 2 and _SHELL.search(text)}

    def refuse(self, argv: Sequence[str]) -> str:
        """Why these words are no command to run; empty where they are one."""
        for word in argv:
            if _UNPRINTABLE.search(word.replace("\n", " ") if argv[:2] == ("sh", "-c") else word):
                return f"{word[:40]!r} holds characters that do not show"
            if any(word == option or word.endswith(f"={option}") for option in self.options):
                return f"{word[:40]!r} was read from the machine and would be taken for an option"
        if argv and PurePath(argv[0]).name in ("sh", "bash"):
            return self._refuse_script(" ".join(argv[2:]))
        return _no_package(argv)

    def _refuse_script(self, script: str) -> str:
        """Why a shell must not see this script: what was read from the machine would be more than a word in it."""
        spoilt = next((text for text in self.scripts if text in script), "")
        spoilt = spoilt or next((word for word in script.split() if word in self.options), "")
        return f"{spoilt[:40]!r} was read from the machine, and a shell would take it apart" if spoilt else ""


def _no_package(argv: Sequence[str]) -> str:
    """Of a package command: the word that is neither a package, a path, a URL nor an option."""
    if command_of(argv) is None:
        return ""
    for word in argv[1:]:
        if not word.startswith("-") and not _REQUIREMENT.fullmatch(word) and not _PLACE.fullmatch(word):
            return f"{word[:40]!r} is no package, path or address"
    return ""


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


def requires(step: PlanStep, environment: str) -> tuple[Requirement, ...]:
    """What must hold before that step: its program is there, its environment can be written to and is as it was."""
    if not step.argv:
        return ()
    program = next(iter(bare(step.argv)), "")
    wanted = [Requirement("program", program)] if program and not program.startswith(".") else []
    command = command_of(step.argv)
    if command and environment and not command.creates and step.touches == "environment":
        wanted += [Requirement("writable", environment), Requirement("unchanged", environment)]
    return tuple(wanted)


# ---- The machine as the steps planned so far would leave it ----
# What is to be cured there, and what a cure would add.


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cure would come to: the findings that it would bring about or back, and whether it clears its own."""

    adds: tuple[str, ...] = ()
    clears: bool = False


@dataclass
class Prospect:
    """Steps are taken into it cause by cause. Without a `judge` nothing is foreseen: every cause has its own cure."""

    diagnosis: Diagnosis
    judge: Judge | None
    steps: tuple[Step, ...] = ()
    causes: frozenset[str] = frozenset()
    cleared: frozenset[str] = frozenset()

    def take(self, cause: str, steps: Sequence[Step]) -> None:
        """These steps are part of the plan, for that cause."""
        self.steps = (*self.steps, *steps)
        self.causes |= {cause} if any(map(effects.tells, steps)) else frozenset()
        if self.judge and steps:
            self.cleared = frozenset(self._seen(self.steps, self.causes).cleared)

    def findings(self, cause: str, found: Sequence[Finding]) -> Sequence[Finding]:
        """The findings of that cause as they would be then, with the cures that would then be offered; none where the
        steps taken so far clear it. Where that can be judged only on the machine, those found now.
        """
        if not self.judge or not self.steps:
            return found
        if cause in self.cleared:
            return ()
        then = self.judge(effects.after(self.diagnosis.snapshot, self.steps))
        return [finding for finding in then.findings if finding.id == cause and finding.fixes] or found

    def of(self, cause: str, cure: Cure) -> Outcome:
        """What this cure would come to after the steps taken so far."""
        if not self.judge:
            return Outcome()
        mended = {cause} if any(map(effects.tells, cure.steps)) else set()
        seen = self._seen((*self.steps, *cure.steps), self.causes | mended)
        adds = (*seen.new, *(name for name in seen.stays if name in self.cleared))
        return Outcome(adds, clears=cause in seen.cleared)

    def _seen(self, steps: Sequence[Step], causes: frozenset[str]) -> effects.Foreseen:
        assert self.judge is not None
        then = effects.after(self.diagnosis.snapshot, steps)
        return effects.seen(self.diagnosis, then, self.judge, mended=causes)

"""The plan that cures what a diagnosis found: one cure of each cause, from the ground up, merged into one list.

The other cures stand beside it, left out. A command that two causes want is run once, the machine is started anew once.
Each cause is planned on the machine as the steps before it leave it: what they clear needs no cure of its own, and a
cure that would bring about another error is not offered first. Nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Value, listed, value_of
from gpudoctor.core.language import say
from gpudoctor.core.plan import Change, Foreseen, Plan, PlanStep, Requirement, Way
from gpudoctor.core.rule import LAYERS, Fix, SetupPage, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.system import program_name
from gpudoctor.diagnosis.knowledge.builds import packages_of
from gpudoctor.fixes import effects
from gpudoctor.fixes.cures import Cure, cures_of, effect_text, same, title_of
from gpudoctor.fixes.effects import Judge
from gpudoctor.fixes.effects.commands import bare, command_of

_LISTINGS: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "pip": lambda python: (python or "python", "-m", "pip", "freeze"),
    "uv": lambda python: ("uv", "pip", "freeze", *(("--python", python) if python else ())),
    "conda": lambda prefix: ("conda", "list", "--explicit", *(("--prefix", prefix) if prefix else ())),
}
"""By tool: the command that lists the packages of the environment that is named, or of the one in use."""
_ON_RECORD = "the record can tell what was there before"
MOST_FORESEEN = 8
"""Causes up to which each is planned on the machine as the others' steps leave it: a plan is made while one waits."""
_REBOOTS = (("reboot",), ("systemctl", "reboot"))


def plan_for(diagnosis: Diagnosis, only: Collection[str] = (), root: bool = False, judge: Judge | None = None) -> Plan:
    """Plan for the findings with ids in `only`, or for every cause that is an error or warning if that is empty; those
    without a fix are left out. `root`: steps that need root can be run.

    `judge` re-evaluates the rules, so that cures are chosen by their effects; with more than `MOST_FORESEEN` causes it
    is not asked, and a remark says so. Nothing can be run if the diagnosis is not of this machine.
    """
    causes = _causes(diagnosis, only)
    foresight = judge if len(causes) <= MOST_FORESEEN else None
    builder = _PlanBuilder(diagnosis, root, Prospect(diagnosis, foresight), Names(diagnosis.snapshot))
    if judge and not foresight:
        builder.remarks.append(f"{len(causes)} causes at once: what the cure of one does to another was not foreseen")
    for name, findings in causes.items():
        builder.cure(name, findings)
    title = ", ".join(causes) if len(causes) <= 2 else f"{len(causes)} causes"
    return builder.plan(title or say("nothing to cure"))


def _causes(diagnosis: Diagnosis, only: Collection[str]) -> dict[str, list[Finding]]:
    """Findings that have a fix, by rule id, from the lowest layer up: those with an id in `only`, or, if that is empty,
    those that no other finding explains and that are not info.
    """
    explained = {name for finding in diagnosis.findings for name in finding.explains}
    causes: dict[str, list[Finding]] = {}
    for finding in sorted(diagnosis.findings, key=lambda finding: LAYERS.index(finding.layer)):
        root = finding.id not in explained and finding.severity != "info"
        if finding.fixes and (finding.id in only if only else root):
            causes.setdefault(finding.id, []).append(finding)
    return causes


@dataclass
class _PlanBuilder:
    """Collects the steps of each cause and builds the plan."""

    diagnosis: Diagnosis
    root: bool
    prospect: Prospect
    names: Names
    blocks: list[list[PlanStep]] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def cure(self, name: str, findings: Sequence[Finding]) -> None:
        """Add a cause to the plan: the steps of each of its cures, of which one is chosen (none if earlier steps clear
        the cause), and the step that verifies it.
        """
        then = self.prospect.findings(name, findings)
        cures, best = self._ranked_cures(name, cures_of(then or findings, self.diagnosis.snapshot))
        if not then:
            best = 0
            self.remarks.append(f"{name} is cured by the steps before it")
        block: list[PlanStep] = []
        for number, cure in enumerate(cures, 1):
            self.ways.append(Way(name, number, cure.title, cure.undo))
            wanted = (step for step in cure.steps if number != best or not self._planned(step))
            block += [_plan_step(step, name, number, cure.title, chosen=number == best) for step in wanted]
        title = say("verify: {rule} is gone", rule=name)
        look = PlanStep("", title, text=say("Reads again and judges again."), makes_true=title, cause=name, verify=name)
        self.blocks.append([*block, look])
        self.prospect.add_steps(name, cures[best - 1].steps if best else ())

    def _ranked_cures(self, name: str, cures: list[Cure]) -> tuple[list[Cure], int]:
        """(cures in order of preference, number of the one to choose, from 1): as given, and one whose steps are all
        planned already, else the first. If the first would add findings, all are sorted by predicted effect, what they
        add goes to `remarks`, and the number is 1; 0 if even the best would bring back a cleared cause.
        """
        best = next((number for number, cure in enumerate(cures, 1) if all(map(self._planned, cure.steps))), 1)
        first = self.prospect.outcome_of(name, cures[0]) if cures else Outcome()
        if not first.adds:
            return cures, best
        ranked = [(first, cures[0]), *((self.prospect.outcome_of(name, cure), cure) for cure in cures[1:])]
        ranked.sort(key=_preference)
        for outcome, cure in ranked:
            if outcome.adds:
                self.remarks.append(f"{cure.title} would bring about {', '.join(outcome.adds)}")
        undone = set(ranked[0][0].adds) & self.prospect.cleared
        if undone:
            self.remarks.append(f"{name} is looked at again first: its cures and that of {min(undone)} are at odds")
        return [cure for _, cure in ranked], 0 if undone else 1

    def _planned(self, step: Step) -> bool:
        """True if the plan already has an equal step; reboots never count."""
        return step.argv not in _REBOOTS and any(same(step, done) for done in self.prospect.steps)

    def plan(self, title: str) -> Plan:
        """The complete plan with this title; if packages change, it starts with a step that lists those installed."""
        snapshot = self.diagnosis.snapshot
        steps = [self._refused_as_manual(step) for step in _with_single_reboot(self.blocks)]
        if listing := _listing_step(steps):
            steps.insert(0, listing)
        torch = snapshot.text("torch.version")
        changes = any(step.touches == "environment" for step in steps)
        where = snapshot.text("python.prefix") or snapshot.target.python or ""
        undo = {step.cause: step.way for step in steps if step.chosen and step.way}
        return Plan(
            title=title,
            machine=snapshot.target.name,
            steps=tuple(
                replace(step, id=str(number), hindrance=self._hindrance(step), requires=requires(step, where))
                for number, step in enumerate(_with_changes(snapshot, steps), 1)
            ),
            ways=tuple(self.ways),
            environment=where if changes else "",
            before=(f"torch {torch}",) if torch and changes else (),
            undo=tuple(dict.fromkeys(way.undo for way in self.ways if undo.get(way.cause) == way.number and way.undo)),
            remarks=tuple(dict.fromkeys(self.remarks)),
        )

    def _refused_as_manual(self, step: PlanStep) -> PlanStep:
        """The step; without its command, to be done by hand, if a name read from the machine is unsafe in it."""
        why = self.names.refuse(step.argv)
        return replace(step, argv=(), title="by hand", text=f"Not run: {why}. {step.text}".strip()) if why else step

    def _hindrance(self, step: PlanStep) -> str:
        """Why the step cannot be run from here: another machine, by hand, a blank to fill in, a new conda environment,
        or no root. ``""`` if it can.
        """
        target = self.diagnosis.snapshot.target
        if target.kind != "local":
            return say("not from here: {machine} is another machine", machine=say(target.name or "the report"))
        if step.verify:
            return ""
        if not step.argv:
            return "by hand: done by a person"
        if blank := next(blanks(step.argv), ""):
            return f"{blank} is to be filled in by you"
        command = command_of(step.argv)
        if command and command.tool == "conda" and command.creates:
            return "makes another environment of conda's: run it yourself, and name its Python with --python"
        return "needs root, which this is not" if "root" in step.needs and not self.root else ""


def _preference(option: tuple[Outcome, Cure]) -> int:
    """Sort key of (outcome, cure), best first: 0 clears its cause, 1 does not, 2 adds findings, 3 effects unknown."""
    outcome, cure = option
    if outcome.adds:
        return 2
    return 0 if outcome.clears else 1 if any(map(effects.is_foreseeable, cure.steps)) else 3


def _plan_step(step: Step, cause: str, number: int, cure: str, chosen: bool) -> PlanStep:
    """Plan step, without an id yet, for one step of cure `number` of the cause; `cure` is the cure's title."""
    return PlanStep(
        "",
        title_of(step),
        step.argv,
        step.text,
        step.needs,
        step.touches,
        makes_true=effect_text(step, cure),
        cause=cause,
        way=number,
        chosen=chosen,
        makes=step.makes,
    )


def _with_single_reboot(blocks: Sequence[Sequence[PlanStep]]) -> Iterator[PlanStep]:
    """Steps of all blocks in order; several reboots are merged into one, after the steps that must precede it."""
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
    """True if the step is chosen and restarts the machine."""
    return step.chosen and step.argv in _REBOOTS


def _with_changes(snapshot: Snapshot, steps: Sequence[PlanStep]) -> Iterator[PlanStep]:
    """The steps in order; each chosen one that changes packages has in `changes` their versions before and after."""
    done: list[PlanStep] = []
    before = _versions(snapshot)
    for step in steps:
        if not step.chosen or step.touches != "environment" or not step.argv:
            done += [step] if step.chosen else []
            yield step
            continue
        done.append(step)
        now = _versions(effects.snapshot_after(snapshot, done))
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        yield replace(step, changes=tuple(Change(name, before.get(name, ""), now.get(name, "")) for name in names))
        before = now


def _versions(snapshot: Snapshot) -> dict[str, str]:
    """Installed versions by package name as the snapshot has them, torch first."""
    torch = snapshot.text("torch.version")
    versions = {"torch": torch} if torch else {}
    for name, version in packages_of(listed(snapshot.rows("package"))):
        versions.setdefault(name, version)
    return versions


def _listing_step(steps: Sequence[PlanStep]) -> PlanStep | None:
    """Step that lists the packages of the first existing environment that chosen steps change, by the tool of that
    step; None if they change none, or only new ones.
    """
    made: tuple[str, ...] = ()
    for step in steps:
        command = command_of(step.argv) if step.touches == "environment" and step.chosen else None
        if command and command.creates:
            made = (*made, command.creates)
        elif command and not command.python.startswith(made):
            listing = _LISTINGS[command.tool](command.python)
            return PlanStep("", say("note what is installed now"), listing, makes_true=say(_ON_RECORD))
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
    """Words of the command in upper case that a person must replace: IMAGE, POD."""
    return (word for word in argv if word.isalpha() and word.isupper() and len(word) > 1 and word not in _WORDS)


class Names:
    """Names and paths read into a snapshot, which are untrusted: guards against their misuse in commands."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Collect the texts of all facts and rows, log lines excepted."""
        values = [value_of(fact) for fact in snapshot.facts.values()]
        for group, rows in snapshot.groups.items():
            if group != "text" and isinstance(rows, tuple):
                values += [value_of(fact) for row in rows for fact in row.values()]
        texts = {text for value in values for text in _texts(value)}
        self.options = {text for text in texts if text.startswith("-")}
        self.scripts = {text for text in texts if len(text) > 2 and _SHELL.search(text)}

    def refuse(self, argv: Sequence[str]) -> str:
        """Why the command is unsafe to run (invisible characters, a name from the machine that acts as an option or in
        a shell, a package word that is none); ``""`` if it is safe.
        """
        for word in argv:
            if _UNPRINTABLE.search(word.replace("\n", " ") if argv[:2] == ("sh", "-c") else word):
                return f"{word[:40]!r} holds characters that do not show"
            if any(word == option or word.endswith(f"={option}") for option in self.options):
                return f"{word[:40]!r} was read from the machine and would be taken for an option"
        if argv and program_name(argv[0]) in ("sh", "bash"):
            return self._refuse_script(" ".join(argv[2:]))
        return _refuse_package_word(argv)

    def _refuse_script(self, script: str) -> str:
        """Reason why a shell script is unsafe: it holds text from the machine with shell characters; else ``""``."""
        spoilt = next((text for text in self.scripts if text in script), "")
        spoilt = spoilt or next((word for word in script.split() if word in self.options), "")
        return f"{spoilt[:40]!r} was read from the machine, and a shell would take it apart" if spoilt else ""


def _refuse_package_word(argv: Sequence[str]) -> str:
    """Why a package manager's command is unsafe: a word that is no package, path, URL or option; ``""`` if none."""
    if command_of(argv) is None:
        return ""
    for word in argv[1:]:
        if not word.startswith("-") and not _REQUIREMENT.fullmatch(word) and not _PLACE.fullmatch(word):
            return f"{word[:40]!r} is no package, path or address"
    return ""


def _texts(value: Value) -> Iterator[str]:
    """All strings in a value, at any depth; keys of mappings are left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


def requires(step: PlanStep, environment: str) -> tuple[Requirement, ...]:
    """Conditions that must hold before the step: its program exists (not asked of one whose name begins with a dot)
    and, if it changes packages of an existing environment, `environment` is writable and unchanged. Empty for a step by
    hand.
    """
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
    """Effect of a cure: findings it would add or bring back, and whether it clears its own cause."""

    adds: tuple[str, ...] = ()
    clears: bool = False


@dataclass
class Prospect:
    """The machine as the steps planned so far would leave it. Without a `judge` effects are not predicted."""

    diagnosis: Diagnosis
    judge: Judge | None
    steps: tuple[Step, ...] = ()
    causes: frozenset[str] = frozenset()
    cleared: frozenset[str] = frozenset()

    def add_steps(self, cause: str, steps: Sequence[Step]) -> None:
        """Take these steps, chosen for that cause, as done from now on, and predict which findings they clear."""
        self.steps = (*self.steps, *steps)
        self.causes |= {cause} if any(map(effects.is_foreseeable, steps)) else frozenset()
        if self.judge and steps:
            self.cleared = frozenset(self._predicted(self.steps, self.causes).cleared)

    def findings(self, cause: str, current: Sequence[Finding]) -> Sequence[Finding]:
        """The cause's findings after the steps taken so far: none if those clear it, `current` if that is not predicted
        or its rule then has no finding.
        """
        if not self.judge or not self.steps:
            return current
        if cause in self.cleared:
            return ()
        then = self.judge(effects.snapshot_after(self.diagnosis.snapshot, self.steps))
        return [finding for finding in then.findings if finding.id == cause and finding.fixes] or current

    def outcome_of(self, cause: str, cure: Cure) -> Outcome:
        """Predicted effect of this cure after the steps taken so far; an empty `Outcome` without a judge."""
        if not self.judge:
            return Outcome()
        mended = {cause} if any(map(effects.is_foreseeable, cure.steps)) else set()
        seen = self._predicted((*self.steps, *cure.steps), self.causes | mended)
        adds = (*seen.new, *(name for name in seen.stays if name in self.cleared))
        return Outcome(adds, clears=cause in seen.cleared)

    def _predicted(self, steps: Sequence[Step], causes: frozenset[str]) -> Foreseen:
        """Findings cleared, staying and new once these steps are done, by the rules; `causes` are what they cure."""
        assert self.judge is not None
        then = effects.snapshot_after(self.diagnosis.snapshot, steps)
        return effects.compare_findings(self.diagnosis, then, self.judge, mended=causes)


# ---- The plan that sets something up ----


def setup_plan(page: SetupPage, fixes: Sequence[Fix], snapshot: Snapshot, root: bool = False) -> Plan:
    """Plan that sets something up: the steps of all fixes, of which only the first fix is chosen. No verify steps."""
    name = f"setup {page.id}"
    asked = Finding(
        id=name,
        layer="host",
        severity="error",
        role="cause",
        confidence="certain",
        title=page.title,
        why="",
        evidence=(),
        fixes=tuple(fixes),
        references=page.sources,
    )
    made = plan_for(Diagnosis(snapshot, "unknown", (asked,), (), (), ""), (name,), root)
    return replace(made, title=page.title, steps=tuple(step for step in made.steps if not step.verify))

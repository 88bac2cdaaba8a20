"""The cures of one cause, in the order in which they are offered, and each of their steps in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.fact import Json
from gpudoctor.core.language import say
from gpudoctor.core.rule import Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.system import program_name, shell_line
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expression import NOT_KNOWN
from gpudoctor.fixes.effects.commands import Command, bare, command_of


@dataclass(frozen=True, slots=True)
class Cure:
    """One way to cure a cause: its steps for all rows that were found."""

    title: str
    steps: tuple[Step, ...]
    undo: str = ""


def cures_of(findings: Iterable[Finding], snapshot: Snapshot) -> list[Cure]:
    """Cures of the findings of one cause (one finding per row), in order; those with the same title are merged."""
    found: dict[str, Cure] = {}
    for finding in findings:
        for fix in finding.fixes:
            cure = found.setdefault(fix.title, Cure(fix.title, (), fix.undo))
            steps = tuple(replace(step, makes=tuple(_per_row(step.makes, finding, snapshot))) for step in fix.steps)
            found[fix.title] = replace(cure, steps=merged(cure.steps, steps))
    return list(found.values())


def merged(steps: Sequence[Step], more: Iterable[Step]) -> tuple[Step, ...]:
    """The steps, and those of `more` that are not among them; equal steps have their effects combined."""
    out = list(steps)
    for step in more:
        place = next((place for place, earlier in enumerate(out) if same(earlier, step)), None)
        if place is None:
            out.append(step)
        else:
            out[place] = replace(out[place], makes=tuple({**dict(out[place].makes), **dict(step.makes)}.items()))
    return tuple(out)


def same(a: Step, b: Step) -> bool:
    """True if both run the same command, or, without a command, have the same text."""
    return a.argv == b.argv and (bool(a.argv) or a.text == b.text)


def _per_row(makes: Iterable[tuple[str, Json]], finding: Finding, snapshot: Snapshot) -> Iterator[tuple[str, Json]]:
    """Effects, a group's column once for each row found, as ``gpu[2].mig_pending``; unchanged where none is found."""
    for name, value in makes:
        group, _, column = name.rpartition(".")
        spec = catalog().find(name)
        rows = finding.rows_of(group, snapshot) if spec and spec.group else []
        if rows:
            yield from ((f"{group}[{row}].{column}", value) for row in rows)
        else:
            yield name, value


# ---- A step in few words: its title, and what it makes true ----

_FIRST = re.compile(r"\. |: |。|：")
"""Ends a step's first few words, in whatever language."""


_VERSIONS_AT_LEAST = ("driver.version", "driver.module_version", "driver.module_disk_version", "driver.library_version")


def title_of(step: Step) -> str:
    """Short title of a step: its command without folders and ``sudo``, or the first sentence of its text."""
    if not step.argv:
        return _FIRST.split(step.text)[0].rstrip(".")
    words = bare(step.argv)
    if words[1:2] == ["-m"] and len(words) > 2:
        words = words[2:]
    words[0] = program_name(words[0])
    return shell_line(words)


def effect_text(step: Step, cure: str) -> str:
    """Short text of a step's effect: packages installed or removed, else facts set, else a reboot, else which cure it
    is part of, or that it only looks; ``""`` if it has neither effect nor command.
    """
    if command := command_of(step.argv):
        return _package_effect(command)
    effects = [
        fact_sentence(name, value) for name, value in step.makes if not (isinstance(value, str) and NOT_KNOWN in value)
    ]
    if effects:
        return say("; ").join(dict.fromkeys(effects))
    if "reboot" in step.needs:
        return say("the machine runs what was installed")
    return say("part of: {cure}", cure=cure) if step.touches != "nothing" else say("it only looks") if step.argv else ""


def fact_sentence(name: str, value: Json) -> str:
    """One fact as a sentence: ``driver.module_loaded is true``, ``env.LD_LIBRARY_PATH is not there any more``.

    A driver's version is the oldest that its branch has; packages bring a newer one of it.
    """
    if isinstance(value, dict) and "absent" in value:
        return say("{name} is not there any more", name=name)
    if isinstance(value, dict):
        return say("{name} is read again", name=name)
    if isinstance(value, bool):
        return say("{name} is {value}", name=name, value="true" if value else "false")
    if isinstance(value, list) and not value:
        return say("{name} is empty", name=name)
    if isinstance(value, list):
        return say("{name} is {value}", name=name, value=", ".join(map(str, value)))
    if name in _VERSIONS_AT_LEAST:
        return say("{name} is {value} or newer", name=name, value=value)
    return say("{name} is {value}", name=name, value=value)


def _package_effect(command: Command) -> str:
    """Sentence naming the packages that the command installs or removes."""
    names = ", ".join(f"{package.name} {package.version}".rstrip() for package in command.wanted)
    several = len(command.wanted) > 1
    if command.removes:
        return say("{names} are taken away" if several else "{names} is taken away", names=names)
    named = any("+" in package.version for package in command.wanted)
    if command.build not in ("", "auto") and not named and names:
        names = say("{names} of the build {build}", names=names, build=command.build)
    if not command.creates:
        return say("{names} are there" if several else "{names} is there", names=names)
    sentence = "the environment {folder} with {names} is there" if names else "the environment {folder} is there"
    return say(sentence, folder=command.creates, names=names)

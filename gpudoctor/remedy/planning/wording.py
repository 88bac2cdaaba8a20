"""A step in few words: its title, and what it makes true."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from gpudoctor.expression import NOT_KNOWN
from gpudoctor.language import say
from gpudoctor.model.fact import Json
from gpudoctor.model.rule import Step
from gpudoctor.remedy.effects.commands import Command, bare, command_of

_FIRST = re.compile(r"\. |: |。|：")
"""Ends a step's first few words, in whatever language."""


def title_of(step: Step) -> str:
    """A step in few words: its command without the paths, or the first sentence of what is to be done."""
    if not step.argv:
        return _FIRST.split(step.text)[0].rstrip(".")
    words = bare(step.argv)
    if words[1:2] == ["-m"] and len(words) > 2:
        words = words[2:]
    words[0] = PurePath(words[0]).name
    return shlex.join(words)


def makes_true(step: Step, cure: str) -> str:
    """What it brings about: the packages that come and go, else the facts of its page; of a look, that it is one.

    Of a step that says nothing of this, which cure it is a part of.
    """
    if command := command_of(step.argv):
        return _packages(command)
    said = [fact(name, value) for name, value in step.makes if not (isinstance(value, str) and NOT_KNOWN in value)]
    if said:
        return "; ".join(dict.fromkeys(said))
    if "reboot" in step.needs:
        return say("the machine runs what was installed")
    return f"part of: {cure}" if step.touches != "nothing" else say("it only looks") if step.argv else ""


def fact(name: str, value: Json) -> str:
    """One fact in words: ``driver.module_loaded is true``, ``env.LD_LIBRARY_PATH is not there any more``."""
    if isinstance(value, dict) and "absent" in value:
        return f"{name} is not there any more"
    if isinstance(value, dict):
        return f"{name} is read again"
    if isinstance(value, bool):
        return f"{name} is {'true' if value else 'false'}"
    if isinstance(value, list):
        return f"{name} is {', '.join(map(str, value)) or 'empty'}"
    return f"{name} is {value}"


def _packages(command: Command) -> str:
    names = ", ".join(f"{one.name} {one.version}".rstrip() for one in command.wanted)
    where = f"the environment {command.creates}" if command.creates else ""
    if command.removes:
        return f"{names} {'are' if len(command.wanted) > 1 else 'is'} taken away"
    named = any("+" in one.version for one in command.wanted)
    build = f" of the build {command.build}" if command.build not in ("", "auto") and not named else ""
    there = " with ".join(part for part in (where, f"{names}{build}" if names else "") if part)
    return f"{there} {'are' if len(command.wanted) > 1 and not where else 'is'} there"

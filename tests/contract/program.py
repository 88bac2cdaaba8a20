"""What the command line and the Python names promise: commands, options and their values; functions and parameters."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, cast

import gpudoctor
from gpudoctor.app import output
from gpudoctor.app.arguments import parser

CODES = ("SOUND", "BROKEN", "MISUSE", "UNKNOWN", "DIFFERENT", "INTERRUPTED", "UNHEARD")
_MORE = {"1": ("+", "*", "?"), "+": ("*",), "?": ("*",)}
"""How many values may be taken now where so many were."""


def commands(of: argparse.ArgumentParser | None = None, name: str = "gpudoctor") -> dict[str, Any]:
    """Every command by its words, with what may be typed behind it."""
    of = of or parser()
    found: dict[str, Any] = {name: [_typed(action) for action in of._actions if not _is_group(action)]}
    for action in filter(_is_group, of._actions):
        parsers: Mapping[str, argparse.ArgumentParser] = cast(Any, action.choices)
        for word, command in parsers.items():
            found |= commands(command, f"{name} {word}")
    return found


def _is_group(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _typed(action: argparse.Action) -> dict[str, Any]:
    """An option or an argument: its names, how many values it takes, of which choices, and whether it must be there."""
    return {
        "names": list(action.option_strings) or [str(action.metavar or action.dest)],
        "option": bool(action.option_strings),
        "values": str(action.nargs) if action.nargs is not None else "1",
        "choices": [str(choice) for choice in action.choices] if action.choices else None,
        "required": action.required,
    }


def codes() -> dict[str, int]:
    """The exit codes by name."""
    return {name.lower(): int(getattr(output, name)) for name in CODES}


def functions() -> dict[str, Any]:
    """Public names; of functions the parameters, in order, and whether each must be given."""
    return {name: _parameters(getattr(gpudoctor, name)) for name in gpudoctor.__all__}


def _parameters(thing: object) -> list[list[Any]] | None:
    if not inspect.isfunction(thing):
        return None
    return [[one.name, one.default is one.empty] for one in inspect.signature(thing).parameters.values()]


def breakages(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What could be typed, or called, and cannot any more."""
    for command, before in old["commands"].items():
        if command not in new["commands"]:
            yield f"{command}: is gone"
            continue
        after = new["commands"][command]
        for one in before:
            yield from _lost(command, one, after)
        names = {name for one in before for name in one["names"]}
        for one in after:
            if one["required"] and not names & set(one["names"]):
                yield f"{command} {one['names'][0]}: is new, and must be given"
    for name, code in old["codes"].items():
        if new["codes"].get(name) != code:
            yield f"exit code {name}: was {code}, is {new['codes'].get(name)} now"
    for name, parameters in old["functions"].items():
        yield from _uncallable(name, parameters, new["functions"])


def _lost(command: str, one: Mapping[str, Any], after: list[Mapping[str, Any]]) -> Iterator[str]:
    for name in one["names"]:
        place = f"{command} {name}"
        now = next((other for other in after if name in other["names"]), None)
        if now is None:
            yield f"{place}: is gone"
            continue
        if now["values"] not in (one["values"], *_MORE.get(one["values"], ())):
            yield f"{place}: took {one['values']} values, takes {now['values']} now"
        if now["required"] and not one["required"]:
            yield f"{place}: must be given now"
        if now["choices"] is not None:
            gone = [choice for choice in one["choices"] or ["any word"] if choice not in now["choices"]]
            yield from (f"{place}: {choice} is no choice any more" for choice in gone)


def _uncallable(name: str, parameters: list[list[Any]] | None, after: Mapping[str, Any]) -> Iterator[str]:
    if name not in after:
        yield f"gpudoctor.{name}: is gone"
        return
    now = after[name] or []
    for at, (parameter, needed) in enumerate(parameters or ()):
        if now[at : at + 1] != [[parameter, needed]] and now[at : at + 1] != [[parameter, False]]:
            yield f"gpudoctor.{name}: {parameter} is gone, elsewhere, or must be given now"
    for parameter, needed in now[len(parameters or ()) :] if parameters is not None else ():
        if needed:
            yield f"gpudoctor.{name}: {parameter} is new, and must be given"

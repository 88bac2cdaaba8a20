"""All that is promised, as this version has it and as 1.0 had it, and what of it is broken."""

import argparse
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

import gpudoctor
from gpudoctor.app import output
from gpudoctor.app.arguments import parser
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.views import prometheus, schema
from tests.views.tui.machines import diagnosis_of

HOME = Path(__file__).parent / "1.0"
_SCHEMA, _PROGRAM, _NAMES = "schema-", "program", "names"


@cache
def now() -> dict[str, Any]:
    """By the names of files: schemas of documents, what can be typed and called, names that scripts hold on to."""
    kinds = {f"{_SCHEMA}{kind}": json.loads(schema.text(kind)) for kind in schema._KINDS}
    typed = {"commands": commands(), "codes": codes(), "functions": functions()}
    return {**kinds, _PROGRAM: typed, _NAMES: _names()}


def _names() -> dict[str, Any]:
    """Ids of rules, facts with their kinds, and metrics with their labels."""
    metrics = text_string_to_metric_families(prometheus.render(diagnosis_of("throttled-heat-h100"), 1.0, 1.0) + "\n")
    return {
        "rules": sorted(rule.id for rule in rulebook.load().rules),
        "facts": {name: spec.kind for name, spec in sorted(catalog().specs.items())},
        "metrics": {one.name: sorted(one.samples[0].labels) for one in metrics},
    }


def stored() -> dict[str, Any]:
    """As 1.0 promised it."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(HOME.glob("*.json"))}


def write() -> None:
    """Make what is promised now the promise of 1.0."""
    HOME.mkdir(exist_ok=True)
    for name, promise in now().items():
        (HOME / f"{name}.json").write_text(f"{json.dumps(promise, indent=1, ensure_ascii=True)}\n", "utf-8")


def breakages(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Every promise of `old` that `new` does not keep."""
    for name, promise in old.items():
        if name not in new:
            yield f"{name}: is gone"
        elif name.startswith(_SCHEMA):
            yield from schema_breakages(promise, new[name], name.removeprefix(_SCHEMA))
        elif name == _PROGRAM:
            yield from program_breakages(promise, new[name])
        else:
            yield from _lost_names(promise, new[name])


def _lost_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"rule {name}: is gone" for name in old["rules"] if name not in new["rules"])
    for what in ("facts", "metrics"):
        for name, said in old[what].items():
            now = new[what].get(name)
            if now is None:
                yield f"{what} {name}: is gone"
            elif now != said and not (isinstance(said, list) and set(said) <= set(now)):
                yield f"{what} {name}: was {said}, is {now} now"


Schema = Mapping[str, Any]

_SAID = {"type", "enum", "const", "pattern", "properties", "required", "items", "additionalProperties", "oneOf"}
_SAID |= {"minItems", "minimum", "maxItems", "maximum"}
_ABOUT = {"$schema", "title", "description"}
_JSON = {"null", "boolean", "integer", "number", "string", "array", "object"}


def schema_breakages(old: Schema, new: Schema, at: str = "document") -> Iterator[str]:
    """What is broken, each in a sentence that names the place: ``document.findings[].severity: ...``."""
    if unknown := sorted((old.keys() | new.keys()) - _SAID - _ABOUT):
        yield f"{at}: {', '.join(unknown)} is not compared; teach tests.contract"
    yield from _types(old, new, at)
    yield from _words(old, new, at)
    yield from _bounds(old, new, at)
    yield from _keys(old, new, at)
    yield from _variants(old, new, at)
    for keyword, place in (("items", f"{at}[]"), ("additionalProperties", f"{at}.*")):
        if keyword in old and keyword not in new:
            yield f"{place}: anything is allowed now"
        elif keyword in old:
            yield from schema_breakages(old[keyword], new[keyword], place)


def _types(old: Schema, new: Schema, at: str) -> Iterator[str]:
    before, after = _type(old), _type(new)
    if wider := sorted(after - before):
        yield f"{at}: was {_listed(before)}, may be {', '.join(wider)} now"
    elif before != after and not (before - after) <= {"null", "number"}:
        yield f"{at}: was {_listed(before)}, is {_listed(after)} now"


def _type(schema: Schema) -> set[str]:
    """The types that a value may have; a number may be whole."""
    if "type" in schema:
        said = schema["type"]
        types = set(said if isinstance(said, list) else [said])
    elif "enum" in schema or "const" in schema:
        names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
        types = {names[type(value)] for value in schema.get("enum", [schema.get("const")])}
    elif "oneOf" in schema:
        types = set().union(*(_type(variant) for variant in schema["oneOf"]))
    else:
        return set(_JSON)
    return types | ({"integer"} if "number" in types else set())


def _listed(types: set[str]) -> str:
    return "anything" if types == _JSON else ", ".join(sorted(types - ({"integer"} if "number" in types else set())))


def _words(old: Schema, new: Schema, at: str) -> Iterator[str]:
    """Vocabularies, constants and patterns."""
    if "enum" in old:
        allowed = new.get("enum", [new["const"]] if "const" in new else None)
        if allowed is None:
            yield f"{at}: any word is allowed now"
        else:
            yield from (f"{at}: {word!r} is gone" for word in old["enum"] if word not in allowed)
            yield from (f"{at}: {word!r} is new in a closed vocabulary" for word in allowed if word not in old["enum"])
    for keyword in ("const", "pattern"):
        if keyword in old and old[keyword] != new.get(keyword):
            yield f"{at}: {keyword} {old[keyword]!r} is {new.get(keyword)!r} now"


def _bounds(old: Schema, new: Schema, at: str) -> Iterator[str]:
    for keyword, sign in (("minimum", 1), ("minItems", 1), ("maximum", -1), ("maxItems", -1)):
        if keyword in old and (keyword not in new or sign * new[keyword] < sign * old[keyword]):
            yield f"{at}: {keyword} was {old[keyword]}, is {new.get(keyword, 'not there')} now"


def _keys(old: Schema, new: Schema, at: str) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for key, promised in before.items():
        if key not in after:
            yield f"{at}.{key}: is gone"
        else:
            yield from schema_breakages(promised, after[key], f"{at}.{key}")
    for key in old.get("required", ()):
        if key in after and key not in new.get("required", ()):
            yield f"{at}.{key}: was always there, may be left out now"


def _variants(old: Schema, new: Schema, at: str) -> Iterator[str]:
    """Each shape of before is still there, and none is new."""
    if "oneOf" not in old:
        return
    before, after = old["oneOf"], new.get("oneOf", [new])
    for shape in before:
        if not any(not list(schema_breakages(shape, other)) for other in after):
            yield f"{at}: the shape {_shape(shape)} is gone, or another"
    for shape in after:
        if not any(not list(schema_breakages(other, shape)) for other in before):
            yield f"{at}: the shape {_shape(shape)} is new"


def _shape(schema: Schema) -> str:
    """Its keys, or its type."""
    return "{" + ", ".join(schema["properties"]) + "}" if "properties" in schema else _listed(_type(schema))


CODES = ("SOUND", "BROKEN", "MISUSE", "UNKNOWN", "DIFFERENT", "INTERRUPTED")
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
    """The exit codes by the names that 1.0 gave them."""
    return {**{name.lower(): int(getattr(output, name)) for name in CODES}, "unheard": output.BROKEN_PIPE}


def functions() -> dict[str, Any]:
    """Public names; of functions the parameters, in order, and whether each must be given."""
    return {name: _parameters(getattr(gpudoctor, name)) for name in gpudoctor.__all__}


def _parameters(thing: object) -> list[list[Any]] | None:
    if not inspect.isfunction(thing):
        return None
    return [[one.name, one.default is one.empty] for one in inspect.signature(thing).parameters.values()]


def program_breakages(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
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

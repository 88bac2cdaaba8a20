"""One page: from what TOML gave to a `Rule` and its cases, refusing what does not belong on a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gpudoctor.model.frozen import replace
from gpudoctor.model.near import meant
from gpudoctor.model.rule import (
    CONFIDENCES,
    LAYERS,
    PREVALENCES,
    SEVERITIES,
    Case,
    Fix,
    Part,
    Role,
    Rule,
    Scope,
    Sign,
    Step,
)
from gpudoctor.rulebook.spot import Spot


def rule_of(raw: Mapping[str, Any], origin: str) -> Rule:
    """A page as a value; raises `RuleError` for a key that is missing, unknown or of the wrong kind."""
    page = Spot(origin)
    only(raw, _KEYS, page)
    for key, what in _REQUIRED.items():
        if key not in raw:
            raise page.broken(f"{key} is missing: {what}")
    for key in _TEXTS:
        if key in raw:
            text(raw, key, page)
    for key in _SWITCHES:
        if not isinstance(raw.get(key, False), bool):
            raise page.key(key).broken(f"{key} is true or false, not {raw[key]!r}")
    layer = raw.get("layer", Path(origin).parent.name)
    if layer not in LAYERS:
        raise page.key("layer").broken(
            f"layer {layer!r} is none of {', '.join(LAYERS)}: name the folder by it, or write layer = ... on the page"
        )
    return Rule(
        id=raw["id"],
        layer=layer,
        title=raw["title"],
        severity=_one_of(raw, "severity", SEVERITIES, "", page),
        role=_one_of(raw, "role", get_args(Role), "cause", page),
        finding=raw["finding"],
        why=raw["why"],
        misses=raw["misses"],
        sources=texts(raw, "sources", page),
        confidence=_one_of(raw, "confidence", CONFIDENCES, "certain", page),
        prevalence=_one_of(raw, "prevalence", PREVALENCES, "usual", page),
        sound=raw.get("sound", False),
        several=raw.get("several", False),
        each=raw.get("each", ""),
        subjects=texts(raw, "subjects", page),
        explains=texts(raw, "explains", page),
        when=texts(raw, "when", page),
        unless=texts(raw, "unless", page),
        signs=tuple(sign_of(sign, page.entry("sign", at)) for at, sign in enumerate(tables(raw, "sign", page))),
        fixes=tuple(fix_of(fix, page.entry("fix", at)) for at, fix in enumerate(tables(raw, "fix", page))),
        confirm=raw.get("confirm", ""),
        origin=origin,
        scope=_one_of(raw, "scope", get_args(Scope), "machine", page),
    )


_REQUIRED = {
    "id": 'as in id = "site.no-quota", which names the file, too',
    "title": "the problem as a heading, without values",
    "severity": f"one of {', '.join(SEVERITIES)}",
    "finding": "the sentence to say, with facts in braces",
    "why": "what follows from it, and why",
    "misses": "what the page will not catch",
    "sources": "a list of texts: where this is documented",
}
_TEXTS = ("id", "title", "finding", "why", "misses", "layer", "each", "confirm")
_SWITCHES = ("sound", "several")
_KEYS = (
    "id layer title severity role finding why misses sources confidence prevalence sound several each"
    " subjects explains let when unless sign fix case confirm origin scope"
)


def only(raw: Mapping[str, Any], keys: str, where: Spot) -> None:
    """Raise `RuleError` where `raw` has another key than these, which a blank parts."""
    known = keys.split()
    for key in raw:
        if key not in known:
            raise where.key(key).broken(f"unknown key {key!r}{meant(key, known) or f'; there are {_listed(known)}'}")


def _listed(words: Iterable[object]) -> str:
    return ", ".join(map(str, words))


def sign_of(raw: Mapping[str, Any], where: Spot) -> Sign:
    """A ``[[sign]]`` entry; raises `RuleError`."""
    only(raw, "match weight when finding compiled", where)
    match = _needed(raw, "match", where)
    conclusive = _one_of(raw, "weight", ("conclusive", "suggestive"), None, where) == "conclusive"
    sign = Sign(match, conclusive, texts(raw, "when", where), raw.get("finding", ""))
    return compiled_sign(sign, *raw["compiled"]) if "compiled" in raw else sign


def compiled_sign(sign: Sign, needles: Sequence[Sequence[str]], goes_on: bool, ways: Sequence[Any]) -> Sign:
    """The sign with what was worked out from its pattern when the pages were compiled."""

    def part_of(own: str | Sequence[int], words: Sequence[Sequence[str]], on: bool, reach: int) -> Part:
        return Part(own if isinstance(own, str) else sign.match[slice(*own)], _sets(words), on, reach)

    parts = tuple(tuple(part_of(*part) for part in way) for way in ways)
    return replace(sign, needles=_sets(needles), goes_on=goes_on, ways=parts)


def _sets(needles: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, needles))


def fix_of(raw: Mapping[str, Any], where: Spot) -> Fix:
    """A ``[[fix]]`` entry; raises `RuleError` where it has neither steps nor what is set up, or both."""
    only(raw, "title when steps undo setup", where)
    title = _needed(raw, "title", where)
    if ("setup" in raw) == ("steps" in raw):
        raise where.broken(f"the fix {title!r} has steps, or says what is set up")
    steps = tuple(_step(step, where.key("steps")) for step in tables(raw, "steps", where))
    return Fix(title, steps, texts(raw, "when", where), raw.get("undo", ""), raw.get("setup", ""))


def _step(raw: Mapping[str, Any], where: Spot) -> Step:
    only(raw, "argv text needs touches makes when", where)
    return Step(
        texts(raw, "argv", where),
        raw.get("text", ""),
        texts(raw, "needs", where),
        raw.get("touches", "nothing"),
        tuple(raw.get("makes", {}).items()),
        texts(raw, "when", where),
    )


_VERDICTS = ("finds", "passes", "unjudged")


def cases_on(raw: Mapping[str, Any], path: Path) -> tuple[Case, ...]:
    """The page's ``[[case]]`` entries."""
    page = Spot(path)
    return tuple(_case(entry, raw, page.entry("case", at), path) for at, entry in enumerate(tables(raw, "case", page)))


def _case(entry: Mapping[str, Any], raw: Mapping[str, Any], where: Spot, path: Path) -> Case:
    name = _needed(entry, "name", where)
    where = where.called(f"case {name!r}")
    only(entry, f"name facts report {' '.join(_VERDICTS)}", where)
    if len([key for key in _VERDICTS if key in entry]) != 1:
        raise where.broken(f"it says what comes of it, by one of {_listed(_VERDICTS)}")
    if not {"facts", "report"} & set(entry):
        raise where.broken("it has facts, or the report that somebody pasted")
    facts = entry.get("facts", {})
    if not isinstance(facts, Mapping):
        raise where.key("facts").broken(f'facts is a table, {{ "driver.version" = "580.95.05" }}, not {facts!r}')
    return Case(
        raw.get("id", ""),
        name,
        facts,
        entry.get("report", ""),
        entry.get("finds"),
        entry.get("passes", False),
        entry.get("unjudged"),
        raw.get("scope", "machine"),
        str(path),
    )


def _needed(raw: Mapping[str, Any], key: str, where: Spot) -> str:
    """The text under `key`; raises `RuleError` where there is none."""
    if key not in raw:
        raise where.broken(f"{key} is missing")
    return text(raw, key, where)


def text(raw: Mapping[str, Any], key: str, where: Spot) -> str:
    """The text under `key`; raises `RuleError` where it is something else."""
    value = raw[key]
    if not isinstance(value, str):
        raise where.key(key).broken(f"{key} is text, in quotes, not {value!r}")
    return value


def texts(raw: Mapping[str, Any], key: str, where: Spot) -> tuple[str, ...]:
    """The list of texts under `key`; raises `RuleError` where it is something else."""
    value = raw.get(key, ())
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(item, str) for item in value):
        instead = f": write {key} = [{json.dumps(value)}]" if isinstance(value, str) else ""
        raise where.key(key).broken(f"{key} is a list of texts{instead}")
    return tuple(value)


def tables(raw: Mapping[str, Any], key: str, where: Spot) -> Sequence[Mapping[str, Any]]:
    """The tables under `key`; raises `RuleError` where it is something else."""
    value = raw.get(key, ())
    if isinstance(value, (str, Mapping)) or not all(isinstance(item, Mapping) for item in value):
        written = f"{key} = [{{ ... }}]" if key == "steps" else f"[[{key}]]"
        raise where.key(key).broken(f"{key} is a list of tables, each written {written}")
    return value  # type: ignore[no-any-return]


def _one_of(raw: Mapping[str, Any], key: str, allowed: Sequence[Any], otherwise: Any, where: Spot) -> Any:
    value = raw.get(key, otherwise)
    if value not in allowed:
        said = f"{key} is missing: one of" if key not in raw else f"{key} is {value!r}, which is none of"
        raise where.key(key).broken(f"{said} {_listed(allowed)}")
    return value

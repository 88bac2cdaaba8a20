"""One page: from what TOML gave to a `Rule` and its cases, refusing what does not belong on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gpudoctor.model.errors import RuleError
from gpudoctor.model.frozen import replace
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


def rule_of(raw: Mapping[str, Any], origin: str) -> Rule:
    """A page as a value; raises `RuleError` for a key that is missing, unknown or of the wrong kind."""
    unknown = set(raw) - _KEYS
    if unknown:
        raise RuleError(f"{origin}: unknown key {sorted(unknown)[0]!r}")
    try:
        rule_id = str(raw["id"])
        rule = Rule(
            id=rule_id,
            layer=raw.get("layer", Path(origin).parent.name),
            title=raw["title"],
            severity=_one_of(raw["severity"], SEVERITIES, origin),
            role=_one_of(raw.get("role", "cause"), get_args(Role), origin),
            finding=raw["finding"],
            why=raw["why"],
            misses=raw["misses"],
            sources=tuple(raw["sources"]),
            confidence=_one_of(raw.get("confidence", "certain"), CONFIDENCES, origin),
            prevalence=_one_of(raw.get("prevalence", "usual"), PREVALENCES, origin),
            sound=raw.get("sound", False),
            open=raw.get("open", False),
            several=raw.get("several", False),
            each=raw.get("each", ""),
            about=raw.get("about", ""),
            explains=texts(raw, "explains", origin),
            when=texts(raw, "when", origin),
            unless=texts(raw, "unless", origin),
            signs=tuple(sign_of(sign, origin) for sign in raw.get("sign", ())),
            fixes=tuple(fix_of(fix, origin) for fix in raw.get("fix", ())),
            confirm=raw.get("confirm", ""),
            origin=origin,
            scope=_one_of(raw.get("scope", "machine"), get_args(Scope), origin),
        )
    except KeyError as error:
        raise RuleError(f"{origin}: {error.args[0]!r} is missing") from error
    except TypeError as error:
        raise RuleError(f"{origin}: {error}") from error
    if rule.layer not in LAYERS:
        raise RuleError(f"{origin}: layer {rule.layer!r} is none of {', '.join(LAYERS)}")
    return rule


_KEYS = frozenset(
    [
        "id",
        "layer",
        "title",
        "severity",
        "role",
        "finding",
        "why",
        "misses",
        "sources",
        "said",
        "confidence",
        "prevalence",
        "sound",
        "open",
        "several",
        "each",
        "about",
        "explains",
        "when",
        "unless",
        "sign",
        "fix",
        "case",
        "confirm",
        "origin",
        "scope",
    ]
)


def only(raw: Mapping[str, Any], keys: str, origin: str) -> None:
    """Raise `RuleError` where `raw` has another key than these, which a blank parts."""
    unknown = set(raw) - set(keys.split())
    if unknown:
        raise RuleError(f"{origin}: unknown key {sorted(unknown)[0]!r}; there are {', '.join(keys.split())}")


def sign_of(raw: Mapping[str, Any], origin: str) -> Sign:
    """A ``[[sign]]`` entry; raises `RuleError`."""
    only(raw, "match weight when finding compiled", origin)
    weight = _one_of(raw["weight"], ("conclusive", "suggestive"), origin)
    conclusive = weight == "conclusive"
    sign = Sign(raw["match"], conclusive, texts(raw, "when", origin), raw.get("finding", ""))
    return compiled_sign(sign, *raw["compiled"]) if "compiled" in raw else sign


def compiled_sign(sign: Sign, needles: Sequence[Sequence[str]], goes_on: bool, ways: Sequence[Any]) -> Sign:
    """The sign with what was worked out from its pattern when the pages were compiled."""
    parts = tuple(tuple(Part(match, _sets(words), on, reach) for match, words, on, reach in way) for way in ways)
    return replace(sign, needles=_sets(needles), goes_on=goes_on, ways=parts)


def _sets(needles: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, needles))


def fix_of(raw: Mapping[str, Any], origin: str) -> Fix:
    """A ``[[fix]]`` entry; raises `RuleError` where it has neither steps nor what is set up, or both."""
    only(raw, "title when steps undo setup", origin)
    if ("setup" in raw) == ("steps" in raw):
        raise RuleError(f"{origin}: a fix has steps, or says what is set up")
    for step in raw.get("steps", ()):
        only(step, "argv text needs touches makes when", origin)
    steps = tuple(
        Step(
            texts(step, "argv", origin),
            step.get("text", ""),
            texts(step, "needs", origin),
            step.get("touches", "nothing"),
            tuple(step.get("makes", {}).items()),
            texts(step, "when", origin),
        )
        for step in raw.get("steps", ())
    )
    return Fix(raw["title"], steps, texts(raw, "when", origin), raw.get("undo", ""), raw.get("setup", ""))


def cases_on(raw: Mapping[str, Any], path: Path) -> tuple[Case, ...]:
    """The page's ``[[case]]`` entries."""
    out = []
    for entry in raw.get("case", ()):
        verdicts = [key for key in ("finds", "passes", "unjudged") if key in entry]
        if "name" not in entry or len(verdicts) != 1 or not {"facts", "report"} & set(entry):
            raise RuleError(f"{path}: a case needs a name, facts or a report, and one of finds, passes, unjudged")
        only(entry, "name facts report finds passes unjudged", str(path))
        facts = entry.get("facts", {})
        out.append(
            Case(
                raw.get("id", ""),
                entry["name"],
                facts,
                entry.get("report", ""),
                entry.get("finds"),
                entry.get("passes", False),
                entry.get("unjudged"),
                raw.get("scope", "machine"),
            )
        )
    return tuple(out)


def texts(raw: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...]:
    """The list of texts under `key`; raises `RuleError` where it is something else."""
    value = raw.get(key, ())
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(item, str) for item in value):
        raise RuleError(f"{origin}: {key} is a list of texts")
    return tuple(value)


def _one_of(value: Any, allowed: Sequence[Any], origin: str) -> Any:
    if value not in allowed:
        raise RuleError(f"{origin}: {value!r} is none of {', '.join(map(str, allowed))}")
    return value

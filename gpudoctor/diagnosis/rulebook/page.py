"""One page: its file, the place on it of what is wrong, and what TOML gave as a `Rule` and its cases.

What does not belong on a page is refused. TOML's readers keep no lines, so the text of a wrong page is searched again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gpudoctor.core.errors import RuleError
from gpudoctor.core.language import OTHERS, meant, say
from gpudoctor.core.rule import (
    CONFIDENCES,
    LAYERS,
    PREVALENCES,
    SEVERITIES,
    Case,
    Detail,
    Fix,
    Part,
    Proof,
    Role,
    Rule,
    Scope,
    Sign,
    Step,
)
from gpudoctor.diagnosis import page_cache

# ---- Which files of a folder are pages ----
# Not the tables, the shared cures or the translations.

SETUP = "setup"
_NO_PAGES = ("profiles", "tables", SETUP, *OTHERS)


def page_files(place: Path) -> list[Path]:
    """The rule pages under the folder, sorted; a page by itself gives that page, whatever its folder is called.

    Tables, profiles, setup pages and translations are none: those below the folder, and those that ship.
    """
    if place.is_file():
        there = place.resolve()
        if there.parent.name in _NO_PAGES and there.is_relative_to(page_cache.home().resolve()):
            return []
        return [place if place.parent.name not in {"", ".."} else place.resolve()]  # its folder names its layer
    found = (path for path in place.rglob("*.toml") if not set(path.relative_to(place).parts[:-1]) & set(_NO_PAGES))
    return sorted(found)


def origin_of(path: Path, place: Path) -> str:
    """The page's path for messages and keys: ``driver/driver.missing.toml``; `place` is the folder searched."""
    return path.relative_to(path.parent.parent if place.is_file() else place).as_posix()


# ---- Where on a page something stands ----


class Spot:
    """A place on a page for error messages, found by text; prints as ``FILE:LINE`` with the place's name."""

    def __init__(self, origin: str | Path, near: tuple[str, ...] = (), name: str = "") -> None:
        self._origin = origin
        self._near = near
        self._name = name

    def key(self, name: str) -> Spot:
        """The place behind this one where that key, or a table of that name, is written."""
        word = re.escape(name)
        return self._at(rf"(?:^|[{{,])\s*[\"']?{word}[\"']?\s*=|^\s*\[{word}\]")

    def entry(self, name: str, number: int) -> Spot:
        """The place behind this one of the entry of that number, from 0, under ``[[name]]``."""
        return self._at(rf"(?:^\s*\[\[{name}\]\](?s:.*?)){{{number}}}^\s*\[\[{name}\]\]")

    def text(self, words: str) -> Spot:
        """The place behind this one where this text is written, also with TOML's escapes."""
        escaped = words.replace("\\", "\\\\").replace('"', '\\"')
        return self._at(f"{re.escape(words)}|{re.escape(escaped)}")

    def called(self, name: str) -> Spot:
        """The same place, under that name in messages."""
        return Spot(self._origin, self._near, name)

    def _at(self, pattern: str) -> Spot:
        """The place behind this one where the page's text matches the pattern (multi-line)."""
        return Spot(self._origin, (*self._near, pattern), self._name)

    def broken(self, problem: str) -> RuleError:
        """The `RuleError` to raise for a problem at this place: ``FILE:LINE: PROBLEM``."""
        return RuleError(f"{self}: {problem}")

    def __str__(self) -> str:
        line = self._line()
        place = f"{self._origin}:{line}" if line else str(self._origin)
        return f"{place}: {self._name}" if self._name else place

    def _line(self) -> int:
        """The line number, from 1; 0 for the page as a whole or where nothing is found."""
        if not self._near:
            return 0
        try:
            page = Path(self._origin).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return 0
        found = 0
        for pattern in self._near:
            if match := re.compile(pattern, re.MULTILINE).search(page, found):
                found = match.end()
        return page.count("\n", 0, found) + 1 if found else 0


def with_correction(problem: str, instead: str | None) -> str:
    """The message, with what to write instead where that is clear."""
    return problem if instead is None else say("{problem}: write {instead}", problem=problem, instead=instead)


# ---- What TOML gave, as a rule and its cases ----


def rule_of(raw: Mapping[str, Any], origin: str) -> Rule:
    """The rule that the page's mapping gives, without cases; raises `RuleError` for a missing, unknown or wrong key.

    `origin` is the page's path; its folder is the layer where the page names none.
    """
    page = Spot(origin)
    refuse_unknown_keys(raw, _KEYS, page)
    for key, what in _REQUIRED.items():
        if key not in raw:
            raise page.broken(say("{key} is missing: {what}", key=key, what=say(what)))
    for key in _TEXTS:
        if key in raw:
            text(raw, key, page)
    for key in _SWITCHES:
        if not isinstance(raw.get(key, False), bool):
            raise page.key(key).broken(say("{key} is true or false, not {value}", key=key, value=repr(raw[key])))
    layer = raw.get("layer", Path(origin).parent.name)
    if layer not in LAYERS:
        problem = "layer {layer} is none of {names}: name the folder by it, or write layer = ... on the page"
        raise page.key("layer").broken(say(problem, layer=repr(layer), names=_comma_list(LAYERS)))
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
        proofs=tuple(proof_of(item, page.key("proof")) for item in tables(raw, "proof", page)),
        details=details_of(raw, page),
        signs=tuple(sign_of(sign, page.entry("sign", at)) for at, sign in enumerate(tables(raw, "sign", page))),
        fixes=tuple(fix_of(fix, page.entry("fix", at)) for at, fix in enumerate(tables(raw, "fix", page))),
        confirm=raw.get("confirm", ""),
        confirm_windows=raw.get("confirm_windows", ""),
        origin=origin,
        scope=_one_of(raw, "scope", get_args(Scope), "machine", page),
    )


_REQUIRED = {
    "id": 'as in id = "site.no-quota", which names the file, too',
    "title": "the problem as a heading, without values",
    "severity": "one of error, warning, info",
    "finding": "the sentence to say, with facts in braces",
    "why": "what follows from it, and why",
    "misses": "what the page will not catch",
    "sources": "a list of texts: where this is documented",
}
_TEXTS = ("id", "title", "finding", "why", "misses", "layer", "each", "confirm", "confirm_windows")
_SWITCHES = ("sound", "several")
_KEYS = (
    "id layer title severity role finding why misses sources confidence prevalence sound several each"
    " subjects explains let when unless proof detail sign fix case confirm confirm_windows origin scope"
)


def refuse_unknown_keys(raw: Mapping[str, Any], keys: str, where: Spot) -> None:
    """Raises `RuleError` for the first key of `raw` that is not among `keys`, a text of them separated by blanks."""
    known = keys.split()
    for key in raw:
        if key not in known:
            near = meant(key, known) or say("; available: {names}", names=_comma_list(known))
            raise where.key(key).broken(say("unknown key {key}", key=repr(key)) + near)


def _comma_list(words: Iterable[object]) -> str:
    """The items as text, separated by commas."""
    return ", ".join(map(str, words))


def proof_of(raw: Mapping[str, Any], where: Spot) -> Proof:
    """The `Proof` of an entry of ``proof`` on a page; raises `RuleError` for an unknown or wrong key."""
    refuse_unknown_keys(raw, "when says finding confidence severity once fixes", where)
    confidence = _one_of(raw, "confidence", ("", *CONFIDENCES), "", where)
    once = _one_of(raw, "once", (False, True), False, where)
    severity = _one_of(raw, "severity", ("", *SEVERITIES), "", where)
    fixes = texts(raw, "fixes", where)
    return Proof(_conditions(raw, where), raw.get("finding", ""), confidence, severity, once, fixes)


def details_of(raw: Mapping[str, Any], page: Spot) -> tuple[Detail, ...]:
    """The page's details: of entries of ``proof`` with ``says``, then of ``detail``; raises `RuleError`."""
    found = [
        Detail(_conditions(item, page.key("proof")), item["says"])
        for item in tables(raw, "proof", page)
        if "says" in item
    ]
    where = page.key("detail")
    for item in tables(raw, "detail", page):
        refuse_unknown_keys(item, "when says of", where)
        of = _one_of(item, "of", ("finding", "why"), "finding", where)
        found.append(Detail(_conditions(item, where), _required_text(item, "says", where), of))
    return tuple(found)


def _conditions(raw: Mapping[str, Any], where: Spot) -> tuple[str, ...]:
    """The conditions under ``when``; raises `RuleError` where there are none, or they are no list of texts."""
    found = texts(raw, "when", where)
    if not found:
        raise where.broken(
            say("{key} is missing: {what}", key="when", what=say("a list of conditions, all of which must hold"))
        )
    return found


def sign_of(raw: Mapping[str, Any], where: Spot) -> Sign:
    """The `Sign` of a ``[[sign]]`` entry, with what was derived from its pattern if compiled; raises `RuleError`."""
    refuse_unknown_keys(raw, "match weight when finding severity fixes compiled", where)
    _required_text(raw, "match", where)
    _one_of(raw, "weight", ("conclusive", "suggestive"), None, where)
    _one_of(raw, "severity", ("", *SEVERITIES), "", where)
    for key in ("when", "fixes"):
        texts(raw, key, where)
    return checked_sign(raw)


def checked_sign(raw: Mapping[str, Any]) -> Sign:
    """The `Sign` of an entry that `sign_of` has checked, as the entries of compiled pages are: 750 in a few ms.

    Derived from its pattern are the required words, whether a match may go on over line ends, and the alternatives; an
    entry that is not compiled has no words and alternatives, and may go on.
    """
    match: str = raw["match"]
    words, goes_on, ways = raw.get("compiled", ((), True, ()))
    return Sign(
        match,
        raw["weight"] == "conclusive",
        tuple(raw.get("when", ())),
        raw.get("finding", ""),
        raw.get("severity", ""),
        tuple(raw.get("fixes", ())),
        tuple(map(tuple, words)),
        goes_on,
        tuple(tuple(_checked_part(match, *part) for part in way) for way in ways),
    )


def _checked_part(
    match: str, pattern: str | Sequence[int], words: Sequence[Sequence[str]], spans_lines: bool, reach: int
) -> Part:
    """The `Part` of a compiled entry; `pattern` is its text, or its (start, end) in the sign's own pattern `match`."""
    own = pattern if isinstance(pattern, str) else match[slice(*pattern)]
    return Part(own, tuple(map(tuple, words)), spans_lines, reach)


def fix_of(raw: Mapping[str, Any], where: Spot) -> Fix:
    """The `Fix` of a ``[[fix]]`` entry; raises `RuleError` unless it has exactly one of ``steps`` and ``setup``."""
    refuse_unknown_keys(raw, "title when steps undo setup", where)
    title = _required_text(raw, "title", where)
    if ("setup" in raw) == ("steps" in raw):
        raise where.broken(say("the fix {title} has steps, or says what is set up", title=repr(title)))
    steps = tuple(_step(step, where.key("steps")) for step in tables(raw, "steps", where))
    return Fix(title, steps, texts(raw, "when", where), raw.get("undo", ""), raw.get("setup", ""))


def _step(raw: Mapping[str, Any], where: Spot) -> Step:
    """One step of a fix, from its table; raises `RuleError` for an unknown or wrong key."""
    refuse_unknown_keys(raw, "argv text needs touches makes when", where)
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
    """The cases of the page's ``[[case]]`` entries, may be empty; raises `RuleError`."""
    page = Spot(path)
    return tuple(_case(entry, raw, page.entry("case", at), path) for at, entry in enumerate(tables(raw, "case", page)))


def _case(entry: Mapping[str, Any], raw: Mapping[str, Any], where: Spot, path: Path) -> Case:
    """The case of one ``[[case]]`` entry; `raw` is its page.

    Raises `RuleError` unless it has facts or a report, and exactly one of finds, passes and unjudged.
    """
    name = _required_text(entry, "name", where)
    where = where.called(say("case {name}", name=repr(name)))
    refuse_unknown_keys(entry, f"name facts report {' '.join(_VERDICTS)}", where)
    if len([key for key in _VERDICTS if key in entry]) != 1:
        raise where.broken(say("it says what comes of it, by one of {names}", names=_comma_list(_VERDICTS)))
    if not {"facts", "report"} & set(entry):
        raise where.broken(say("it has facts, or the report that somebody pasted"))
    facts = entry.get("facts", {})
    if not isinstance(facts, Mapping):
        problem = 'facts is a table, {{ "driver.version" = "580.95.05" }}, not {value}'
        raise where.key("facts").broken(say(problem, value=repr(facts)))
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


def _required_text(raw: Mapping[str, Any], key: str, where: Spot) -> str:
    """The text under `key`; raises `RuleError` where it is missing or no text."""
    if key not in raw:
        raise where.broken(say("{key} is missing", key=key))
    return text(raw, key, where)


def text(raw: Mapping[str, Any], key: str, where: Spot) -> str:
    """The text under `key`, which must be there; raises `RuleError` where it is something else."""
    value = raw[key]
    if not isinstance(value, str):
        raise where.key(key).broken(say("{key} is text, in quotes, not {value}", key=key, value=repr(value)))
    return value


def texts(raw: Mapping[str, Any], key: str, where: Spot) -> tuple[str, ...]:
    """The list of texts under `key`, empty where it is missing; raises `RuleError` where it is something else."""
    value = raw.get(key, ())
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(item, str) for item in value):
        instead = f"{key} = [{json.dumps(value)}]" if isinstance(value, str) else None
        raise where.key(key).broken(with_correction(say("{key} is a list of texts", key=key), instead))
    return tuple(value)


def tables(raw: Mapping[str, Any], key: str, where: Spot) -> Sequence[Mapping[str, Any]]:
    """The list of tables under `key`, empty where it is missing; raises `RuleError` where it is something else."""
    value = raw.get(key, ())
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    if not is_list or not all(isinstance(item, Mapping) for item in value):
        written = f"{key} = [{{ ... }}]" if key in ("steps", "proof", "detail") else f"[[{key}]]"
        raise where.key(key).broken(say("{key} is a list of tables, each written {written}", key=key, written=written))
    return value  # type: ignore[no-any-return]


def _one_of(raw: Mapping[str, Any], key: str, allowed: Sequence[Any], otherwise: Any, where: Spot) -> Any:
    """The value under `key`, `otherwise` where it is missing; raises `RuleError` where it is not allowed."""
    value = raw.get(key, otherwise)
    if value not in allowed:
        problem = "{key} is {value}, which is none of {names}" if key in raw else "{key} is missing: one of {names}"
        raise where.key(key).broken(say(problem, key=key, value=repr(value), names=_comma_list(allowed)))
    return value

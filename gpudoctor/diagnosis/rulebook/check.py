"""What a page must get right before it is used: names that exist, versions that are versions, cases that prove it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudoctor.core.catalog import Catalog, fits
from gpudoctor.core.language import say
from gpudoctor.core.rule import SOLVED, Case, Fix, Proof, Rule, SetupCase, SetupPage, Sign
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge.setup_facts import FACTS
from gpudoctor.diagnosis.rulebook.conditions import (
    check_expressions,
    described,
    no_fact,
    no_group,
    suggested_value,
    value_with_kind,
)
from gpudoctor.diagnosis.rulebook.expressions import expressions, expressions_of
from gpudoctor.diagnosis.rulebook.page import SETUP, Spot, with_correction
from gpudoctor.diagnosis.rulebook.required_words import codes, syntax_tree

_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*\Z")
BLANK = "FILL IN:"
"""How a blank of a new page begins."""


def is_id(name: str) -> bool:
    """Whether it has the form of a rule id, ``driver.not-loaded``; no such rule need exist."""
    return _ID.match(name) is not None


def refuse_blanks(raw: object, page: Spot, where: str = "") -> None:
    """Raises `RuleError` for the first text in `raw` that is still to be filled in, as on a new page.

    `where` names its key in the message.
    """
    if isinstance(raw, str) and raw.startswith(BLANK):
        blank = raw.removeprefix(BLANK).strip()
        raise page.text(raw).broken(say("{where} is still to be filled in: {blank}", where=where, blank=blank))
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            refuse_blanks(key, page, say("a name under {where}", where=where))
            refuse_blanks(value, page, str(key))
    elif isinstance(raw, list):
        for value in raw:
            refuse_blanks(value, page, where)


def check_page(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    """Raises `RuleError` for the first thing wrong with the page at `path`: shape, names, expressions, fixes, cases."""
    known, page = catalog(), Spot(path)
    _check_shape(rule, cases, path)
    if rule.each and rule.each not in known.groups:
        raise page.key("each").broken(f"each: {no_group(rule.each, known)}")
    check_expressions(expressions(rule), known, rule.each, page)
    _check_fixes(rule.fixes, known, page)
    titles = [fix.title for fix in rule.fixes]
    ways: Sequence[Proof | Sign] = (*rule.proofs, *rule.signs)
    for title in (title for way in ways for title in way.fixes):
        if title not in titles:
            raise page.text(title).broken(say("no fix is called {title}", title=repr(title)))
    for number, case in enumerate(cases):
        _check_facts(case.facts, known, spot_of(page, number, case.name))


def spot_of(page: Spot, number: int, name: str) -> Spot:
    """The place of the page's case of that number, from 0, called by its name in messages."""
    return page.entry("case", number).called(say("case {name}", name=repr(name)))


def check_setup(page: SetupPage, cases: Sequence[SetupCase], path: Path) -> None:
    """Raises `RuleError` for the first thing wrong with the setup page at `path`."""
    known, spot = Catalog([*catalog().specs.values(), *FACTS]), Spot(path)
    check_expressions(expressions_of(page.fixes), known, "", spot)
    _check_fixes(page.fixes, known, spot)
    for number, case in enumerate(cases):
        where = spot_of(spot, number, case.name)
        _check_facts(case.facts, known, where)
        if case.offers and case.offers not in [fix.title for fix in page.fixes]:
            raise where.key("offers").broken(say("no fix is called {title}", title=repr(case.offers)))
    if unproven := next((fix for fix in page.fixes if fix.title not in [case.offers for case in cases]), None):
        raise spot.text(unproven.title).broken(f"no case offers {unproven.title!r}")


def _known_setups() -> tuple[str, ...]:
    """Names that a fix's ``setup`` may refer to: the setup pages' ids, and what the solver works out."""
    return (*sorted(path.stem for path in (page_cache.home() / SETUP).glob("*.toml")), *SOLVED)


def _check_fixes(fixes: Sequence[Fix], known: Catalog, page: Spot) -> None:
    """Raises `RuleError` for a fix with an unknown ``setup``, or a step with a wrong fact or value in ``makes``."""
    for number, fix in enumerate(fixes):
        where = page.entry("fix", number).called(say("fix {title}", title=repr(fix.title)))
        if fix.setup and fix.setup not in (there := _known_setups()):
            raise where.key("setup").broken(
                say("nothing sets up {what}; available: {names}", what=repr(fix.setup), names=", ".join(there))
            )
        for step in fix.steps:
            for name, value in step.makes:
                filled = isinstance(value, str) and "{" in value and known.find(name)
                rows = isinstance(value, list) and name in known.groups
                if not filled and not rows:
                    _check_value(name, value, known, where.key("makes"))


def _check_shape(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    """Raises `RuleError` for a bad id, no condition, no source, a proof that is wrongly `once`, a bad or slow pattern,
    or a missing case.
    """
    page = Spot(path)
    if not _ID.match(rule.id) or path.stem != rule.id:
        raise page.key("id").broken(
            say("the file is named by its id, <layer>/<topic>.<what-is>.toml, not {id}", id=repr(rule.id))
        )
    if not rule.when and not rule.proofs and not rule.signs:
        raise page.broken(say("nothing to look for: neither when nor proof nor sign"))
    if not rule.sources:
        raise page.key("sources").broken(say("no source"))
    if any(proof.once and not (rule.each and proof.finding) for proof in rule.proofs):
        raise page.key("once").broken(
            say("a proof that is once stands on a page with each, and has a finding of its own")
        )
    for sign in rule.signs:
        try:
            re.compile(sign.match, re.IGNORECASE | re.MULTILINE)
        except re.error as error:
            raise page.text(sign.match).broken(
                say("sign {match}: {problem}", match=repr(sign.match), problem=error)
            ) from error
        if has_nested_repeat(sign.match):
            problem = say(
                "a repetition within a repetition, such as (a+b?)+, can search one line for years: bound the inner one"
                " to fewer than 30, or end each turn with what it does not repeat"
            )
            raise page.text(sign.match).broken(say("sign {match}: {problem}", match=repr(sign.match), problem=problem))
    proofs = (
        ("one that fires, with finds = its sentence, word for word", any(case.finds is not None for case in cases)),
        ("one that passes, a near miss, with passes = true", any(case.passes for case in cases)),
        (
            'one that cannot be judged, with a fact that is { unread = "why" }, and unjudged = that why',
            any(case.unjudged is not None for case in cases),
        ),
    )
    if missing := [what for what, there in proofs if not there]:
        raise page.broken(say("a case is missing: {what}", what=say(missing[0])))


def _check_facts(facts: Mapping[str, object], known: Catalog, case: Spot) -> None:
    """Raises `RuleError` where a fact, row or column of a case is unknown, or its value of the wrong kind."""
    for name, value in facts.items():
        if name not in known.groups:
            _check_value(name, value, known, case)
        elif isinstance(value, list):
            for row in value:
                if not isinstance(row, Mapping):
                    problem = 'a row of {name} is a table, {name} = [{{ column = "value" }}], not {row}'
                    raise case.text(name).broken(say(problem, name=name, row=repr(row)))
                for column, item in row.items():
                    _check_value(f"{name}.{column}", item, known, case.key(name).key(column))
        elif isinstance(value, Mapping) and not {"absent", "unread"} & set(value):
            wanted = '[{ column = "value" }], {absent = why} or {unread = why}'
            raise case.text(name).broken(
                say("{name} is a list of rows, {name} = {wanted}", name=name, wanted=say(wanted))
            )


def _check_value(name: str, value: object, known: Catalog, where: Spot) -> None:
    """Raises `RuleError` where the fact is unknown or the value not of its kind."""
    spec = known.find(name)
    if spec is None:
        raise where.text(name).broken(no_fact(name, known))
    if isinstance(value, dict) and spec.kind != "map":
        if not {"absent", "unread"} & set(value):
            raise where.text(name).broken(say("{name} is a value, {{absent = why}} or {{unread = why}}", name=name))
    elif not fits(tuple(value) if isinstance(value, list) else value, spec.kind):
        better = suggested_value(value, spec)
        given = say("{fact}, is given as {value}", fact=described(name, spec), value=value_with_kind(value))
        raise where.text(name).broken(with_correction(given, None if better is None else json.dumps(better)))


# ---- Repetitions within repetitions ----
# Refused when a page is loaded, for one line can make them search for years. Python's `re` tries every way to share a
# text out between repetitions, and of nested ones there are exponentially many. All else takes a power of a line's
# length, which `gpudoctor.diagnosis.judge.signs` bounds by its budget: repetitions that adjoin and overlap, as in
# ``lib\w*[^\n]*not found``, are how one writes that something may stand between, on 40 pages.

Items = Sequence[tuple[Any, Any]]

_FEWEST_REPEATS = 30
"""How often something repeats at least that counts as a repetition."""
_SAMPLE = [chr(code) for code in (9, 10, *range(32, 127), 0xE9, 0x4E2D)]
"""Characters by which two sets are found to overlap."""


def has_nested_repeat(pattern: str) -> bool:
    """Whether the pattern has a repeat within a repeat that can match ambiguously, and so search for years.

    ``(a+)*`` and ``(a|aa)*`` are such, ``(a+,)*`` and ``(a|ab)*`` are not; raises `re.error`.
    """
    return _has_nested_repeat(list(syntax_tree(pattern)), inside=False)


def _has_nested_repeat(items: Items, *, inside: bool) -> bool:
    """As `has_nested_repeat`, for parsed items of a pattern; `inside`: they are in a long repeat of ambiguous turns."""
    for operation, argument in items:
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            body = list(argument[2])
            is_long = argument[1] >= _FEWEST_REPEATS
            if is_long and (inside or _end_overlaps_beginning(body)):
                return True
            if _has_nested_repeat(body, inside=not _has_separator(body) if is_long else inside):
                return True
        else:
            looks = operation in (codes.ASSERT, codes.ASSERT_NOT)
            if any(
                _has_nested_repeat(part, inside=inside and not looks) for part in _sub_patterns(operation, argument)
            ):
                return True
    return False


def _end_overlaps_beginning(body: Items) -> bool:
    """Whether the optional end of one turn of a repeat may match what the next turn begins with."""
    if len(body) == 1 and body[0][0] is codes.SUBPATTERN:
        return _end_overlaps_beginning(list(body[0][1][3]))
    begins = _first_characters(body)
    for operation, argument in reversed(body):
        if not _may_be_empty(operation, argument):
            return False
        if begins & _first_characters([(operation, argument)]):
            return len(body) > 1
    return False


def _may_be_empty(operation: Any, argument: Any) -> bool:
    """Whether the parsed item of a pattern can match the empty text."""
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return not argument[0]
    parts = _sub_patterns(operation, argument)
    return bool(parts) and any(all(_may_be_empty(*item) for item in part) for part in parts)


def _first_characters(items: Items) -> frozenset[str]:
    """Characters that a match of these parsed items may begin with, of those in `_SAMPLE`."""
    found: frozenset[str] = frozenset()
    for operation, argument in items:
        is_repeated = operation in (codes.MAX_REPEAT, codes.MIN_REPEAT)
        parts = [list(argument[2])] if is_repeated else _sub_patterns(operation, argument)
        if operation not in (codes.ASSERT, codes.ASSERT_NOT):
            found = found.union(_item_characters([(operation, argument)]), *map(_first_characters, parts))
        if operation is not codes.AT and not _may_be_empty(operation, argument):
            break
    return found


def _has_separator(body: Items) -> bool:
    """Whether a repeat's body has an item that must match, and only what nothing else in it repeats.

    Then it is plain where each turn ends.
    """
    return any(
        _is_separator(operation, argument, [*body[:at], *body[at + 1 :]])
        for at, (operation, argument) in enumerate(body)
    )


def _is_separator(operation: Any, argument: Any, others: Items) -> bool:
    """Whether the parsed item must match, and only characters that the other items do not repeat."""
    if operation in (codes.LITERAL, codes.NOT_LITERAL, codes.IN):
        return not _item_characters([(operation, argument)]) & _repeated_characters(others)
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        own = _item_characters(list(argument[2]))
        return (
            bool(argument[0] and own)
            and any(_is_required(*item) for item in others)
            and not own & _all_characters(others)
        )
    if operation in (codes.SUBPATTERN, codes.BRANCH):
        parts = [list(part) for part in _sub_patterns(operation, argument)]
        return all(
            any(_is_separator(*item, [*others, *part[:at], *part[at + 1 :]]) for at, item in enumerate(part))
            for part in parts
        )
    return False


def _is_required(operation: Any, argument: Any) -> bool:
    """Whether the parsed item must match at least once."""
    return operation not in (codes.MAX_REPEAT, codes.MIN_REPEAT) or bool(argument[0])


def _all_characters(items: Items) -> frozenset[str]:
    """The characters of `_SAMPLE` that any part of the parsed items, however deep, matches."""
    found: set[str] = set()
    for operation, argument in items:
        parts = _sub_patterns(operation, argument)
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            parts = [list(argument[2])]
        found |= _item_characters([(operation, argument)]).union(*map(_all_characters, parts))
    return frozenset(found)


def _repeated_characters(items: Items) -> frozenset[str]:
    """The characters of `_SAMPLE` that long repeats (up to 30 times or more) of one item match, however deep."""
    found: set[str] = set()
    for operation, argument in items:
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            body = list(argument[2])
            found |= (_item_characters(body) if argument[1] >= _FEWEST_REPEATS else frozenset()) | _repeated_characters(
                body
            )
        for part in _sub_patterns(operation, argument):
            found |= _repeated_characters(part)
    return frozenset(found)


def _sub_patterns(operation: Any, argument: Any) -> list[Items]:
    """The item lists inside a parsed group, alternatives or an assertion; empty for others, repeats too."""
    if operation is codes.SUBPATTERN:
        return [list(argument[3])]
    if operation is codes.BRANCH:
        return [list(branch) for branch in argument[1]]
    if operation in (codes.ASSERT, codes.ASSERT_NOT):
        return [list(argument[1])]
    return []


def _item_characters(body: Items) -> frozenset[str]:
    """The characters of `_SAMPLE` that the one item, a literal, set or dot, matches; none for anything else."""
    if len(body) != 1:
        return frozenset()
    operation, argument = body[0]
    if operation is codes.ANY:
        return frozenset(_SAMPLE) - {"\n"}
    if operation is codes.LITERAL:
        return frozenset({chr(argument)})
    if operation is codes.NOT_LITERAL:
        return frozenset(_SAMPLE) - {chr(argument)}
    if operation is codes.IN:
        return _set_characters(tuple(argument))
    return frozenset()


@lru_cache(maxsize=512)
def _set_characters(members: tuple[tuple[Any, Any], ...]) -> frozenset[str]:
    """The characters of `_SAMPLE` that a parsed bracketed set matches; cached."""
    return frozenset(character for character in _SAMPLE if _set_contains(members, character))


def _set_contains(members: Items, character: str) -> bool:
    """Whether the bracketed set contains the character; negation is taken into account."""
    negated = members[0][0] is codes.NEGATE
    return (
        any(_matches_member(kind, value, character) for kind, value in members if kind is not codes.NEGATE) != negated
    )


def _matches_member(kind: Any, value: Any, character: str) -> bool:
    """Whether one member of a set (character, range, class) matches the character."""
    if kind is codes.LITERAL:
        return ord(character) == int(value)
    if kind is codes.RANGE:
        return int(value[0]) <= ord(character) <= int(value[1])
    name = str(value).rpartition("CATEGORY_")[2]
    categories = {
        "DIGIT": character.isdigit(),
        "SPACE": character.isspace(),
        "WORD": character.isalnum() or character == "_",
    }
    return categories.get(name.removeprefix("NOT_"), False) != name.startswith("NOT_")

"""What a page must get right before it is used: names that exist, versions that are versions, cases that prove it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor import pages
from gpudoctor.model.catalog import Catalog
from gpudoctor.model.rule import Case, Fix, Rule
from gpudoctor.model.setup_page import SetupCase, SetupPage
from gpudoctor.rulebook import kinds
from gpudoctor.rulebook.conditions import check_expressions, no_fact, no_group
from gpudoctor.rulebook.files import SETUP
from gpudoctor.rulebook.reading import expressions, expressions_of
from gpudoctor.rulebook.repetition import nested
from gpudoctor.rulebook.spot import Spot

_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*\Z")
BLANK = "FILL IN:"
"""How a blank of a new page begins."""


def is_id(name: str) -> bool:
    """Whether a rule may bear that name."""
    return _ID.match(name) is not None


def refuse_blanks(raw: object, page: Spot, where: str = "") -> None:
    """Raise `RuleError` for the first blank of a new page that nobody has filled in."""
    if isinstance(raw, str) and raw.startswith(BLANK):
        blank = raw.removeprefix(BLANK).strip()
        raise page.text(raw).broken(f"{where} is still to be filled in: {blank}")
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            refuse_blanks(key, page, f"a name under {where}")
            refuse_blanks(value, page, str(key))
    elif isinstance(raw, list):
        for value in raw:
            refuse_blanks(value, page, where)


def check_page(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    """Raise `RuleError` for the first thing wrong with the page at `path`."""
    from gpudoctor.catalog import catalog

    known, page = catalog(), Spot(path)
    _check_shape(rule, cases, path)
    if rule.each and rule.each not in known.groups:
        raise page.key("each").broken(f"each: {no_group(rule.each, known)}")
    check_expressions(expressions(rule), known, rule.each, page)
    _check_fixes(rule.fixes, known, page)
    for number, case in enumerate(cases):
        _check_facts(case.facts, known, spot_of(page, number, case.name))


def spot_of(page: Spot, number: int, name: str) -> Spot:
    """Where the case of that number stands."""
    return page.entry("case", number).called(f"case {name!r}")


def check_setup(page: SetupPage, cases: Sequence[SetupCase], path: Path) -> None:
    """Raise `RuleError` for the first thing wrong with the setup page at `path`."""
    known, spot = _setup_catalog(), Spot(path)
    check_expressions(expressions_of(page.fixes), known, "", spot)
    _check_fixes(page.fixes, known, spot)
    for number, case in enumerate(cases):
        where = spot_of(spot, number, case.name)
        _check_facts(case.facts, known, where)
        if case.offers and case.offers not in [fix.title for fix in page.fixes]:
            raise where.key("offers").broken(f"no fix is called {case.offers!r}")
    if unproven := next((fix for fix in page.fixes if fix.title not in [case.offers for case in cases]), None):
        raise spot.text(unproven.title).broken(f"no case offers {unproven.title!r}")


def _setup_catalog() -> Catalog:
    """The facts that a setup page may read: every machine's, and what is worked out from them to set something up."""
    from gpudoctor.catalog import catalog
    from gpudoctor.setup.fits import FACTS

    return Catalog([*catalog().specs.values(), *FACTS])


def _known_setups() -> tuple[str, ...]:
    """What a fix may refer to: the pages, by their files' names, and the ways to set up torch."""
    from gpudoctor.setup.cure import MODES

    return (*sorted(path.stem for path in (pages.home() / SETUP).glob("*.toml")), *MODES)


def _check_fixes(fixes: Sequence[Fix], known: Catalog, page: Spot) -> None:
    for number, fix in enumerate(fixes):
        where = page.entry("fix", number).called(f"fix {fix.title!r}")
        if fix.setup and fix.setup not in (there := _known_setups()):
            raise where.key("setup").broken(f"nothing sets up {fix.setup!r}; there are {', '.join(there)}")
        for step in fix.steps:
            for name, value in step.makes:
                filled = isinstance(value, str) and "{" in value and known.find(name)
                rows = isinstance(value, list) and name in known.groups
                if not filled and not rows:
                    _check_value(name, value, known, where.key("makes"))


def _check_shape(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    page = Spot(path)
    if not _ID.match(rule.id) or path.stem != rule.id:
        raise page.key("id").broken(f"the file is named by its id, <layer>/<topic>.<what-is>.toml, not {rule.id!r}")
    if not rule.when and not rule.signs:
        raise page.broken("nothing to look for: neither when nor sign")
    if not rule.sources:
        raise page.key("sources").broken("no source")
    for sign in rule.signs:
        try:
            re.compile(sign.match, re.IGNORECASE | re.MULTILINE)
        except re.error as error:
            raise page.text(sign.match).broken(f"sign {sign.match!r}: {error}") from error
        if nested(sign.match):
            raise page.text(sign.match).broken(
                f"sign {sign.match!r}: a repetition within a repetition, such as (a+b?)+, can search one line for"
                " years: bound the inner one to fewer than 30, or end each turn with what it does not repeat"
            )
    proofs = (
        ("one that fires, with finds = its sentence, word for word", any(case.finds is not None for case in cases)),
        ("one that passes, a near miss, with passes = true", any(case.passes for case in cases)),
        (
            'one that cannot be judged, with a fact that is { unread = "why" }, and unjudged = that why',
            any(case.unjudged is not None for case in cases),
        ),
    )
    if missing := [what for what, there in proofs if not there]:
        raise page.broken(f"a case is missing: {missing[0]}")


def _check_facts(facts: Mapping[str, object], known: Catalog, case: Spot) -> None:
    for name, value in facts.items():
        if name not in known.groups:
            _check_value(name, value, known, case)
        elif isinstance(value, list):
            for row in value:
                if not isinstance(row, Mapping):
                    said = f'a row of {name} is a table, {name} = [{{ column = "value" }}], not {row!r}'
                    raise case.text(name).broken(said)
                for column, item in row.items():
                    _check_value(f"{name}.{column}", item, known, case.key(name).key(column))
        elif isinstance(value, Mapping) and not {"absent", "unread"} & set(value):
            said = f'{name} is a list of rows, {name} = [{{ column = "value" }}], {{absent = why}} or {{unread = why}}'
            raise case.text(name).broken(said)


def _check_value(name: str, value: object, known: Catalog, where: Spot) -> None:
    spec = known.find(name)
    if spec is None:
        raise where.text(name).broken(no_fact(name, known))
    if isinstance(value, dict) and spec.kind != "map":
        if not {"absent", "unread"} & set(value):
            raise where.text(name).broken(f"{name} is a value, {{absent = why}} or {{unread = why}}")
    elif not isinstance(value, _TYPES[spec.kind]) or (spec.kind in {"int", "float"} and isinstance(value, bool)):
        better = kinds.rewritten(value, spec)
        instead = "" if better is None else f": write {json.dumps(better)}"
        raise where.text(name).broken(f"{kinds.described(name, spec)}, is given as {kinds.shown(value)}{instead}")


_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "version": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "map": (dict,),
}

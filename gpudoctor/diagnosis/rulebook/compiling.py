"""Pages checked and compiled: what is shipped, and what is cached of a site's own pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpudoctor.core.errors import RuleError
from gpudoctor.core.language import OTHERS
from gpudoctor.core.rule import Part
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge import table_reach
from gpudoctor.diagnosis.rulebook.check import check_page, check_setup, refuse_blanks
from gpudoctor.diagnosis.rulebook.compiled import setup_cases_on, setup_page
from gpudoctor.diagnosis.rulebook.expressions import check_names, read_page
from gpudoctor.diagnosis.rulebook.needles import alternative_parts, may_span_lines, needles
from gpudoctor.diagnosis.rulebook.page import SETUP, Spot, cases_on, origin_of, page_files, rule_of
from gpudoctor.diagnosis.rulebook.translation import checked_translations


def checked_pages(folder: Path) -> list[dict[str, Any]]:
    """Every page of the folder as a mapping, checked, without cases, signs and fixes; raises `RuleError`."""
    checked = []
    for path in page_files(folder):
        raw = read_page(path)
        refuse_blanks(raw, Spot(path))
        page_cases = cases_on(raw, path)
        raw["origin"] = origin_of(path, folder)
        raw.pop("case", None)
        check_names(raw, catalog(), Spot(path))
        check_page(rule_of(_with_compiled_signs(raw), str(path)), page_cases, path)
        checked.append({key: value for key, value in raw.items() if key not in ("let", "sign", "fix")})
    return checked


def _parts_by_origin(folder: Path, key: str) -> dict[str, Any]:
    """The entries under `key` of each page in the folder, by page origin; pages without any are left out."""
    found = ((origin_of(path, folder), read_page(path)) for path in page_files(folder))
    return {origin: _with_compiled_signs(raw)[key] for origin, raw in found if raw.get(key)}


def _with_compiled_signs(raw: dict[str, Any]) -> dict[str, Any]:
    """The page, its signs completed by what is derived from their patterns (needles, alternatives)."""

    def plain(part: Part, match: str) -> tuple[Any, ...]:
        """The part as a tuple; its pattern as start and end within the whole one where possible."""
        start = match.find(part.match)
        own = (start, start + len(part.match)) if start >= 0 else part.match
        return own, part.needles, part.goes_on, part.reach

    for sign in raw.get("sign", ()):
        match = sign.get("match", "")
        compiled_ways = [[plain(part, match) for part in way] for way in alternative_parts(match)]
        sign["compiled"] = needles(match), may_span_lines(match), compiled_ways
    return raw


def checked_setups(folder: Path) -> list[dict[str, Any]]:
    """Every page of the folder as TOML gave it, after all its checks and without its cases."""
    checked = []
    for path in sorted(folder.glob("*.toml")):
        raw = pages.toml(path)
        page, cases = setup_page(raw, str(path)), setup_cases_on(raw, path)
        if page.id != path.stem:
            raise RuleError(f"{path}: the file is named by its id, not {page.id!r}")
        if not page.sources or not cases:
            raise RuleError(f"{path}: no {'case' if page.sources else 'source'}")
        check_setup(page, cases, path)
        raw.pop("case")
        checked.append({**raw, "origin": f"{SETUP}/{path.name}"})
    return checked


COPIES: Mapping[str, Callable[[Path], Any]] = {
    "rules": checked_pages,
    "signs": partial(_parts_by_origin, key="sign"),
    "fixes": partial(_parts_by_origin, key="fix"),
    f"{SETUP}/{SETUP}": checked_setups,
    **{name: partial(checked_translations, language=name) for name in OTHERS},
}
"""What makes the copy of each name out of the folder that it is named in."""


def compiled_copies(folder: Path) -> dict[str, object]:
    """The compiled JSON copies to ship, by file path below `folder`; checks every page, raises `RuleError`."""
    tables = folder / "tables"
    return {
        **{f"{name}.json": build(folder.joinpath(name).parent) for name, build in COPIES.items()},
        "tables/tables-reach.json": table_reach.reach_of(tables),
        **{f"tables/tables-{path.stem}.json": pages.toml(path) for path in sorted(tables.glob("*.toml"))},
    }

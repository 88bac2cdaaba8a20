"""Pages checked and compiled: what is shipped, and what is cached of a site's own pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.core import language
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge import table_reach
from gpudoctor.diagnosis.rulebook.check import check_page, refuse_blanks
from gpudoctor.diagnosis.rulebook.expressions import check_names, read_page
from gpudoctor.diagnosis.rulebook.later import BUILT, with_compiled_signs
from gpudoctor.diagnosis.rulebook.page import Spot, cases_on, origin_of, page_files, rule_of
from gpudoctor.diagnosis.rulebook.setups import checked_setups
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
        check_page(rule_of(with_compiled_signs(raw), str(path)), page_cases, path)
        checked.append({key: value for key, value in raw.items() if key not in ("let", "sign", "fix")})
    return checked


def compiled_copies(folder: Path) -> dict[str, object]:
    """The compiled JSON copies to ship, by file path below `folder`; checks every page, raises `RuleError`."""
    tables = folder / "tables"
    return {
        "rules.json": checked_pages(folder),
        **{f"{kind}.json": build(folder) for kind, build in BUILT.items()},
        "setup/setup.json": checked_setups(folder / "setup"),
        **{f"{name}.json": checked_translations(folder, name) for name in language.OTHERS},
        "tables/tables-reach.json": table_reach.reach_of(tables),
        **{f"tables/tables-{path.stem}.json": pages.toml(path) for path in sorted(tables.glob("*.toml"))},
    }

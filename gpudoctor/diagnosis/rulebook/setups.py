"""Pages of ``rules/setup``: cures that several rule pages share and ``gpudoctor setup`` shows, loaded and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudoctor.core import language
from gpudoctor.core.errors import RuleError
from gpudoctor.core.rule import SetupCase, SetupPage
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.rulebook.page import SETUP as FOLDER
from gpudoctor.diagnosis.rulebook.page import Spot, fix_of, refuse_unknown_keys, tables, texts
from gpudoctor.diagnosis.rulebook.translation import translated_page, translations


def setups() -> Mapping[str, SetupPage]:
    """Every setup page by what it sets up (``driver``), in the language in use; raises `RuleError`."""
    return _setups(language.spoken())


@lru_cache(maxsize=len(language.LANGUAGES))
def _setups(spoken: str) -> Mapping[str, SetupPage]:
    """As `setups`, in that language; cached."""
    raw = pages.compiled(None, f"{FOLDER}/{FOLDER}", checked_setups)
    translated = translations(None, spoken)
    return {page["id"]: _page(translated_page(page, translated.get(page["origin"])), page["origin"]) for page in raw}


def setup_cases() -> tuple[SetupCase, ...]:
    """The cases on all setup pages."""
    files = sorted((pages.home() / FOLDER).glob("*.toml"))
    return tuple(case for path in files for case in _cases(pages.toml(path), path))


def checked_setups(folder: Path) -> list[dict[str, Any]]:
    """Every page of the folder as TOML gave it, after all its checks and without its cases."""
    from gpudoctor.diagnosis.rulebook.check import check_setup  # compiled pages were checked when they were compiled

    checked = []
    for path in sorted(folder.glob("*.toml")):
        raw = pages.toml(path)
        page, cases = _page(raw, str(path)), _cases(raw, path)
        if page.id != path.stem:
            raise RuleError(f"{path}: the file is named by its id, not {page.id!r}")
        if not page.sources or not cases:
            raise RuleError(f"{path}: no {'case' if page.sources else 'source'}")
        check_setup(page, cases, path)
        raw.pop("case")
        checked.append({**raw, "origin": f"{FOLDER}/{path.name}"})
    return checked


def _page(raw: Mapping[str, Any], origin: str) -> SetupPage:
    """The setup page that the mapping gives; raises `RuleError` for missing keys or fixes of one title."""
    spot = Spot(origin)
    refuse_unknown_keys(raw, "id title sources step fix case origin", spot)
    if missing := {"id", "title", "fix"} - set(raw):
        raise spot.broken(f"{min(missing)} is missing")
    fixes = tuple(
        fix_of(_with_steps(fix, raw.get("step", {}), spot), spot.entry("fix", at))
        for at, fix in enumerate(tables(raw, "fix", spot))
    )
    page = SetupPage(raw["id"], raw["title"], fixes, texts(raw, "sources", spot), origin)
    titles = [fix.title for fix in page.fixes]
    if duplicate := next((title for title in titles if titles.count(title) > 1), None):
        raise spot.text(duplicate).broken(f"two fixes are called {duplicate!r}")
    if delegating := next((fix for fix in page.fixes if fix.setup), None):
        raise spot.text(delegating.title).broken(f"{delegating.title!r} has no steps of its own")
    return page


def _with_steps(fix: Mapping[str, Any], named: Mapping[str, Any], page: Spot) -> dict[str, Any]:
    """The fix with steps that it only names replaced by those under ``[step]``; raises `RuleError`."""
    steps = [named.get(step) if isinstance(step, str) else step for step in fix.get("steps", ())]
    if None in steps:
        raise page.text(str(fix.get("title"))).broken(f"{fix.get('title')!r} names a step that is not under [step]")
    return {**fix, "steps": steps}


def _cases(raw: Mapping[str, Any], path: Path) -> tuple[SetupCase, ...]:
    """The cases of a setup page; raises `RuleError`."""
    page = Spot(path)
    return tuple(_case(entry, raw["id"], page.entry("case", at)) for at, entry in enumerate(raw.get("case", ())))


def _case(entry: Mapping[str, Any], page: str, where: Spot) -> SetupCase:
    """One case of a setup page; raises `RuleError` where it lacks a key."""
    refuse_unknown_keys(entry, "name facts offers argv has", where)
    if missing := {"name", "facts", "offers"} - set(entry):
        raise where.broken(f"a case says its {', '.join(sorted(missing))}")
    has: Sequence[Any] = entry.get("has", ())
    commands = tuple(texts({"has": command}, "has", where) for command in has)
    return SetupCase(page, entry["name"], entry["facts"], entry["offers"], texts(entry, "argv", where), commands)

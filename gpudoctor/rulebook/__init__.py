"""The rulebook: every page of ``rules/<layer>/<id>.toml`` as a `Rule`, and the cases that prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor import language, pages, trusted
from gpudoctor.model.errors import RuleError
from gpudoctor.model.frozen import frozen
from gpudoctor.model.rule import LAYERS, Case, Rule, Scope
from gpudoctor.rulebook.files import origin_of, page_files
from gpudoctor.rulebook.later import Parts, loaded, with_needles
from gpudoctor.rulebook.page import cases_on, rule_of

if TYPE_CHECKING:
    from gpudoctor.model.snapshot import Snapshot


@frozen
class Rulebook:
    """All rules, ordered from the ground up, and the folders of a site's own.

    A cause may have two pages: how one machine shows it, and how a job or a fleet of machines does.
    """

    rules: tuple[Rule, ...]
    """Judged on one machine."""
    folders: tuple[Path, ...] = ()
    cluster: tuple[Rule, ...] = ()
    """Judged on what is folded from many machines."""

    def of(self, snapshot: Snapshot) -> tuple[Rule, ...]:
        """Those that are judged on such facts."""
        return self.cluster if snapshot.target.kind == "fleet" else self.rules

    def find(self, rule_id: str) -> Rule | None:
        """The rule of that id; where it has two pages, the machine's."""
        return next(iter(self.pages(rule_id)), None)

    def pages(self, rule_id: str) -> list[Rule]:
        """Every page of that id, the machine's first."""
        return [rule for rule in (*self.rules, *self.cluster) if rule.id == rule_id]


def load(extra: Sequence[Path] = ()) -> Rulebook:
    """Our own pages, then a site's own, each a folder or a page, in the language that is spoken where it is translated.

    Raises `RuleError` on a broken page or an id taken twice.
    """
    found: dict[tuple[Scope, str], Rule] = {}
    for folder in (None, *extra):
        if folder and not folder.exists():
            raise RuleError(f"{folder}: no such rule page, or folder of rule pages")
        if folder:
            _refuse_strangers(folder)
        translated = _translated(folder)
        parts = Parts(folder)
        for raw in pages.compiled(folder, "rules", checked_pages):
            rule = loaded(raw, parts, translated.get(raw["origin"]))
            key = rule.scope, rule.id
            if key in found:
                raise RuleError(f"{rule.origin}: {rule.id} is already defined by {found[key].origin}")
            found[key] = rule
    ordered = sorted(found.values(), key=lambda rule: (LAYERS.index(rule.layer), rule.id))
    machine = tuple(rule for rule in ordered if rule.scope == "machine")
    return Rulebook(machine, tuple(extra), tuple(rule for rule in ordered if rule.scope == "cluster"))


def _refuse_strangers(folder: Path) -> None:
    """A page says what is run: raise `UsageError` where one can be written to by just anybody."""
    for path in (folder, *(folder.rglob("*") if folder.is_dir() else ())):
        if path.suffix == ".toml" or path.is_dir():
            trusted.named(path, f"--rules {folder}")


def _translated(folder: Path | None) -> Mapping[str, Mapping[str, Any]]:
    """What the pages say in the language that is spoken."""
    if language.spoken() == language.ENGLISH:
        return {}
    from gpudoctor.rulebook.translation import translations

    return translations(folder, language.spoken())


def cases(folder: Path | None = None) -> tuple[Case, ...]:
    """The cases on the pages under `folder`, which may be a page, or on our own."""
    return tuple(case for path in page_files(folder or pages.home()) for case in cases_on(pages.toml(path), path))


def cases_of(rule: Rule, extra: Sequence[Path] = ()) -> tuple[Case, ...]:
    """The cases on the rule's own page."""
    return tuple(
        case
        for folder in (pages.home(), *extra)
        for path in page_files(folder)
        if origin_of(path, folder) == rule.origin
        for case in cases(path)
        if case.rule == rule.id and case.scope == rule.scope
    )


def checked_pages(folder: Path) -> list[dict[str, Any]]:
    """Every page as TOML gave it, after all its checks; its cases stay on it, and `Parts` has its signs and fixes."""
    from gpudoctor.catalog import catalog
    from gpudoctor.rulebook.check import check_page, refuse_blanks
    from gpudoctor.rulebook.named import check_names, page_of
    from gpudoctor.rulebook.spot import Spot

    checked = []
    for path in page_files(folder):
        raw = page_of(path)
        refuse_blanks(raw, Spot(path))
        page_cases = cases_on(raw, path)
        raw["origin"] = origin_of(path, folder)
        raw.pop("case", None)
        check_names(raw, catalog(), Spot(path))
        check_page(rule_of(with_needles(raw), str(path)), page_cases, path)
        checked.append({key: value for key, value in raw.items() if key not in ("let", "sign", "fix")})
    return checked

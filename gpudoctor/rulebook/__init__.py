"""The rulebook: every page of ``rules/<layer>/<id>.toml`` as a `Rule`, and the cases that prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor import language, pages
from gpudoctor.model.errors import RuleError
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.rule import LAYERS, Case, Rule, Scope
from gpudoctor.rulebook.files import page_files
from gpudoctor.rulebook.later import Later, Parts, with_needles
from gpudoctor.rulebook.page import cases_on, fix_of, rule_of, sign_of
from gpudoctor.rulebook.translation import reworded, translations

if TYPE_CHECKING:
    from gpudoctor.model.snapshot import Snapshot
    from gpudoctor.rulebook.words import Vocabulary


@frozen(slots=False)
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

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of all pages that name a cause."""
        from gpudoctor.rulebook.words import Vocabulary, words_of_pages

        found: dict[str, dict[str, int]] = {}
        for folder in (None, *self.folders):
            found.update(pages.compiled(folder, "words", words_of_pages))
        return Vocabulary(found)


def load(extra: Sequence[Path] = ()) -> Rulebook:
    """Our own pages, then those of a site's folders, in the language that is spoken as far as they are translated.

    Raises `RuleError` on a broken page or an id taken twice.
    """
    found: dict[tuple[Scope, str], Rule] = {}
    for folder in (None, *extra):
        if folder and not folder.is_dir():
            raise RuleError(f"{folder}: no such folder of rule pages")
        translated = translations(folder, language.spoken())
        parts = Parts(folder)
        for raw in pages.compiled(folder, "rules", checked_pages):
            rule = _loaded(raw, parts, translated.get(raw["origin"]))
            key = rule.scope, rule.id
            if key in found:
                raise RuleError(f"{rule.origin}: {rule.id} is already defined by {found[key].origin}")
            found[key] = rule
    ordered = sorted(found.values(), key=lambda rule: (LAYERS.index(rule.layer), rule.id))
    machine = tuple(rule for rule in ordered if rule.scope == "machine")
    return Rulebook(machine, tuple(extra), tuple(rule for rule in ordered if rule.scope == "cluster"))


def _loaded(raw: dict[str, Any], parts: Parts, translation: Mapping[str, Any] | None) -> Rule:
    """The rule of a page that was checked; its signs and fixes are made when they are looked at."""
    origin = raw["origin"]
    if translation:
        whole = {**raw, "sign": parts.of(origin, "signs"), "fix": parts.of(origin, "fixes")}
        return rule_of(reworded(whole, translation), origin)
    signs = Later(lambda: [sign_of(one, origin) for one in parts.of(origin, "signs")])
    fixes = Later(lambda: [fix_of(one, origin) for one in parts.of(origin, "fixes")])
    return replace(rule_of(raw, origin), signs=signs, fixes=fixes)


def cases(folder: Path | None = None) -> tuple[Case, ...]:
    """The cases on the pages under `folder`, or on our own."""
    return tuple(case for path in page_files(folder or pages.home()) for case in cases_on(pages.toml(path), path))


def cases_of(rule: Rule, extra: Sequence[Path] = ()) -> tuple[Case, ...]:
    """The cases on the rule's own page."""
    return tuple(
        case
        for folder in (pages.home(), *extra)
        for case in cases(folder)
        if case.rule == rule.id and case.scope == rule.scope
    )


def checked_pages(folder: Path) -> list[dict[str, Any]]:
    """Every page as TOML gave it, after all its checks; its cases stay on the page, and what is made later is apart."""
    from gpudoctor.rulebook.check import check_page, refuse_blanks

    checked = []
    for path in page_files(folder):
        raw = pages.toml(path)
        refuse_blanks(raw, path)
        page_cases = cases_on(raw, path)
        raw["origin"] = path.relative_to(folder).as_posix()
        raw.pop("case", None)
        raw.pop("said", None)  # only `gpudoctor.rulebook.words` reads it
        check_page(rule_of(with_needles(raw), str(path)), page_cases, path)
        checked.append({key: value for key, value in raw.items() if key not in ("sign", "fix")})
    return checked

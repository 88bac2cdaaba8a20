"""The rulebook: every page of ``rules/<layer>/<id>.toml`` as a `Rule`, and the cases that prove it.

- `page`: a TOML page to a Rule; `check`: what a page must have, and refuses; `conditions`, `expressions`: its `when`
- `compiling`, `compiled`: pages to the form that is shipped, and back; `required_words`: which texts can match a sign
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.core import files, language
from gpudoctor.core.errors import RuleError
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.language import say
from gpudoctor.core.rule import LAYERS, Case, Rule, Scope
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.rulebook.compiled import (
    PageParts,
    WordIndex,
    compiled,
    rule_from_compiled,
    translations,
    word_index,
)
from gpudoctor.diagnosis.rulebook.page import cases_on, origin_of, page_files

if TYPE_CHECKING:
    from gpudoctor.core.snapshot import Snapshot


@frozen
class Rulebook:
    """All rules, ordered by layer from the lowest, and the folders of a site's own pages.

    A cause may have two pages: how one machine shows it, and how a job or a fleet does.
    """

    rules: tuple[Rule, ...]
    """Judged on one machine."""
    folders: tuple[Path, ...] = ()
    cluster: tuple[Rule, ...] = ()
    """Judged on what is folded from many machines."""
    _indexes: dict[Scope, WordIndex] = field(default_factory=dict, repr=False, compare=False)

    def rules_for(self, snapshot: Snapshot) -> tuple[Rule, ...]:
        """The rules judged on that snapshot: the cluster's for a fleet, else the machine's."""
        return self.cluster if snapshot.target.kind == "fleet" else self.rules

    def word_index(self, snapshot: Snapshot) -> WordIndex:
        """Index (`word_index`) of the required words of all signs of `rules_for` the snapshot; made once."""
        scope: Scope = "cluster" if snapshot.target.kind == "fleet" else "machine"
        if scope not in self._indexes:
            self._indexes[scope] = word_index(sign for rule in self.rules_for(snapshot) for sign in rule.signs)
        return self._indexes[scope]

    def find(self, rule_id: str) -> Rule | None:
        """The rule of that id, the machine's where there are two; None where there is none."""
        return next(iter(self.pages(rule_id)), None)

    def pages(self, rule_id: str) -> list[Rule]:
        """Every page of that id, the machine's first."""
        return [rule for rule in (*self.rules, *self.cluster) if rule.id == rule_id]


def load(extra: Sequence[Path] = (), language_code: str = "") -> Rulebook:
    """The rulebook of the shipped pages and those of `extra` folders or pages, in the language of that code (empty: in
    the one in use).

    Raises `RuleError` on a broken page, a folder that may not be read or an id defined twice, `UsageError` where others
    can write to a page.
    """
    rules_by_key: dict[tuple[Scope, str], Rule] = {}
    for folder in (None, *extra):
        if folder and not os.path.exists(folder):  # noqa: PTH110 - False also where it cannot be looked at
            raise RuleError(say("{folder}: no such rule page, or folder of rule pages", folder=folder))
        if folder:
            _refuse_untrusted(folder)
        translated = translations(folder, language_code or language.current())
        parts = PageParts(folder)
        for raw in compiled(folder, "rules"):
            rule = rule_from_compiled(raw, parts, translated.get(raw["origin"]))
            key = rule.scope, rule.id
            if key in rules_by_key:
                there = rules_by_key[key].origin
                raise RuleError(
                    say("{page}: {id} is already defined by {there}", page=rule.origin, id=rule.id, there=there)
                )
            rules_by_key[key] = rule
    ordered = sorted(rules_by_key.values(), key=lambda rule: (LAYERS.index(rule.layer), rule.id))
    machine = tuple(rule for rule in ordered if rule.scope == "machine")
    return Rulebook(machine, tuple(extra), tuple(rule for rule in ordered if rule.scope == "cluster"))


def _refuse_untrusted(folder: Path) -> None:
    """Raises `UsageError` where anybody else can write to a page, for pages say which commands are run; `RuleError`
    where a folder of pages cannot be listed.
    """
    files.check_named_file(folder, f"--rules {folder}")
    for place, folders, names in os.walk(folder, onerror=_refuse_unlisted) if os.path.isdir(folder) else ():  # noqa: PTH112
        for name in (*folders, *(name for name in names if name.endswith(".toml"))):
            files.check_named_file(f"{place}/{name}", f"--rules {folder}")


def _refuse_unlisted(error: OSError) -> None:
    """Raises `RuleError` that names the folder which `os.walk` could not list."""
    raise RuleError(f"{error.filename}: {error.strerror}") from error


def cases(folder: Path | None = None) -> tuple[Case, ...]:
    """The cases on the pages under `folder` (a folder or a page), else on the shipped pages; raises `RuleError`."""
    return tuple(
        case for path in page_files(folder or page_cache.home()) for case in cases_on(page_cache.toml(path), path)
    )


def cases_of(rule: Rule, extra: Sequence[Path] = ()) -> tuple[Case, ...]:
    """The cases on the rule's own page, which is shipped or under one of the folders `extra`; raises `RuleError`."""
    return tuple(
        case
        for folder in (page_cache.home(), *extra)
        for path in page_files(folder)
        if origin_of(path, folder) == rule.origin
        for case in cases(path)
        if case.rule == rule.id and case.scope == rule.scope
    )

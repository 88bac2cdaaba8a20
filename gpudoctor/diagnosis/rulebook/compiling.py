"""Pages checked and compiled: what is shipped, and what is cached of a site's own pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpudoctor import probes
from gpudoctor.core.errors import RuleError
from gpudoctor.core.language import OTHERS, say
from gpudoctor.core.rule import Part
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expression import HOLE
from gpudoctor.diagnosis.knowledge import table_reach
from gpudoctor.diagnosis.rulebook.check import check_page, check_setup, refuse_blanks
from gpudoctor.diagnosis.rulebook.compiled import (
    LISTED,
    SENTENCES,
    Raw,
    Slot,
    digest,
    page_sentences,
    setup_cases_on,
    setup_page,
)
from gpudoctor.diagnosis.rulebook.expressions import LetNames, Names, check_names, names_in, read_page
from gpudoctor.diagnosis.rulebook.page import (
    SETUP,
    Spot,
    cases_on,
    origin_of,
    page_files,
    refuse_unknown_keys,
    rule_of,
    texts,
)
from gpudoctor.diagnosis.rulebook.required_words import alternative_parts, may_span_lines, required_words


def checked_pages(folder: Path) -> list[dict[str, Any]]:
    """Every rule page of the folder as a mapping, checked, with ``origin``, without cases, signs and fixes.

    Raises `RuleError`.
    """
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
    """By page origin, the entries under `key` (``sign``, ``fix``) of each page in the folder that has any.

    Signs are completed by what is derived from their patterns.
    """
    found = ((origin_of(path, folder), read_page(path)) for path in page_files(folder))
    return {origin: _with_compiled_signs(raw)[key] for origin, raw in found if raw.get(key)}


def _with_compiled_signs(raw: dict[str, Any]) -> dict[str, Any]:
    """The same page, in each of whose signs ``compiled`` is set to what is derived from the pattern.

    That is required words, whether a match may span lines, and the parts of alternatives.
    """

    def plain(part: Part, match: str) -> tuple[Any, ...]:
        """The part as a tuple; its pattern as start and end within the whole one where possible."""
        start = match.find(part.match)
        own = (start, start + len(part.match)) if start >= 0 else part.match
        return own, part.required_words, part.goes_on, part.reach

    for sign in raw.get("sign", ()):
        match = sign.get("match", "")
        compiled_ways = [[plain(part, match) for part in way] for way in alternative_parts(match)]
        sign["compiled"] = required_words(match), may_span_lines(match), compiled_ways
    return raw


def checked_setups(folder: Path) -> list[dict[str, Any]]:
    """Every setup page of the folder, by file name, as parsed TOML with ``origin`` and without its cases.

    Raises `RuleError` for a page that fails a check.
    """
    checked = []
    for path in sorted(folder.glob("*.toml")):
        raw = page_cache.toml(path)
        page, cases = setup_page(raw, str(path)), setup_cases_on(raw, path)
        if page.id != path.stem:
            raise RuleError(f"{path}: the file is named by its id, not {page.id!r}")
        if not page.sources or not cases:
            raise RuleError(f"{path}: no {'case' if page.sources else 'source'}")
        check_setup(page, cases, path)
        raw.pop("case")
        checked.append({**raw, "origin": f"{SETUP}/{path.name}"})
    return checked


# ---- Translations, checked against their pages ----
# A translation has the words alone, in the order of the page: ``title``, ``finding``, ``why``, ``misses``, ``confirm``,
# ``proofs``, ``details`` and ``signs`` (their sentences, each once) and a ``[[fix]]`` for each, with ``title``,
# ``steps`` (the texts of those that have one) and ``undo``; of a shared cure the texts under ``[step]`` as well. A
# ``confirm`` or ``undo`` that is a command alone may be left out. ``of`` is the digest of the words that were
# translated: where these have changed since, the page is English until somebody has looked at it again.

_OPTIONAL = ("confirm", "undo")


def checked_translations(folder: Path, language: str) -> dict[str, Raw]:
    """By origin, the up-to-date translations under `folder`: ``of`` (digest) and ``sentences`` in the order of
    `page_sentences`, empty where one stays English.

    Raises `RuleError` for one that does not fit its page.
    """
    return {
        origin: {"of": raw["of"], "sentences": [sentences.get(english, "") for _, english in page_sentences(page)]}
        for origin, page, raw, sentences in _read_translations(folder, language)
        if sentences
    }


_STALE = '{page}: its page has changed, and is shown in English until this says the same again, with of = "{digest}"'


def stale(folder: Path) -> list[str]:
    """A message for each translation under `folder` whose page has changed since; raises `RuleError` if one is bad."""
    return [
        say(_STALE, page=f"{language}/{origin}", digest=digest(page))
        for language in OTHERS
        for origin, page, _, sentences in _read_translations(folder, language)
        if not sentences
    ]


def _read_translations(folder: Path, language: str) -> Iterator[tuple[str, Raw, Raw, dict[str, str]]]:
    """(origin, page, translation, its sentences by the English ones) of each file; the last empty where it is stale.

    Raises `RuleError` for one without a page or a digest, or that does not fit its page.
    """
    there = folder / language
    for path in sorted(there.rglob("*.toml")):
        origin = path.relative_to(there).as_posix()
        original = folder / origin
        if not original.is_file():
            raise RuleError(f"{path}: there is no page {original} that it could translate")
        page, raw = read_page(original), page_cache.toml(path)
        raw = LetNames(page, Spot(original)).spelled_out(raw)
        if not isinstance(raw.get("of"), str):
            raise RuleError(f'{path}: of = "{digest(page)}" is missing: the digest of the words that it translates')
        yield origin, page, raw, _match_sentences(page, raw, path) if raw["of"] == digest(page) else {}


def _translated_sentences(raw: Raw, path: Path) -> Iterator[tuple[Slot, str]]:
    """(position, sentence) of every sentence of a translation, by the positions of `page_sentences`.

    Raises `RuleError` for an unknown key.
    """
    page = Spot(path)
    refuse_unknown_keys(raw, f"of {' '.join(LISTED)} step fix {' '.join(SENTENCES)}", page)
    yield from (((key,), raw[key]) for key in SENTENCES if key in raw)
    for name in LISTED:
        yield from (((name, at), text) for at, text in enumerate(texts(raw, name, page)))
    yield from ((("step", name), text) for name, text in raw.get("step", {}).items())
    for at, fix in enumerate(raw.get("fix", ())):
        refuse_unknown_keys(fix, "title steps undo", page.entry("fix", at))
        yield from ((("fix", at, key), fix[key]) for key in ("title", "undo") if key in fix)
        yield from ((("fix", at, "steps", number), text) for number, text in enumerate(texts(fix, "steps", page)))


def _match_sentences(page: Raw, raw: Raw, path: Path) -> dict[str, str]:
    """By English sentence of the page its translation; commands (``confirm``, ``undo``) that are left out stay English.

    Raises `RuleError` where one is missing, too many, or reads other facts.
    """
    translated = dict(_translated_sentences(raw, path))
    sentences = {}
    for slot, english in page_sentences(page):
        where = f"{path}: {' '.join(map(str, slot))}"
        words = translated.pop(slot, english if slot[-1] in _OPTIONAL else "")
        if not words:
            raise RuleError(f"{where} is missing: {english}")
        is_command = slot == ("confirm",) and page.get("scope") != "cluster"
        if words != english and not is_command:  # a command may have braces of its own
            _check_names(english, words, page.get("each", ""), where)
        sentences[english] = words
    if translated:
        raise RuleError(f"{path}: the page has no {' '.join(map(str, next(iter(translated))))} to translate")
    return sentences


def _check_names(english: str, words: str, each: str, where: str) -> None:
    """Raises `RuleError` where a translated sentence does not read the same facts as the original, or has other names
    (functions, groups) that the original has not.
    """
    theirs, ours = _names(english, each), _names(words, each)
    if missing := sorted(theirs.facts - ours.facts):
        raise RuleError(f"{where} does not say {missing[0]}, as its original does: {english}")
    if odd := sorted(ours.facts - theirs.facts) or sorted(ours.others - theirs.others):
        raise RuleError(f"{where} has {odd[0]}, which its original has not: {english}")


def _names(template: str, each: str) -> Names:
    """The names in the template's holes; what a sign's pattern captures, be it ``from``, counts as a fact."""
    holes = [hole.partition("|")[0].strip() for hole in HOLE.findall(template)]
    captured = frozenset(hole for hole in holes if hole.isidentifier())
    parts = [names_in(hole, each) for hole in holes if hole not in captured]
    others = frozenset[str]().union(*(part.others for part in parts))
    return Names(captured.union(*(part.facts for part in parts)), others - captured)


# ---- The copies ----

COPIES: Mapping[str, Callable[[Path], Any]] = {
    "rules": checked_pages,
    "signs": partial(_parts_by_origin, key="sign"),
    "fixes": partial(_parts_by_origin, key="fix"),
    f"{SETUP}/{SETUP}": checked_setups,
    **{name: partial(checked_translations, language=name) for name in OTHERS},
}
"""What makes the copy of each name out of the folder that it is named in."""


def compiled_copies(folder: Path) -> dict[str, object]:
    """The compiled JSON copies to ship, contents by file path below `folder`; checks every page, raises `RuleError`."""
    tables = folder / "tables"
    return {
        **{f"{name}.json": build(folder.joinpath(name).parent) for name, build in COPIES.items()},
        "probes.json": probes.compiled_declarations(),
        "tables/tables-reach.json": table_reach.reach_of(tables),
        **{f"tables/tables-{path.stem}.json": page_cache.toml(path) for path in sorted(tables.glob("*.toml"))},
    }

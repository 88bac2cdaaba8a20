"""Compiled pages: rules, whose signs and fixes are made when they are looked at, setup pages and translations.

What is compiled was checked. Most runs never look at a sign or a fix, and speak English.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, overload

from gpudoctor.core import language
from gpudoctor.core.rule import Rule, SetupCase, SetupPage, Sign
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.rulebook.page import (
    SETUP,
    Spot,
    checked_sign,
    details_of,
    fix_of,
    proof_of,
    refuse_unknown_keys,
    tables,
    texts,
)

T = TypeVar("T")


def compiled(folder: Path | None, name: str) -> Any:
    """The compiled copy of that name (``rules``, ``signs``, ``fixes``, ``zh``) of the pages under `folder`, which are
    compiled on each call, or of the shipped ones for None, from a kept copy if there is one, else kept in the cache.
    Raises `RuleError` where they must be compiled now and one is broken.
    """
    return page_cache.compiled(folder, name, partial(_compile, name=name))


def _compile(folder: Path, name: str) -> Any:
    """The copy of that name (``rules``, ``signs``, ...) made from the pages under the folder; raises `RuleError`."""
    from gpudoctor.diagnosis.rulebook.compiling import COPIES  # as much code as judging, and mostly not needed

    return COPIES[name](folder)


class LazySequence(Sequence[T]):
    """A sequence that is built when first accessed."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    def _all(self) -> Sequence[T]:
        """The sequence itself, built at the first call."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())


class PageParts:
    """Signs and fixes of all pages under one folder (shipped pages for None), by page origin; read when needed."""

    def __init__(self, folder: Path | None) -> None:
        self.pages = str(folder) if folder else ""
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}

    def of(self, origin: str, kind: str) -> Sequence[Any]:
        """The page's entries of that kind (``signs``, ``fixes``), as compiled; may be empty; raises `RuleError`."""
        if kind not in self._read:
            self._read[kind] = compiled(self._folder, kind)
        found: Sequence[Any] = self._read[kind].get(origin, ())
        return found


def rule_from_compiled(raw: Mapping[str, Any], parts: PageParts, translation: Mapping[str, Any] | None) -> Rule:
    """The rule of a compiled page, in the words of its translation if there is one that is up to date.

    Signs and fixes are made when they are first looked at.
    """
    origin = raw["origin"]
    if translation:
        whole = {**raw, "sign": parts.of(origin, "signs"), "fix": parts.of(origin, "fixes")}
        raw = translated_page(whole, translation)
        signs: Sequence[Any] = raw["sign"]
        fixes: Sequence[Any] = raw["fix"]
    else:
        signs, fixes = (LazySequence(partial(parts.of, origin, kind)) for kind in ("signs", "fixes"))
    own: dict[str, Any] = {"role": "cause", "layer": origin.rpartition("/")[0].rpartition("/")[2]}
    own.update((key, tuple(raw[key]) if key in _LISTS else raw[key]) for key in raw if key not in _ENTRIES)
    where = Spot(origin)
    return Rule(
        **own,
        proofs=tuple(proof_of(item, where) for item in raw.get("proof", ())),
        details=details_of(raw, where),
        signs=LazySequence(lambda: [checked_sign(item) for item in signs]),
        fixes=LazySequence(lambda: [fix_of(item, where) for item in fixes]),
        pages=parts.pages,
    )


_LISTS = frozenset(["sources", "explains", "when", "unless"])
_ENTRIES = frozenset(["proof", "detail", "sign", "fix"])


# ---- Pages of ``rules/setup`` ----
# Cures that several rule pages share and ``gpudoctor setup`` shows.


def setups() -> Mapping[str, SetupPage]:
    """Every setup page by what it sets up (``driver``), in the language in use; raises `RuleError`."""
    return _setups(language.current())


@lru_cache(maxsize=len(language.LANGUAGES))
def _setups(language_code: str) -> Mapping[str, SetupPage]:
    """As `setups`, in that language; cached."""
    raw = compiled(None, f"{SETUP}/{SETUP}")
    translated = translations(None, language_code)
    return {
        page["id"]: setup_page(translated_page(page, translated.get(page["origin"])), page["origin"]) for page in raw
    }


def setup_cases() -> tuple[SetupCase, ...]:
    """The cases on all shipped setup pages; raises `RuleError`."""
    files = sorted((page_cache.home() / SETUP).glob("*.toml"))
    return tuple(case for path in files for case in setup_cases_on(page_cache.toml(path), path))


def setup_page(raw: Mapping[str, Any], origin: str) -> SetupPage:
    """The setup page that the mapping gives; raises `RuleError` for missing or unknown keys, two fixes of one title, or
    a fix that names a setup page instead of steps.
    """
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
    """The fix's table, each step that it only names replaced by the one of that name in `named` (under ``[step]``).

    Raises `RuleError` for an unknown name.
    """
    steps = [named.get(step) if isinstance(step, str) else step for step in fix.get("steps", ())]
    if None in steps:
        raise page.text(str(fix.get("title"))).broken(f"{fix.get('title')!r} names a step that is not under [step]")
    return {**fix, "steps": steps}


def setup_cases_on(raw: Mapping[str, Any], path: Path) -> tuple[SetupCase, ...]:
    """The cases of a setup page, from its ``[[case]]`` entries; raises `RuleError`."""
    page = Spot(path)
    return tuple(_test_case(entry, raw["id"], page.entry("case", at)) for at, entry in enumerate(raw.get("case", ())))


def _test_case(entry: Mapping[str, Any], page: str, where: Spot) -> SetupCase:
    """The case of a setup page's ``[[case]]`` entry: given facts, and the fix and commands that it must offer on them.

    Raises `RuleError` for missing or unknown keys.
    """
    refuse_unknown_keys(entry, "name facts offers argv has", where)
    if missing := {"name", "facts", "offers"} - set(entry):
        raise where.broken(f"a case says its {', '.join(sorted(missing))}")
    has: Sequence[Any] = entry.get("has", ())
    commands = tuple(texts({"has": command}, "has", where) for command in has)
    return SetupCase(page, entry["name"], entry["facts"], entry["offers"], texts(entry, "argv", where), commands)


# ---- Words in another language ----
# ``rules/zh/driver/driver.missing.toml`` has those of ``rules/driver/driver.missing.toml``.

Raw = Mapping[str, Any]
"""A page or a translation as TOML gave it."""
Slot = tuple[str | int, ...]
"""Where a sentence stands in a translation: ``("fix", 0, "steps", 2)``."""
SENTENCES = ("title", "finding", "why", "misses", "confirm")
LISTED = {
    "proofs": [("proof", "finding")],
    "details": [("proof", "says"), ("detail", "says")],
    "signs": [("sign", "finding")],
}
"""Lists of a translation: the entries of the page that they translate, and under which key their words stand."""
_WORDED = frozenset((*SENTENCES, "says", "text", "undo", "fixes"))
"""Keys of a page under which words stand, wherever on it."""


def digest(page: Raw) -> str:
    """Checksum (CRC-32, eight hexadecimal digits) of an English page's sentences, by which a translation names them."""
    english_text = "\0".join(english for _, english in page_sentences(page))
    return f"{zlib.crc32(english_text.encode()):08x}"


def translated_page(page: Raw, translation: Raw | None) -> Raw:
    """The page with its sentences translated; unchanged without a translation, or where it is outdated."""
    if translation is None or translation["of"] != digest(page):
        return page
    words = zip(page_sentences(page), translation["sentences"], strict=True)
    by_english = {english: translated for (_, english), translated in words if translated}

    def of(part: Any, key: str = "") -> Any:
        """The part of the page, which stands under `key`, with its texts translated where there is a translation."""
        if isinstance(part, str):
            return by_english.get(part, part) if key in _WORDED else part
        if isinstance(part, Mapping):
            return {name: of(value, name) for name, value in part.items()}
        return [of(value, key) for value in part] if isinstance(part, list) else part

    new: Raw = of(page)
    return new


def translations(folder: Path | None, language_code: str) -> Mapping[str, Raw]:
    """By page origin (``driver/x.toml``), the translations under `folder`, or of the shipped pages for None.

    Empty for English, and where the folder has none in that language.
    """
    if language_code == language.ENGLISH or (folder and not (folder / language_code).is_dir()):
        return {}
    found: Mapping[str, Raw] = compiled(folder, language_code)
    return found


def page_sentences(page: Raw) -> Iterator[tuple[Slot, str]]:
    """(position in a translation, English sentence) of every sentence of a page that is to be translated."""
    yield from (((key,), page[key]) for key in SENTENCES if page.get(key))
    for name, places in LISTED.items():
        own = dict.fromkeys(entry[key] for kind, key in places for entry in page.get(kind, ()) if entry.get(key))
        yield from (((name, at), sentence) for at, sentence in enumerate(own))
    yield from ((("step", name), step["text"]) for name, step in page.get("step", {}).items() if step.get("text"))
    for at, fix in enumerate(page.get("fix", ())):
        yield ("fix", at, "title"), fix["title"]
        steps = (step["text"] for step in fix.get("steps", ()) if not isinstance(step, str) and step.get("text"))
        yield from ((("fix", at, "steps", number), text) for number, text in enumerate(steps))
        if fix.get("undo"):
            yield ("fix", at, "undo"), fix["undo"]


# ---- The words of all signs ----

_GRAM_LETTERS = 3
"""Letters of the groups by which a word is found missing at once."""
WordIndex = Mapping[str, Sequence[str]]
"""Needles by the three letters that their longest word begins with (fewer: under the empty text)."""


def word_index(signs: Iterable[Sign]) -> WordIndex:
    """Index of the required words of all these signs: words by the first three letters of their longest part.

    Those shorter than that stand under the empty text.
    """
    required_words = {word for sign in signs for word in _needles(sign)}
    index: dict[str, list[str]] = {}
    for needle in required_words:
        longest = max(needle.split(), key=len, default="")
        index.setdefault(longest[:_GRAM_LETTERS] if len(longest) >= _GRAM_LETTERS else "", []).append(needle)
    return index


def _needles(sign: Sign) -> Iterator[str]:
    """Every required word of the sign and of the parts of its alternatives."""
    for words in sign.required_words:
        yield from words
    for part in (part for way in sign.ways for part in way):
        for words in part.required_words:
            yield from words

"""Pages that were checked when they were compiled: most runs never look at their signs and their fixes, which are read
and made when something does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from gpudoctor.core.rule import Part, Rule, Sign
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.rulebook.page import Spot, details_of, fix_of, origin_of, page_files, proof_of, sign_of

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence that is built when first accessed."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    def _all(self) -> Sequence[T]:
        """The built sequence."""
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
        """The page's entries of that kind (``signs`` or ``fixes``), as compiled; raises `RuleError`."""
        if kind not in self._read:
            self._read[kind] = pages.compiled(self._folder, kind, BUILT[kind])
        found: Sequence[Any] = self._read[kind].get(origin, ())
        return found


def rule_from_compiled(raw: Mapping[str, Any], parts: PageParts, translation: Mapping[str, Any] | None) -> Rule:
    """The rule of a checked page, in the words of its translation where there is one."""
    origin = raw["origin"]
    if translation:
        from gpudoctor.diagnosis.rulebook.translation import translated_page

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
        signs=LazySequence(lambda: [sign_of(item, where) for item in signs]),
        fixes=LazySequence(lambda: [fix_of(item, where) for item in fixes]),
        pages=parts.pages,
    )


_LISTS = frozenset(["sources", "explains", "when", "unless"])
_ENTRIES = frozenset(["proof", "detail", "sign", "fix"])


def _parts_by_origin(folder: Path, key: str) -> dict[str, Any]:
    """The entries under `key` of each page in the folder, by page origin; pages without any are left out."""
    from gpudoctor.diagnosis.rulebook.expressions import read_page

    found = ((origin_of(path, folder), read_page(path)) for path in page_files(folder))
    return {origin: with_compiled_signs(raw)[key] for origin, raw in found if raw.get(key)}


def with_compiled_signs(raw: dict[str, Any]) -> dict[str, Any]:
    """The page, its signs completed by what is derived from their patterns (needles, alternatives)."""
    from gpudoctor.diagnosis.rulebook.needles import alternative_parts, may_span_lines, needles

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


BUILT: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "signs": partial(_parts_by_origin, key="sign"),
    "fixes": partial(_parts_by_origin, key="fix"),
}
"""What makes the compiled copy of each kind."""


# ---- The words of all signs ----

_GRAM = 3
"""Letters of the groups by which a word is found missing at once."""
WordIndex = Mapping[str, Sequence[str]]
"""Needles by the three letters that their longest word begins with (fewer: under the empty text)."""


def word_index(signs: Iterable[Sign]) -> WordIndex:
    """The needles of all these signs."""
    needles = {word for sign in signs for word in _needles(sign)}
    index: dict[str, list[str]] = {}
    for needle in needles:
        longest = max(needle.split(), key=len, default="")
        index.setdefault(longest[:_GRAM] if len(longest) >= _GRAM else "", []).append(needle)
    return index


def _needles(sign: Sign) -> Iterator[str]:
    """Every needle of the sign and of the parts of its alternatives."""
    for words in sign.needles:
        yield from words
    for part in (part for way in sign.ways for part in way):
        for words in part.needles:
            yield from words

"""Pages that were checked when they were compiled: most runs never look at their signs and their fixes, which are read
and made when something does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from gpudoctor import pages
from gpudoctor.model.rule import Rule
from gpudoctor.rulebook.page import fix_of, sign_of
from gpudoctor.rulebook.spot import Spot

T = TypeVar("T")


class Later(Sequence[T]):
    """A sequence that is made when it is first looked at."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    def _all(self) -> Sequence[T]:
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


class Parts:
    """The signs and fixes of all pages under one folder, of our own for None, by the page's origin."""

    def __init__(self, folder: Path | None) -> None:
        self.pages = str(folder) if folder else ""
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}

    def of(self, origin: str, kind: str) -> Sequence[Any]:
        """Its ``sign`` or ``fix`` entries, as they were compiled; raises `RuleError`."""
        if kind not in self._read:
            self._read[kind] = pages.compiled(self._folder, kind, BUILT[kind])
        found: Sequence[Any] = self._read[kind].get(origin, ())
        return found


def loaded(raw: Mapping[str, Any], parts: Parts, translation: Mapping[str, Any] | None) -> Rule:
    """The rule of a page that was checked, in the words of its translation."""
    origin = raw["origin"]
    if translation:
        from gpudoctor.rulebook.translation import reworded

        whole = {**raw, "sign": parts.of(origin, "signs"), "fix": parts.of(origin, "fixes")}
        raw = reworded(whole, translation)
        signs: Sequence[Any] = raw["sign"]
        fixes: Sequence[Any] = raw["fix"]
    else:
        signs, fixes = (Later(partial(parts.of, origin, kind)) for kind in ("signs", "fixes"))
    own: dict[str, Any] = {"role": "cause", "layer": origin.split("/")[-2]}
    own.update((key, tuple(raw[key]) if key in _LISTS else raw[key]) for key in raw if key not in ("sign", "fix"))
    return Rule(
        **own,
        signs=Later(lambda: [sign_of(one, Spot(origin)) for one in signs]),
        fixes=Later(lambda: [fix_of(one, Spot(origin)) for one in fixes]),
        pages=parts.pages,
    )


_LISTS = frozenset(["sources", "explains", "when", "unless"])


def signs_under(folder: Path) -> dict[str, Any]:
    """Every page's signs, with what is worked out from their patterns."""
    return _under(folder, "sign")


def fixes_under(folder: Path) -> dict[str, Any]:
    """Every page's fixes."""
    return _under(folder, "fix")


def _under(folder: Path, key: str) -> dict[str, Any]:
    from gpudoctor.rulebook.files import origin_of, page_files
    from gpudoctor.rulebook.named import page_of

    found = ((origin_of(path, folder), page_of(path)) for path in page_files(folder))
    return {origin: with_needles(raw)[key] for origin, raw in found if raw.get(key)}


def with_needles(raw: dict[str, Any]) -> dict[str, Any]:
    """A page's signs with what is worked out from their patterns, put into it."""
    from gpudoctor.model.rule import Part
    from gpudoctor.rulebook.needles import goes_on, needles
    from gpudoctor.rulebook.ways import ways

    def plain(part: Part, match: str) -> tuple[Any, ...]:
        """The part; of its pattern the place in the whole one, where it stands there: half of the copy's size."""
        start = match.find(part.match)
        own = (start, start + len(part.match)) if start >= 0 else part.match
        return own, part.needles, part.goes_on, part.reach

    for sign in raw.get("sign", ()):
        match = sign.get("match", "")
        compiled_ways = [[plain(part, match) for part in way] for way in ways(match)]
        sign["compiled"] = needles(match), goes_on(match), compiled_ways
    return raw


BUILT: Mapping[str, Callable[[Path], dict[str, Any]]] = {"signs": signs_under, "fixes": fixes_under}
"""What makes the compiled copy of each kind."""

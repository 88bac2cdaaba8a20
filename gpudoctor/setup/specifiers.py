"""Versions and specifiers as texts, ``2.6`` and ``>=2.6,<3``, asked often: every answer is kept.

Specifiers of plain releases, which is nearly all that the tables have, are compared here: `packaging.specifiers` takes
longer to load than all that is asked of it. Whatever else is written, it decides.
"""

from __future__ import annotations

from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING

from packaging.version import Version

from gpudoctor.model.pattern import pattern

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_PLAIN = pattern(r"(\d+(?:\.\d+)*)(?:\+[A-Za-z0-9]+)?")
"""A release, ``2.9.1`` or ``2.9.1+cu128``: where a specifier has no local part, PEP 440 leaves out the version's."""
_CLAUSE = pattern(r"\s*(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_COMPARED = {">=": ge, "<=": le, "==": eq, "!=": ne, "<": lt, ">": gt}


@lru_cache(maxsize=1 << 15)
def inside(specifier: str, version: str) -> bool:
    """Whether that version is one of those, prereleases too; a bare version stands for itself."""
    if not specifier:
        return True
    plain = _PLAIN.fullmatch(version)
    answers = [_meets(plain[1], clause) for clause in _whole(specifier).split(",")] if plain else [None]
    if None in answers:
        return parsed(specifier).contains(version, prereleases=True)
    return all(answers)


def _meets(release: str, clause: str) -> bool | None:
    """Whether a release meets one clause such as ``>=2.6`` or ``==2.6.*``; none where the clause is not so plain."""
    written = _CLAUSE.fullmatch(clause)
    if not written:
        return None
    sign, bound, star = written[1], _numbers(written[2]), written[3]
    own = _numbers(release)
    if star:
        if sign not in ("==", "!="):
            return None
        own = (*own, *[0] * len(bound))[: len(bound)]
    else:
        most = max(len(own), len(bound))
        own, bound = ((*one, *[0] * (most - len(one))) for one in (own, bound))
    return bool(_COMPARED[sign](own, bound))


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


@lru_cache(maxsize=1 << 10)
def parsed(specifier: str) -> SpecifierSet:
    """The specifiers; raises `InvalidSpecifier`."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(_whole(specifier))


def _whole(specifier: str) -> str:
    return f"=={specifier}" if specifier[:1].isdigit() else specifier


@lru_cache(maxsize=1 << 12)
def version(written: str) -> Version:
    """The version, to compare; raises `InvalidVersion`."""
    return Version(written)

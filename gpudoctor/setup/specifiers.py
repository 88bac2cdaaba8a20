"""Versions and specifiers as texts, ``2.6`` and ``>=2.6,<3``, asked often: parsed once, and every answer kept."""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version


@lru_cache(maxsize=1 << 15)
def inside(specifier: str, version: str) -> bool:
    """Whether that version is one of those, prereleases too; a bare version stands for itself."""
    return not specifier or parsed(specifier).contains(version, prereleases=True)


@lru_cache(maxsize=1 << 10)
def parsed(specifier: str) -> SpecifierSet:
    """The specifiers; raises `InvalidSpecifier`."""
    return SpecifierSet(f"=={specifier}" if specifier[:1].isdigit() else specifier)


@lru_cache(maxsize=1 << 12)
def version(written: str) -> Version:
    """The version, to compare; raises `InvalidVersion`."""
    return Version(written)

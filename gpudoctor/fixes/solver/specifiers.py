"""Versions and specifiers as texts, ``2.6`` and ``>=2.6,<3``, asked often: every answer is kept."""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version


@lru_cache(maxsize=1 << 15)
def inside(specifier: str, version: str) -> bool:
    """True if the version satisfies the specifier, prereleases included; a bare version means exactly that one."""
    return not specifier or parsed(specifier).contains(version, prereleases=True)


@lru_cache(maxsize=1 << 10)
def parsed(specifier: str) -> SpecifierSet:
    """SpecifierSet of a text, cached; raises `InvalidSpecifier`."""
    return SpecifierSet(f"=={specifier}" if specifier[:1].isdigit() else specifier)


@lru_cache(maxsize=1 << 12)
def version(written: str) -> Version:
    """Version of a text, cached; raises `InvalidVersion`."""
    return Version(written)

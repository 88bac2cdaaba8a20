"""Specifiers of plain releases are compared as packaging does, and all others by packaging itself."""

from __future__ import annotations

import random

import pytest
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor.setup.specifiers import inside

_RELEASES = ("2", "2.6", "2.6.0", "2.6.1", "2.06", "2.10", "2.10.0", "3.0", "12.4", "0.0.34.2")
_VERSIONS = (
    *_RELEASES,
    *(f"{one}+cu128" for one in _RELEASES),
    "2.6.0rc1",
    "2.6.1.post1",
    "2.6.0.dev20250101",
    "1!2.6",
)
_SIGNS = (">=", "<=", "==", "!=", "<", ">", "~=")


def _specifiers(count: int) -> list[str]:
    random.seed(7)
    found = []
    for _ in range(count):
        clauses = []
        for _ in range(random.randint(1, 3)):
            sign, bound = random.choice(_SIGNS), random.choice(_VERSIONS[: len(_RELEASES) + 3])
            star = ".*" if sign in ("==", "!=") and "+" not in bound and random.random() < 0.4 else ""
            clauses.append(f"{sign}{random.choice(('', ' '))}{bound}{star}")
        found.append(",".join(clauses))
    return found


def test_every_answer_is_that_of_packaging() -> None:
    compared = 0
    for specifier in _specifiers(400):
        try:
            expected = SpecifierSet(specifier)
        except InvalidSpecifier:  # ~=2, >=2.6+cu128
            continue
        for version in _VERSIONS:
            assert inside(specifier, version) is expected.contains(version, prereleases=True), (specifier, version)
            compared += 1
    assert compared > 4000


def test_a_bare_version_stands_for_itself() -> None:
    assert inside("2.6", "2.6.0+cu128")
    assert not inside("2.6", "2.6.1")
    assert inside("", "2.6.1")


def test_what_is_none_is_refused() -> None:
    with pytest.raises(InvalidSpecifier):
        inside(">=2.6,3", "2.7")

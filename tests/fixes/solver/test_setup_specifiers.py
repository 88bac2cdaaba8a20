"""Specifiers are packaging's; a bare version stands for itself, whatever is built in behind the plus."""

from __future__ import annotations

import pytest
from packaging.specifiers import InvalidSpecifier

from gpudoctor.fixes.solver.specifiers import inside


def test_a_bare_version_stands_for_itself() -> None:
    assert inside("2.6", "2.6.0+cu128")
    assert not inside("2.6", "2.6.1")
    assert inside("", "2.6.1")
    assert inside(">=2.6", "2.7.0rc1"), "prereleases count"


def test_what_is_none_is_refused() -> None:
    with pytest.raises(InvalidSpecifier):
        inside(">=2.6,3", "2.7")

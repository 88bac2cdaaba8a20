"""Patterns that are compiled when they are asked."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import gpudoctor
from gpudoctor.core.pattern import LazyPattern, pattern


def _ours() -> list[tuple[str, LazyPattern]]:
    found = []
    for info in pkgutil.walk_packages(gpudoctor.__path__, "gpudoctor."):
        if any(part in info.name for part in (".child", "__main__", ".tui", ".windows.")):
            continue
        module = importlib.import_module(info.name)
        found += [(f"{info.name}.{name}", one) for name, one in vars(module).items() if isinstance(one, LazyPattern)]
    return found


def test_each_of_ours_compiles() -> None:
    ours = _ours()
    assert len(ours) > 90
    for name, one in ours:
        assert isinstance(one.pattern, (str, bytes)), name


def test_it_answers_as_the_compiled_one() -> None:
    ours, theirs = pattern(r"(?P<a>x+)(y)?", re.IGNORECASE), re.compile(r"(?P<a>x+)(y)?", re.IGNORECASE)
    text = "aXXy bxb"
    assert ours.findall(text) == theirs.findall(text)
    assert [one.span() for one in ours.finditer(text)] == [(1, 4), (6, 7)]
    assert ours.sub("-", text) == theirs.sub("-", text)
    assert ours.subn("-", text) == ("a- b-b", 2)
    assert ours.split(text) == theirs.split(text)
    assert (ours.match(text), ours.fullmatch("x") is not None, ours.search(text) is not None) == (None, True, True)
    for name in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert pattern(rb"\d").search(b"a1") is not None


def test_a_broken_one_says_so_when_it_is_asked() -> None:
    broken = pattern("(")
    with pytest.raises(re.error, match="unterminated"):
        broken.search("x")
    with pytest.raises(AttributeError, match="no_such"):
        broken.no_such  # type: ignore[attr-defined] # noqa: B018

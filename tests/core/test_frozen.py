"""Frozen classes behave as the standard library's, which are made in a slower way."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields
from functools import cached_property

import pytest

from gpudoctor.core.frozen import field, frozen, mutable, replace


@frozen
class Ours:
    """A class with all that is used of dataclasses."""

    name: str
    size: int = 1
    parts: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size is not negative")


@dataclass(frozen=True, slots=True)
class Theirs:
    """The same by the standard decorator."""

    name: str
    size: int = 1
    parts: list[int] = dataclasses.field(default_factory=list)
    secret: str = dataclasses.field(default="", repr=False)


@frozen
class Alone:
    """One field."""

    name: str


@frozen
class Nothing:
    """No field at all."""


def test_it_is_made_told_and_taken_apart_as_the_standard_one() -> None:
    made: list[tuple[Ours, Theirs]] = [
        (Ours("a"), Theirs("a")),
        (Ours("a", 2, parts=[3]), Theirs("a", 2, parts=[3])),
        (Ours(secret="x", name="b"), Theirs(secret="x", name="b")),
    ]
    for ours, theirs in made:
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
        assert asdict(ours) == asdict(theirs)
    assert [one.name for one in fields(Ours)] == [one.name for one in fields(Theirs)]
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours("a").parts is not Ours("a").parts


def test_equal_is_what_is_of_one_class_and_has_equal_values() -> None:
    assert Ours("a", 2) == Ours("a", 2) != Ours("a", 3)
    other: object = Theirs("a", 2)
    assert Ours("a", 2) != other
    assert len({Alone("a"), Alone("a"), Alone("b"), Nothing(), Nothing()}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a"))


def test_nothing_of_it_can_be_changed() -> None:
    one = Ours("a")
    for name in ("name", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, "b")
    with pytest.raises(FrozenInstanceError):
        del one.name
    assert not hasattr(one, "__dict__")


def test_a_copy_with_changes_is_checked_as_a_new_one() -> None:
    assert replace(Ours("a"), size=4) == Ours("a", 4)
    with pytest.raises(ValueError, match="negative"):
        replace(Ours("a"), size=-1)
    with pytest.raises(TypeError):
        Ours()  # type: ignore[call-arg]


def test_it_can_be_copied_and_sent() -> None:
    one = Ours("a", 2, [3])
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert copy.copy(Nothing()) == Nothing()


@frozen(slots=False)
class Open:
    """What keeps what it has worked out."""

    name: str
    size: int = 3

    @cached_property
    def doubled(self) -> list[int]:
        """Twice the size, made once."""
        return [2 * self.size]


@mutable
class Filled:
    """What is filled step by step."""

    name: str
    parts: list[int] = field(default_factory=list)


def test_without_slots_it_keeps_what_was_worked_out() -> None:
    one = Open("a")
    assert one.doubled is one.doubled == [6]
    assert replace(one, size=5).doubled == [10]
    assert one == Open("a", 3)
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]


def test_a_mutable_one_is_filled_and_not_hashed() -> None:
    one = Filled("a")
    one.parts.append(1)
    one.name = "b"
    assert one == Filled("b", [1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]


def test_a_default_that_all_would_share_is_refused() -> None:
    defaults: list[object] = [[], dataclasses.field(default_factory=list)]
    for default in defaults:
        with pytest.raises(TypeError, match=r"Wrong\.parts"):
            frozen(type("Wrong", (), {"__annotations__": {"parts": "list[int]"}, "parts": default}))

"""What holds for every look-up that rule pages may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core.values import NOTHING, CannotJudge, Nothing, Version
from gpudoctor.diagnosis.knowledge import LOOKUPS

PLAUSIBLE = st.sampled_from(
    ["12.8", "570.86", "9.0", "sm_90", "2.4.0+cu121", "NVIDIA A100-...", "torchvision", "79", "linux", "_ZNSs", "..."]
)
ANYTHING = PLAUSIBLE | st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.text())


def required(look_up: Callable[..., object]) -> int:
    """How many arguments it must have."""
    parameters = inspect.signature(look_up).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters)


@pytest.mark.parametrize("name", sorted(LOOKUPS))
def test_absent_in_any_place_gives_absent(name: str) -> None:
    count = required(LOOKUPS[name])
    for place in range(count):
        arguments = ["x"] * count
        assert LOOKUPS[name](*arguments[:place], NOTHING, *arguments[place + 1 :]) is NOTHING


@pytest.mark.parametrize("name", sorted(LOOKUPS))
@settings(max_examples=25)
@given(st.data())
def test_nonsense_is_judged_or_refused_never_a_crash(name: str, data: st.DataObject) -> None:
    arguments = [data.draw(ANYTHING) for _ in range(required(LOOKUPS[name]))]
    with suppress(CannotJudge):
        assert isinstance(LOOKUPS[name](*arguments), (str, bool, int, float, tuple, dict, Nothing))


def test_versions_of_expressions_are_taken_as_text() -> None:
    """``driver_floor(version(torch.cuda))`` is as good as ``driver_floor(torch.cuda)``."""
    assert LOOKUPS["driver_floor"](Version("12.8")) == LOOKUPS["driver_floor"]("12.8")
    assert LOOKUPS["runs_on"](("sm_90",), Version("9.0")) is True

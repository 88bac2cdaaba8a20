"""Wishes and stacks as values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpudoctor.model import stack as models
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Known, Unread
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.model.stack import GPU, Stack, Wishes, read_from
from tests import stacks


@pytest.mark.parametrize("torch", ["", "2.15", "2.9"])
@pytest.mark.parametrize("extras", [(), ("torchvision",)])
def test_a_stack_goes_to_json_and_back(torch: str, extras: tuple[str, ...]) -> None:
    stack = stacks.answer(replace(stacks.H100, torch=torch, extras=extras))
    assert models.from_json(json.loads(json.dumps(stack.to_json()))) == stack


def test_wishes_are_read_from_the_facts_that_there_are() -> None:
    rows = tuple(
        {"name": Known(name, "nvml"), "compute_capability": Known(capability, "nvml")}
        for name, capability in (("H100", "9.0"), ("H100", "9.0"), ("RTX 4090", "8.9"))
    )
    facts: dict[str, Fact] = {
        "driver.version": Known("535.1", "x"),
        "python.version": Unread("?"),
        "python.installer": Known("uv", "x"),
    }
    wishes = read_from(Snapshot(Target("local", "n"), facts, {"gpu": (*rows, {"name": Unread("lost")})}))
    assert wishes.gpus == (GPU("H100", "9.0", 2), GPU("RTX 4090", "8.9", 1))
    assert (wishes.driver, wishes.python, wishes.tool) == ("535.1", "", "uv")
    assert not wishes.elsewhere
    assert read_from(Snapshot(Target("local", "n"), {})) == Wishes()


def test_what_the_user_says_is_kept_apart_from_what_was_read() -> None:
    wishes = stacks.H100.saying("torch", "2.9")
    assert not wishes.elsewhere
    assert wishes.saying("driver", "570").elsewhere
    assert not wishes.alike(stacks.H100)
    assert stacks.H100.alike(replace(stacks.H100, tool="uv", emit="dockerfile", said=frozenset({"tool"})))


def test_a_stack_is_a_plan() -> None:
    stack = stacks.answer(stacks.H100, "/venv/bin/python")
    plan = stack.plan("pip", "node17", "/venv")
    assert [step.argv for step in plan.steps] == list(stack.commands["pip"])
    assert plan.title == "torch 2.14.1+cu126"
    assert not plan.hindered
    assert stack.plan("conda", "node17", "/venv").steps == ()
    assert stack.plan("uv", "node17", "/venv", "not from here").hindered


def test_each_form_has_its_text() -> None:
    stack = stacks.answer(stacks.H100)
    assert stack.written("pip", "command").startswith("python -m pip install torch==2.14.1+cu126")
    assert "torch==2.14.1+cu126" in stack.written("pip", "requirements")
    assert stack.written("conda", "command") == ""
    assert stack.written("pip", "environment.yml") == ""


WHOLE = stacks.answer(stacks.H100).to_json()


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        [],
        {},
        {**WHOLE, "schema": "other"},
        {**WHOLE, "reasons": [{"candidate": "x", "standing": "maybe", "because": "y"}]},
        {**WHOLE, "packages": [["torch"]]},
        {**WHOLE, "commands": {"pip": "pip install torch"}},
        {**WHOLE, "wishes": {"gpus": [{}]}},
        {**WHOLE, "torch": 2},
    ],
)
def test_what_is_no_stack_is_refused(spoilt: object) -> None:
    with pytest.raises(DocumentError):
        models.from_json(spoilt)


def test_nothing_fits_names_the_smallest_change() -> None:
    stack: Stack = stacks.answer(replace(stacks.H100, torch="2.15"))
    assert stack.torch == ""
    assert [remedy.field for remedy in stack.smallest] == ["driver", "torch"]
    for remedy in stack.smallest:
        assert stacks.answer(stack.wishes.saying(remedy.field, remedy.value)).torch

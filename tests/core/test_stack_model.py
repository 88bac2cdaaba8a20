"""Wishes and stacks as values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpudoctor.core import stack as models
from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.core.stack import GPU, Remedy, Stack, Wishes, wishes_from_snapshot
from gpudoctor.fixes.solver.environment import Environment
from gpudoctor.fixes.solver.stacks import stack as answer

H100 = Wishes((GPU("NVIDIA H100 80GB HBM3", "9.0", 8),), "535.183.06", "3.11.9", "linux", "x86_64")


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
    wishes = wishes_from_snapshot(Snapshot(Target("local", "n"), facts, {"gpu": (*rows, {"name": Unread("lost")})}))
    assert wishes.gpus == (GPU("H100", "9.0", 2), GPU("RTX 4090", "8.9", 1))
    assert (wishes.driver, wishes.python, wishes.tool) == ("535.1", "", "uv")
    assert not wishes.elsewhere
    assert wishes_from_snapshot(Snapshot(Target("local", "n"), {})) == Wishes()


@pytest.mark.parametrize(("count", "driver"), [(1, "535.309.01"), (0, "")])
def test_a_driver_that_is_not_loaded_counts_where_there_is_a_gpu_for_it(count: int, driver: str) -> None:
    facts: dict[str, Fact] = {
        "driver.version": Absent("the nvidia module is not loaded"),
        "driver.library_version": Known("535.309.01", "x"),
        "pci.nvidia_count": Known(count, "x"),
    }
    assert wishes_from_snapshot(Snapshot(Target("local", "n"), facts)).driver == driver


def test_what_the_user_says_is_kept_apart_from_what_was_read() -> None:
    wishes = H100.with_wish("torch", "2.9")
    assert not wishes.elsewhere
    assert wishes.with_wish("driver", "570").elsewhere
    assert not wishes.alike(H100)
    assert H100.alike(replace(H100, tool="uv", emit="dockerfile", set_by_user=frozenset({"tool"})))


def test_a_stack_is_a_plan() -> None:
    stack = answer(H100, Environment(python="/venv/bin/python"))
    plan = stack.plan("pip", "node17", "/venv")
    assert [step.argv for step in plan.steps] == list(stack.commands["pip"])
    assert plan.title == "torch 2.14.1+cu126"
    assert not plan.hindered
    assert stack.plan("pixi", "node17", "/venv").steps == ()
    assert dict(plan.steps[-1].makes)["torch.version"] == "2.14.1+cu126"
    assert stack.plan("uv", "node17", "/venv", "not from here").hindered


def test_each_form_has_its_text() -> None:
    stack = answer(H100)
    assert stack.written("pip", "command").startswith("python -m pip install torch==2.14.1+cu126")
    assert "torch==2.14.1+cu126" in stack.written("pip", "requirements")
    assert stack.written("conda", "command").startswith("conda create --yes --name torch ")
    assert stack.written("pip", "environment.yml") == ""


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("torch>=2.6 torchvision  flash-attn", ("torch>=2.6", "torchvision", "flash-attn")),
        ("torch >= 2.6,<2.9; vllm", ("torch >= 2.6,<2.9", "vllm")),
        ("  ", ()),
    ],
)
def test_requirements_are_told_apart(text: str, wants: tuple[str, ...]) -> None:
    assert models.parse_requirements(text) == wants


def test_a_change_is_made_with_all_that_it_takes() -> None:
    wishes = Wishes(
        (GPU("RTX 5090"), GPU("H100"), GPU("T4")),
        driver="550",
        torch="",
        extras=("flash-attn", "torchvision"),
        wants=("torch==2.5.*", "flash_attn>=2.7", "numpy"),
    )
    assert wishes.remedied(Remedy("driver", "580", "", least="570")).driver == "580"
    assert wishes.remedied(Remedy("gpus", "RTX 5090+T4", "")).gpus == (GPU("RTX 5090"), GPU("T4"))
    without = wishes.remedied(Remedy("wants", "flash-attn", ""))
    assert (without.extras, without.wants) == (("torchvision",), ("torch==2.5.*", "numpy"))
    other = wishes.remedied(Remedy("torch", "2.9", "", also=(Remedy("python", "3.12", ""),)))
    assert (other.torch, other.wants, other.python) == ("2.9", ("flash_attn>=2.7", "numpy"), "3.12")
    assert {"torch", "python"} <= other.set_by_user


def test_another_machine_or_want_is_another_stack() -> None:
    wishes = Wishes(python="3.13t", libc="musl", distribution="debian 12", wants=("torch>=2.6",))
    assert not wishes.alike(replace(wishes, wants=()))
    assert not wishes.alike(replace(wishes, libc="glibc 2.36"))


def test_the_document_has_what_was_wished_and_the_smallest_changes() -> None:
    python = Remedy("python", "3.12", "Python 3.12", "3.12")
    stack = Stack(H100.with_wish("os", "wsl"), "", smallest=(Remedy("driver", "580", "driver 580", "570", (python,)),))
    document = json.loads(json.dumps(models.to_json(stack)))
    assert document["wishes"]["said"] == ["os"]
    assert document["wishes"]["gpus"] == [{"name": H100.gpus[0].name, "compute_capability": "9.0", "count": 8}]
    assert document["smallest"][0]["also"] == [
        {"field": "python", "value": "3.12", "text": "Python 3.12", "least": "3.12", "also": []}
    ]

"""Measurements: what a run is compared with, what to think of it, and their document."""

import json
from dataclasses import replace

import pytest

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Run, State, Step, from_json

MATMUL = Kernel("matmul.bf16", "bf16 matmul", "TFLOP/s", "8192³")
LAUNCH = Kernel("launch", "kernel launch", "µs")


def of_values(kernel: Kernel, *values: float | None, right: bool | None = True) -> Measurements:
    devices = tuple(Device(number, "H100") for number in range(len(values)))
    runs = tuple(Run(kernel.id, number, "ran", value, right=right) for number, value in enumerate(values))
    return Measurements("node17", (kernel,), devices, runs)


def states(found: Measurements) -> list[State]:
    return [found.state(run) for run in found.runs]


def test_without_a_table_the_siblings_are_the_measure() -> None:
    found = of_values(MATMUL, 710, 398, 712)
    expected = found.expected(found.runs[1])
    assert expected == Expected(710, "siblings", words="the median of 3 GPUs of this name")
    assert states(found) == ["sound", "slow", "sound"]
    found = of_values(MATMUL, 400, 400, 400)
    slow = replace(found.runs[0], expected=Expected(720, "table", 989, 0.73))
    assert found.state(slow) == "slow"
    assert found.state(found.runs[1]) == "sound"


def test_siblings_are_two_at_least_and_of_the_same_name() -> None:
    found = of_values(MATMUL, 710, 398, right=None)
    assert found.expected(found.runs[0]) is None
    assert states(found) == ["unjudged", "unjudged"]
    assert states(of_values(MATMUL, 710, 398)) == ["sound", "sound"]  # their answers were right, at least
    found = of_values(MATMUL, 710, 712, 60)
    found = replace(found, devices=(*found.devices[:2], Device(2, "T400")))
    assert found.expected(found.runs[2]) is None


def test_a_time_is_better_when_it_is_less() -> None:
    found = of_values(LAUNCH, 4.0, 4.0, 16.0, 2.0)
    assert [found.ratio(run) for run in found.runs] == [1.0, 1.0, 0.25, 2.0]
    assert states(found) == ["sound", "sound", "slow", "sound"]


def test_siblings_may_differ_as_much_as_the_pages_allow() -> None:
    assert states(of_values(LAUNCH, 4.0, 4.0, 6.0)) == ["sound"] * 3  # on the processors of the other socket
    assert states(of_values(MATMUL, 700, 700, 546)) == ["sound"] * 3  # as far as sound GPUs of one name are apart
    assert states(of_values(MATMUL, 700, 700, 490)) == ["sound", "sound", "slow"]


@pytest.mark.parametrize(
    ("run", "state"),
    [
        (Run("matmul.bf16", 0, "ran", 900.0, right=False), "wrong"),
        (Run("matmul.bf16", 0, "failed", right=False), "wrong"),
        (Run("matmul.bf16", 0, "failed"), "failed"),
        (Run("matmul.bf16", 0, "ran", None, right=True), "sound"),
        (Run("matmul.bf16", 0, "ran", None), "unjudged"),
        (Run("matmul.bf16", 0, "running"), "running"),
    ],
)
def test_what_to_think_of_a_run(run: Run, state: State) -> None:
    assert of_values(MATMUL, 710, 711, 712).state(run) == state


def test_what_is_newer_takes_the_place_of_what_was() -> None:
    old = of_values(MATMUL, 710, 398)
    new = Measurements(
        "node17", (LAUNCH,), old.devices, (Run("launch", 0, "running"), Run("matmul.bf16", 1, "running"))
    )
    both = old.merged(new)
    assert [kernel.id for kernel in both.kernels] == ["matmul.bf16", "launch"]
    assert [(run.kernel, run.gpu, run.status) for run in both.runs] == [
        ("matmul.bf16", 0, "ran"),
        ("matmul.bf16", 1, "running"),
        ("launch", 0, "running"),
    ]


def test_the_document_loses_nothing() -> None:
    full = Run(
        "matmul.bf16",
        0,
        "failed",
        710.5,
        0.004,
        Expected(720, "table", 989, 0.73, "H100 SXM", "datasheet, 2024-01-01"),
        False,
        3,
        67_108_864,
        "the same 3 in 5 of 5 repetitions",
        "",
        (Step("driver", True), Step("torch", False, "no kernel image"), Step("triton", None)),
        Meanwhile(1110, 1980, 412, 700, 88, ("hw_thermal_slowdown",)),
    )
    found = Measurements("node17", (MATMUL, LAUNCH), (Device(0, "H100", "pid 7"),), (full,), "2026-11-21T03:02:11Z")
    assert from_json(json.loads(json.dumps(found.to_json()))) == found
    assert full.broken == Step("torch", False, "no kernel image")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "the document is no object"),
        ({"schema": "gpudoctor/1"}, "schema 'gpudoctor/1' is not gpudoctor-kernels/1"),
        ({"runs": [{"kernel": "a", "gpu": 0, "status": "lost"}]}, "runs.0.status is not one of waiting, running"),
        ({"runs": [{"kernel": "a", "gpu": 0, "status": "ran", "value": "7"}]}, "runs.0.value is not a number"),
        ({"runs": {"kernel": "a"}}, "runs is not a list"),
        ({"kernels": [{"id": "a"}]}, "kernels.0.title is not a text"),
        (
            {"runs": [{"kernel": "a", "gpu": 0, "status": "ran", "ladder": [{"rung": "cuda"}]}]},
            "runs.0.ladder.0.rung is not one of driver, torch, triton, nccl, training, jax, tensorflow",
        ),
        (
            {"runs": [{"kernel": "a", "gpu": 0, "status": "ran", "expected": {"value": float("nan")}}]},
            "runs.0.expected.value is not a number",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_named(document: object, words: str) -> None:
    if isinstance(document, dict):
        document = {"schema": "gpudoctor-kernels/1", **document}
    with pytest.raises(DocumentError, match=f"^{words}"):
        from_json(document)

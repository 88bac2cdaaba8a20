"""Samples as values: to JSON and back, and out of a snapshot's facts; who uses a GPU, in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import sample as samples
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Known, Row, Rows, Unread
from gpudoctor.core.sample import GPU, NUMBERS, Instance, Process, Sample, sample_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.probes.children import nvml_people

texts = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
processes = st.builds(Process, st.integers(1, 1 << 22), st.text(), st.text(), st.none() | st.integers(0, 1 << 20))
instances = st.builds(Instance, st.integers(0, 7), st.text(), st.text(), st.none() | st.integers(0, 1 << 20))
gpus = st.builds(
    GPU,
    index=st.integers(0, 127),
    name=st.text(),
    uuid=st.text(),
    utilization=st.none() | numbers,
    power_w=st.none() | numbers,
    throttle_reasons=st.none() | st.lists(texts, max_size=3).map(tuple),
    instances=st.lists(instances, max_size=2).map(tuple),
    processes=st.none() | st.lists(processes, max_size=2).map(tuple),
    error=st.text(),
    unanswered=st.dictionaries(st.sampled_from(NUMBERS), texts, max_size=3),
)
told = st.builds(
    Sample, st.none() | numbers, st.lists(gpus, max_size=3).map(tuple), st.text(), st.text(), st.booleans()
)


@settings(max_examples=40)
@given(told)
def test_a_sample_survives_json(sample: Sample) -> None:
    assert samples.from_json(json.loads(json.dumps(sample.to_json()))) == sample


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"seconds": 1}, {"seconds": "x", "gpus": [], "source": "", "trouble": "", "live": True}]
)
def test_what_is_no_sample_is_refused(raw: object) -> None:
    with pytest.raises(DocumentError):
        samples.from_json(raw)


def test_a_gpu_that_is_no_gpu_is_refused() -> None:
    for gpu in ({}, {"index": 0, "power_w": "hot"}, {"index": 0, "processes": [{"nobody": 1}]}, 5):
        with pytest.raises(DocumentError):
            samples.from_json({"seconds": 1, "gpus": [gpu], "source": "", "trouble": "", "live": True})


def test_a_snapshot_shows_what_its_facts_say_and_why_the_rest_is_not_there() -> None:
    row: Row = {
        "index": Known(3, "NVML"),
        "name": Known("NVIDIA H100 80GB HBM3", "NVML"),
        "power_w": Known(412, "NVML"),
        "temperature_c": Unread("NVML: Unknown Error (code 999)"),
        "retired_double_bit": Absent("this GPU does not report it"),
        "throttle_reasons": Known(("sw_power_cap",), "NVML"),
        "links": Known(18, "NVML"),
        "links_down": Known((4, 5), "NVML"),
    }
    process = {"gpu": Known(3, "NVML"), "pid": Known(41207, "NVML"), "name": Known("python", "NVML")}
    groups: dict[str, Rows] = {"gpu": (row,), "gpu_process": (process, {**process, "kind": Known("graphics", "NVML")})}
    sample = sample_of(Snapshot(Target("report", "x"), {}, groups))
    gpu = sample.gpus[0]
    assert not sample.live
    assert (gpu.index, gpu.power_w, gpu.throttle_reasons, gpu.links_up) == (3, 412, ("sw_power_cap",), 16)
    assert (gpu.temperature_c, gpu.why("temperature_c")) == (None, "NVML: Unknown Error (code 999)")
    assert gpu.why("retired_double_bit") == samples.NOT_REPORTED
    assert gpu.processes == (Process(41207, "python"),)


def test_a_snapshot_without_gpus_says_why() -> None:
    sample = sample_of(Snapshot(Target("local", "x"), {}, {"gpu": Absent("NVML lists no GPU")}))
    assert (sample.gpus, sample.trouble) == ((), "NVML lists no GPU")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/python3.11", "-u", "/home/a/train.py", "--key", "secret"], "train.py"),
        (["python", "-m", "torch.distributed.run", "train.py"], "-m torch.distributed.run"),
        (["python", "-X", "dev", "-c", "import secrets"], "python"),
        (["/opt/vllm/bin/vllm", "serve"], "vllm"),
        (["ray::worker: idle"], "ray::worker"),
        ([], ""),
    ],
)
def test_a_process_is_named_by_its_program_script_or_module_and_nothing_else(words: list[str], name: str) -> None:
    assert nvml_people.display_name(words) == name


def test_who_is_gone_from_all_gpus_is_forgotten() -> None:
    asked: list[int] = []

    def name(pid: int) -> str:
        asked.append(pid)
        return "job"

    people = nvml_people.ProcessNames()
    for _ in range(2):
        people.name_and_user(-5, lambda: name(-5))
        people.forget_ended(0, [-5])
    assert asked == [-5]
    people.forget_ended(0, [])
    people.name_and_user(-5, lambda: name(-5))
    assert asked == [-5, -5]

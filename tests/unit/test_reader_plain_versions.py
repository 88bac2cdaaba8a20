"""Versions and GPUs that people write without a colon."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text


def facts(text: str) -> dict[str, object]:
    snapshot = read_text(text)
    known = {name: fact.value for name, fact in snapshot.facts.items() if isinstance(fact, Known)}
    return {name: value for name, value in known.items() if not name.startswith(("report.", "host.platform"))}


def gpus(text: str) -> list[str]:
    rows = read_text(text).rows("gpu")
    assert isinstance(rows, tuple), text
    return [name.value for row in rows if isinstance(name := row["name"], Known) and isinstance(name.value, str)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nvcc 10.1", {"cuda.nvcc_version": "10.1"}),
        ("g++ 13.2.0", {"cuda.host_compiler_version": "13.2.0"}),
        ("tensorflow 2.1.0 from pip", {"tf.version": "2.1.0"}),
        ("nvcc release 11.5, V11.5.119", {"cuda.nvcc_version": "11.5"}),
        ("jax 0.5.3, jax-cuda12-plugin 0.5.3", {"jax.version": "0.5.3", "jax.plugin": "0.5.3"}),
        ("driver 440.31, CUDA Version 10.2", {"driver.version": "440.31", "driver.cuda_version": "10.2"}),
        ("CUDA toolkit: 13.0, driver 580", {"cuda.toolkit_version": "13.0", "driver.version": "580"}),
        (
            "torch 2.3.0, CUDA 12.1, driver 535.129.03",
            {"torch.version": "2.3.0", "cuda.toolkit_version": "12.1", "driver.version": "535.129.03"},
        ),
    ],
)
def test_a_thing_and_its_version(line: str, told: dict[str, str]) -> None:
    found = facts(line)
    assert {name: found.get(name) for name in told} == told


@pytest.mark.parametrize(
    "line",
    [
        "works with CUDA 11.8",
        "after upgrading to CUDA 12.4",
        "we need CUDA 12",
        "requires CUDA 12.4",
        "the build for CUDA 12.1 and torch 2.4 fails",
    ],
)
def test_a_version_in_passing_is_nobodys(line: str) -> None:
    assert facts(line) == {}


def test_a_gpu_by_its_name_alone() -> None:
    assert gpus("GTX 1650") == ["GTX 1650"]
    assert gpus("2x Tesla P40") == ["Tesla P40", "Tesla P40"]
    assert gpus("Windows 11, RTX 4080") == ["RTX 4080"]
    assert gpus("RTX 3080, GTX 1080 Ti") == ["RTX 3080", "GTX 1080 Ti"]
    assert not isinstance(read_text("the RTX 4090 arrived today").rows("gpu"), tuple)


def test_what_a_label_says_counts_for_more() -> None:
    assert facts("nvcc 10.1\nnvcc: 12.4")["cuda.nvcc_version"] == "12.4"

"""torch by the index its wheel came from, and the driver's CUDA by torch's own word."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text


@pytest.mark.parametrize(
    ("text", "fact", "value"),
    [
        (
            "pip3 install https://download.pytorch.org/whl/cu100/torch-1.0.1.post2-cp35-cp35m-linux_x86_64.whl",
            "torch.version",
            "1.0.1.post2+cu100",
        ),
        (">>> import torch;torch._C._cuda_getDriverVersion()\n9010", "cuda_driver.version", "9.1"),
        (">>> torch._C._cuda_getDriverVersion()\n12040", "cuda_driver.version", "12.4"),
        ("host driver 565.57.01", "driver.version", "565.57.01"),
    ],
)
def test_a_fact_is_read(text: str, fact: str, value: str) -> None:
    """The fact holds the value as it is written everywhere else."""
    found = read_text(text).facts[fact]
    assert isinstance(found, Known)
    assert found.value == value


@pytest.mark.parametrize("name", ["Tesla M40 24GB", "V100 32GB", "Tesla P40 24GB", "Quadro P4000"])
def test_a_line_that_names_a_gpu_and_its_memory(name: str) -> None:
    """The memory behind a GPU's name is no version."""
    rows = read_text(f"{name}\ntorch 2.8.0+cu129\n").rows("gpu")
    assert isinstance(rows, tuple)
    named = rows[0]["name"]
    assert isinstance(named, Known)
    assert named.value == name

"""What a report says of compilers, toolkits and wheels in its own words, and what is no answer to that."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Absent, Known
from gpudoctor.readers import read_text


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("which nvcc: (empty)", "cuda.nvcc"),
        ("nvcc --version: command not found", "cuda.nvcc"),
        ("there is no nvcc on the machine", "cuda.nvcc"),
        ("FROM nvidia/cuda:12.1.0-runtime-ubuntu22.04", "cuda.nvcc"),
        ("FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime", "cuda.nvcc"),
        ("ls /usr/local: no cuda folder", "cuda.toolkit_version"),
        ("/usr/local/cuda: does not exist", "cuda.toolkit_version"),
        ("CUDA_HOME points to /usr/local/cuda-11.1, which does not exist", "cuda.toolkit_version"),
        ("echo $CUDA_HOME: prints nothing", "cuda.home"),
        (
            "$ python -c 'from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)'\nNone",
            "cuda.home",
        ),
    ],
)
def test_a_toolkit_that_is_not_there(text: str, fact: str) -> None:
    assert isinstance(read_text(text).get(fact), Absent)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("no nvcc needed for inference", "cuda.nvcc"),
        ("no CUDA toolkit required", "cuda.toolkit_version"),
        ("runs in nvidia/cuda:12.1.0-runtime-ubuntu22.04\nbuilt in nvidia/cuda:12.1.0-devel-ubuntu22.04", "cuda.nvcc"),
    ],
)
def test_said_of_something_else(text: str, fact: str) -> None:
    assert not isinstance(read_text(text).get(fact), Absent)


def test_cuda_home_as_the_build_helper_prints_it() -> None:
    text = "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda-11.7'"
    assert read_text(text).get("cuda.home") == Known("/usr/local/cuda-11.7", "line 1")


def test_torch_by_its_build_alone() -> None:
    snapshot = read_text("nvcc 11.5 from apt, torch cu124")
    assert snapshot.get("torch.cuda") == Known("12.4", "line 1")
    assert snapshot.get("cuda.nvcc_version") == Known("11.5", "line 1")


def test_a_wheel_by_its_tag() -> None:
    rows = read_text("flash-attn wheel: cu12torch2.3cxx11abiFALSE").rows("extension")
    assert isinstance(rows, tuple)
    assert rows[0]["name"] == Known("flash-attn", "line 1")
    assert rows[0]["torch"] == Known("2.3", "line 1")
    assert rows[0]["abi"] == Known("pre-cxx11", "line 1")


@pytest.mark.parametrize(
    "line",
    [
        "tried flash-attn wheel: cu12torch2.3cxx11abiFALSE",
        "flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl is not a supported wheel",
    ],
)
def test_a_wheel_that_is_not_installed(line: str) -> None:
    assert not isinstance(read_text(line).rows("extension"), tuple)


def test_libraries_missing_of_an_extension_are_not_torchs() -> None:
    assert not isinstance(read_text("ldd of the extension: libcudart.so.11.0 => not found").get("libs.missing"), Known)
    assert isinstance(read_text("libcudart.so.11.0 => not found").get("libs.missing"), Known)


def test_a_list_of_devices_over_several_lines() -> None:
    text = (
        "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU'),\n"
        " PhysicalDevice(name='/physical_device:XLA_GPU:0', device_type='XLA_GPU')]"
    )
    assert read_text(text).get("tf.gpus") == Known(0, "line 1")
    assert read_text(f"`{text}`").get("tf.gpus") == Known(0, "line 1")  # quoted, as in a report on GitHub

"""What an error says: against the device, or that something else is lacking; and whether it outlives its kernel."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.kernels.child._main import _lacking
from gpudoctor.kernels.child.eager import Context
from gpudoctor.kernels.child.eager._check import before_bf16

NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(..., CUDA_R_16BF, ...)`"


@pytest.mark.parametrize(
    "because",
    [
        "MemoryError",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: CUDA error: out of memory CUDA kernel errors might be asynchronously reported",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_lack_of_memory_says_nothing_against_the_device(because: str) -> None:
    assert _lacking(because) == f"no memory is free for it: {because}"


@pytest.mark.parametrize(
    "because",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ],
)
def test_any_other_error_is_one(because: str) -> None:
    assert _lacking(because) == ""


@pytest.mark.parametrize(
    ("capability", "said", "lacks"),
    [
        ((6, 0), NOT_SUPPORTED, True),
        ((7, 5), "at::cuda::blas::gemm: not implemented for N3c108BFloat16E", True),
        ((8, 0), NOT_SUPPORTED, False),
        ((6, 0), "CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_gpu_before_bf16_may_have_no_product_of_it(capability: tuple[int, int], said: str, lacks: bool) -> None:
    context = SimpleNamespace(on_cpu=False, capability=lambda: capability)
    assert before_bf16(context, RuntimeError(said)) is lacks


def torch_of(synchronize: Callable[[Any], None], initialized: bool = True) -> Any:
    """As much of torch as it takes to ask whether CUDA still answers."""
    cuda = SimpleNamespace(is_initialized=lambda: initialized, synchronize=synchronize)
    return SimpleNamespace(cuda=cuda, device=lambda name: SimpleNamespace(type=name.partition(":")[0]))


def lost(device: Any) -> None:
    """As CUDA answers each call after an illegal access; of several GPUs the second one."""
    if device != 0:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_an_error_that_outlives_its_kernel_ends_the_process() -> None:
    assert Context(torch_of(lost), "cuda:3", 1).spent
    assert Context(torch_of(lost), "cuda:0", 1, devices=(0, 1)).spent
    assert not Context(torch_of(lost), "cuda:0", 1, devices=(0,)).spent


def test_who_asks_for_it_makes_no_context() -> None:
    assert not Context(torch_of(lost, initialized=False), "cuda:3", 1).spent
    assert not Context(torch_of(lost), "cpu", 1).spent

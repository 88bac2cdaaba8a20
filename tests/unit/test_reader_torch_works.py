"""Whether the report says that torch's own operations run on the GPU."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known, Unread
from gpudoctor.readers import read_text


@pytest.mark.parametrize(
    "line",
    [
        "torch on cuda: fine",
        "plain torch ops on the V100: fine",
        "torch: loads, uses cuda normally",
        "PyTorch itself works fine on the GPU",
        "basic torch ops: no error",
        "PyTorch in the same environment: uses the GPU",
        "torch.zeros(1).cuda(): ok",
        "torch matmul on gpu: works",
        "TORCH_CUDA_ARCH_LIST=8.0 bash compile.sh: then it works",
        "tensor([2., 2.], device='cuda:0')",
    ],
)
def test_torch_computes(line: str) -> None:
    assert read_text(line).get("live.computes") == Known(True, "line 1")


@pytest.mark.parametrize(
    "line",
    [
        "torch: 2.1.0",
        "torch works only on cpu",
        "torch.cuda.is_available(): True",
        "torch: does not work on the GPU",
        "torch.compile: works",
        "torch_scatter: works",
        "pytorch built from source with TORCH_CUDA_ARCH_LIST=6.1: works",
        "torchvision: ok",
        "torch on cuda: not ok",
        "torch import: ok",
        "tensor([2., 2.])",
    ],
)
def test_nothing_is_said_of_it(line: str) -> None:
    assert isinstance(read_text(line).get("live.computes"), Unread)

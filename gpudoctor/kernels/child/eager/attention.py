"""Scaled dot-product attention by each of torch's back ends: every type and mask, against float64."""

from __future__ import annotations

import warnings
from functools import lru_cache, partial
from typing import Any, Callable, Iterator, Sequence

from .._kernel import CannotRun, Spec
from . import Context
from ._check import DTYPES, ULPS, Case, checked, close, exact_accumulation, uniform

KERNELS = (Spec("attention", "attention back ends", "", "2 × 4 × 515 × 64", "deep", 30.0),)

BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "cuDNN": "CUDNN_ATTENTION",
}
_NONE = ("no available kernel", "no viable backend", "invalid backend", "no execution plans", "no valid e")
"""How torch and cuDNN say that a back end does not take these inputs on this device, which is no fault of it."""


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Yield a case of attention over `size` tokens for each mask (none, causal), type and back end that takes it."""
    shape = (2, 4, size, 64)
    query, key = (uniform(context, shape, -0.5, 0.5, salt) for salt in (1, 2))
    inputs = query, key, uniform(context, shape, 0.5, 1.0, 3)
    for causal in (False, True):
        reference = lru_cache(maxsize=1)(partial(_reference, context.torch, *inputs, causal))
        for dtype in ("fp32", "fp16", "bf16"):
            for backend in BACKENDS:
                if dtype != "fp32" or backend in ("math", "memory-efficient"):
                    compute = partial(_compute, context, backend, inputs, dtype, causal)
                    name = "%s, %s%s" % (backend, dtype, ", causal" if causal else "")
                    ulps = ULPS["attention", dtype]
                    yield Case(name, compute, partial(_judge, context.torch, reference, ulps), ulps)


def _reference(torch: Any, query: Any, key: Any, value: Any, causal: bool) -> Any:
    """Softmax(Q K^T / sqrt(d)) V in float64, with a causal mask if asked."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ value


def _judge(torch: Any, reference: Callable[[], Any], ulps: int, result: Any) -> Any:
    """Compare the result with `reference()`, which is computed only now, to within `ulps`."""
    return close(torch, result, reference(), ulps)


def _compute(context: Context, backend: str, inputs: Sequence[Any], dtype: str, causal: bool) -> Any:
    """Attention of the inputs in that type by that back end, on the device; raises `CannotRun` as `attend`."""
    torch = context.torch
    on_device = [part.to(context.device, getattr(torch, DTYPES[dtype])) for part in inputs]
    with exact_accumulation(torch), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each reason why a back end is not taken
        return attend(torch, backend, on_device, causal)


def attend(torch: Any, backend: str, inputs: Sequence[Any], causal: bool) -> Any:
    """Attention by that back end alone; raises `CannotRun` where torch or the device does not support it."""
    attention = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if attention is None:
        raise CannotRun("torch %s has no scaled dot-product attention" % torch.__version__)
    with _selected_backend(torch, BACKENDS[backend]):
        try:
            return attention(*inputs, is_causal=causal)
        except RuntimeError as error:
            if any(words in str(error).lower() for words in _NONE):
                raise CannotRun("%s, %s: not on this device" % (backend, str(inputs[0].dtype)[6:])) from error
            raise


def _selected_backend(torch: Any, name: str) -> Any:
    """A context manager that allows one back end alone; raises `CannotRun` where torch has no such one."""
    try:
        from torch.nn.attention import (  # type: ignore[import-not-found,unused-ignore]
            SDPBackend,
            sdpa_kernel,
        )
    except ImportError:
        return _selected_backend_before_2_3(torch, name)
    if not hasattr(SDPBackend, name):
        raise CannotRun("torch %s has no %s" % (torch.__version__, name))
    return sdpa_kernel(getattr(SDPBackend, name))


def _selected_backend_before_2_3(torch: Any, name: str) -> Any:
    """A context manager that allows one back end alone in torch before 2.3; `CannotRun` where it cannot choose."""
    if not hasattr(torch.backends.cuda, "sdp_kernel") or name == "CUDNN_ATTENTION":
        raise CannotRun("torch %s cannot choose %s" % (torch.__version__, name))
    return torch.backends.cuda.sdp_kernel(
        enable_math=name == "MATH", enable_flash=name == "FLASH_ATTENTION", enable_mem_efficient=name.startswith("EFF")
    )


run = checked(cases, attention=(515, 37))

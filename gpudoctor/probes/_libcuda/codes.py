"""CUDA's return codes, as the child that asks libcuda tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.target.protocol import printable

Entry = Mapping[str, Any]
"""One line of the child about a call: with ``is``, or with ``code``, ``name`` and ``text``."""

STUB, NO_DEVICE = 34, 100

_ERRORS = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    STUB: ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"),
    NO_DEVICE: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    102: ("CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"),
    800: ("CUDA_ERROR_NOT_PERMITTED", "operation not permitted"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
    804: ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"),
    805: ("CUDA_ERROR_MPS_CONNECTION_FAILED", ""),
    807: ("CUDA_ERROR_MPS_SERVER_NOT_READY", ""),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}
"""What cuInit answers, in the driver's own names and words: a stub and a record of numbers have none."""


def code_of(entry: Entry) -> int:
    """A record may hold cuInit's code as its answer."""
    told = entry.get("code", entry.get("is"))
    return told if isinstance(told, int) else 0


def name_of(entry: Entry) -> str:
    known, _ = _ERRORS.get(code_of(entry), ("", ""))
    return printable(entry.get("name") or known or f"CUDA error {code_of(entry)}")


def sentence_of(entry: Entry) -> str:
    _, known = _ERRORS.get(code_of(entry), ("", ""))
    return known or printable(entry.get("text") or "")


def failure(entry: Entry) -> str:
    """A failed call in words."""
    sentence = sentence_of(entry)
    return f"{name_of(entry)} ({code_of(entry)})" + (f": {sentence}" if sentence else "")

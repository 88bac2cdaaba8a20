"""Every Triton kernel of ours compiles ahead of time for each generation of GPUs, with Triton's own assembler."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).with_name("compiled_ahead.py")
SHARED = {75: 64, 80: 163, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a block may use: CUDA C++ Programming Guide 13.0, table of compute capabilities."""


@pytest.mark.parametrize("capability", SHARED)
def test_every_kernel_compiles(capability: int, tmp_path: Path) -> None:
    environ = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    argv = [needs.triton_python(), str(PROGRAM), str(capability)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, env=environ)
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told) == {"add", "softmax", "histogram", "matmul.fp16", "matmul.bf16", "matmul.fp32"}
    for name, kernel in told.items():
        assert bytes.fromhex(kernel["begins"]) == b"\x7fELF", name
        assert kernel["target"].rstrip("af") == f"sm_{capability}"
        assert kernel["shared"] <= SHARED[capability] << 10, name
    if capability >= 80:
        assert all(told[f"matmul.{kind}"]["matrix"] for kind in ("fp16", "bf16", "fp32"))

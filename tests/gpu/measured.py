"""What ``gpudoctor bench`` gives on the first real GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

import pytest

from tests import needs
from tests.conftest import Program

Runs = dict[str, Any]
"""Of each kernel its run."""


def measured(gpudoctor: Program, names: Iterable[str]) -> Runs:
    """Those kernels; skips where torch sees no GPU."""
    python = needs.torch_python()
    probe = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([python, "-c", probe], check=False, capture_output=True, timeout=120).returncode:
        pytest.skip(f"needs a torch that sees a GPU in {python}")
    asked = [word for name in names for word in ("--kernel", name)]
    run = gpudoctor("bench", "--device", "cuda:0", "--python", python, "--json", *asked, timeout=600)
    return {one["kernel"]: one for one in run.document["runs"]}

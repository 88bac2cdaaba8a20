"""The training step on a CPU, through the real child: every way to make gradients gives the same ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import specs, talk
from gpudoctor.target.local import Local
from tests.needs import REPOSITORY, torch_python

pytestmark = pytest.mark.slow

GRADIENTS = 2 * (256 * 256 + 256)
"""Values of the network of whole numbers."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """Of all of them."""
    wanted = ["accumulation", "amp", "clipping", "parallel", "split", "utilization"]
    return asked([f"readiness.{name}" for name in wanted])


def asked(names: list[str]) -> Mapping[str, Mapping[str, Any]]:
    kernels = specs.chosen(names)
    heard = talk.ask(Local(python=torch_python()), "training", "cpu", kernels, lambda *_: None, lambda: False)
    assert heard.opened, heard.closed
    return heard.outcomes

"""The collective rung beside a real torch, or none: values are compared in slices, and want of torch is no failure."""

import os
import subprocess
from pathlib import Path

from gpudoctor.kernels import runner, specs
from gpudoctor.target.local import Local
from tests import needs

CHILD = Path(runner.program()).parent


def test_where_torch_is_missing_nothing_is_said_against_the_links() -> None:
    target = Local("deep", needs.program("python3"), environ={**os.environ, "PYTHONNOUSERSITE": "1"})
    heard = runner.ask(
        target, runner.Question("collective", "node", specs.select_kernels(["collective"])), lambda *_: None, str
    )
    assert not heard.failed
    assert "torch" in heard.closed


COMPARED = f"""
import sys
sys.path.insert(0, {str(CHILD.parent)!r})
import torch
from child.collective import _operations
expected = torch.zeros(2 * _operations._SLICE_VALUES + 1)
got = expected.clone()
got[[7, _operations._SLICE_VALUES, 2 * _operations._SLICE_VALUES]] = 1.0
print(*_operations._compare(torch, got, expected), *_operations._compare(torch, expected, expected))
"""


def test_wrong_values_of_every_slice_are_counted(python: str) -> None:
    done = subprocess.run([python, "-c", COMPARED], check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["3", "7", "0", "None"]

"""The collective rung on the CPU: two processes by Gloo through the code that checks NCCL; who fails is named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import runner, specs
from gpudoctor.target.local import Local
from tests import needs

HERE = Path(__file__).parent
CHILD = Path(runner.program()).parent
SICK = f"""
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("main", {str(CHILD / "__main__.py")!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main.register_package()
sys.path.insert(0, {str(HERE)!r})
from gpudoctor_kernels import _ranks, _kernel
from gpudoctor_kernels import collective
from gpudoctor_kernels.collective import exchange
_ranks.GRACE_SECONDS = 1.0
collective._WAIT_LIMIT_CPU, collective._GROUP_LIMIT_CPU = 2.0, float(sys.argv[2])
together = _ranks.run_ranks
def planted(job, count, ask, seconds, environ):
    environ = dict(environ, PYTHONPATH={str(HERE)!r})
    return together("collective_sick", count, dict(ask, fault=json.loads(sys.argv[1])), seconds, environ)
_ranks.run_ranks = planted
context = collective.opened({{"device": "cpu"}})
told = {{}}
for spec in exchange.KERNELS:
    try:
        told[spec.id] = exchange.run(context, spec).to_json()
    except Exception as error:
        told[spec.id] = {{"error": type(error).__name__, "words": str(error)}}
print(json.dumps(told))
"""


def _sick(python: str, rank: int, what: str, when: str, seconds: float = 40.0) -> dict[str, Any]:
    argv = [python, "-c", SICK, json.dumps([rank, what, when]), str(seconds)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.full
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("die", 'rank 1 was killed by SIGKILL at "broadcast of 4 KiB"'),
        ("raise", 'rank 1 failed: RuntimeError: bad link at "broadcast of 4 KiB"'),
    ],
)
def test_who_fails_in_the_middle_is_named_and_what_came_before_counts(python: str, what: str, words: str) -> None:
    told = _sick(python, 1, what, "broadcast")
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        assert told[f"nccl.{name}"]["right"] is True
    assert told["nccl.broadcast"]["error"] == "Broken"
    assert told["nccl.broadcast"]["words"].startswith(words)
    for name in ("all_to_all", "send_receive"):
        assert told[f"nccl.{name}"] == {"error": "CannotRun", "words": "not tried: broadcast before it failed"}


@pytest.mark.full
def test_who_hangs_is_named_before_those_that_waited_for_it(python: str) -> None:
    told = _sick(python, 0, "hang", "the first collective")
    said = told["nccl.all_reduce"]["words"]
    assert said.startswith('rank 0 did not come to an end at "the first collective"; rank 1 '), said


@pytest.mark.full
def test_one_wrong_bit_is_seen_and_its_rank_named(python: str) -> None:
    told = _sick(python, 0, "flip", "the first collective")
    assert told["nccl.broadcast"]["right"] is False
    assert told["nccl.broadcast"]["differ"] == 2  # at either size
    assert told["nccl.broadcast"]["words"].startswith("rank 0: 1 of 1024 values are wrong, the first at 7")
    assert told["nccl.all_to_all"]["right"] is True


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
expected = torch.zeros(2 * _operations._SLICE + 1)
got = expected.clone()
got[[7, _operations._SLICE, 2 * _operations._SLICE]] = 1.0
print(*_operations._compare(torch, got, expected), *_operations._compare(torch, expected, expected))
"""


def test_wrong_values_of_every_slice_are_counted(python: str) -> None:
    done = subprocess.run([python, "-c", COMPARED], check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["3", "7", "0", "None"]

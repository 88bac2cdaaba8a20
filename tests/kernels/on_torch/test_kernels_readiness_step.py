"""The training step on a CPU, through the real child: each way to make gradients gives those of float64."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels.specs import program
from tests.processes import command_line, left, marked, until

pytestmark = pytest.mark.full

KERNELS = ("accumulation", "amp", "clipping", "parallel", "split", "utilization")
WHOLE = 2 * (256 * 256 + 256)
"""Gradients of the network of whole numbers."""
WAIT = 120


@pytest.fixture(scope="module")
def bench(python: str) -> list[str]:
    named = [part for name in KERNELS for part in ("--kernel", f"readiness.{name}")]
    return [sys.executable, "-m", "gpudoctor", "bench", "--device", "cpu", "--python", python, "--json", *named]


@pytest.fixture(scope="module")
def runs(bench: list[str]) -> Mapping[str, Mapping[str, Any]]:
    """What `gpudoctor bench` says of each."""
    done = subprocess.run(bench, check=False, capture_output=True, text=True, timeout=WAIT)
    return {run["kernel"]: run for run in json.loads(done.stdout)["runs"]}


@pytest.fixture(scope="module")
def planted(python: str) -> Callable[[str], Any]:
    """What becomes of a thing that is planted."""

    def plant(name: str) -> Any:
        argv = [python, str(Path(__file__).with_name("training_faults.py")), program(), name]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return plant


def test_each_prints_its_figure_its_meaning_and_advice(runs: Mapping[str, Mapping[str, Any]]) -> None:
    assert {name.split(".")[1] for name in runs} == set(KERNELS)
    for run in runs.values():
        assert (run["status"], run["right"]) == ("ran", True), run
        assert run["value"] > 0
        assert run["words"].endswith(".")
        assert run["advice"].endswith(".")


def test_every_way_gives_the_gradients_of_one_batch_bit_for_bit(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """One process, two replicas in it, two processes, a split model, and small batches one after another."""
    for name, compared in (("accumulation", WHOLE), ("parallel", 4 * WHOLE), ("split", 2 * WHOLE + 2)):
        run = runs[f"readiness.{name}"]
        assert (run["differ"], run["compared"]) == (0, compared)


def test_gradients_of_ordinary_numbers_are_near_those_of_float64(runs: Mapping[str, Mapping[str, Any]]) -> None:
    accumulated = runs["readiness.accumulation"]["details"]
    assert 0 < accumulated["apart_float32"] < 1e-6
    assert 0 < accumulated["apart_float64"] < 1e-14
    for short, most in (("bf16", 2**-4), ("fp16", 2**-7)):
        mixed = runs[f"readiness.amp.{short}"]["details"]
        assert 0 < mixed["apart"] < most
        assert 1 - mixed["cosine"] < 1e-4
        assert mixed["last_loss"] < mixed["first_loss"]
    assert runs["readiness.amp.fp16"]["details"]["scale"] == 65536


def test_one_flipped_bit_of_a_gradient_is_seen_whichever_it_is(planted: Callable[[str], Any]) -> None:
    found = planted("flips")
    assert found["clean"] == 0
    assert found["seen"] == found["flipped"] >= 90


def test_no_sum_of_whole_numbers_is_too_large_to_be_exact(planted: Callable[[str], Any]) -> None:
    """The terms of each taken as positive, so whatever their order is."""
    assert planted("sums")["most"] < 2**24 / 50


def test_what_limits_a_loop_is_named(planted: Callable[[str], Any]) -> None:
    assert planted("limits") == {name: [name, ""] for name in ("data", "transfer", "launch", "compute")}


def test_without_a_profiler_the_clock_names_it(planted: Callable[[str], Any]) -> None:
    why = "torch.profiler: RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    assert planted("blind") == {name: [name, why] for name in ("data", "transfer", "compute")}


def test_a_torch_that_clips_accumulates_or_scales_wrongly_is_found(planted: Callable[[str], Any]) -> None:
    found = planted("outcomes")
    assert {name: right for name, (right, _) in found.items()} == dict.fromkeys(found, False)
    assert "gradients by norm 2, as called: 5266 of 5266 values are wrong" in found["clipping"][1]
    assert f"of {WHOLE} values are wrong" in found["accumulation"][1]
    assert "gradients are 1 of their norm from float64's" in found["amp"][1]


def test_ranks_that_exchange_nothing_are_found(planted: Callable[[str], Any]) -> None:
    for answer in planted("no exchange")["answers"]:
        assert answer["ddp_differ"] > WHOLE * 0.99


def test_a_rank_that_dies_is_named_before_the_one_that_waits_for_it(planted: Callable[[str], Any]) -> None:
    first, second = planted("a death")["faults"]
    assert first == 'rank 1 was killed by SIGKILL at "init_process_group"'
    assert second.startswith("rank 0 ")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_end(bench: list[str], tmp_path: Path, sign: signal.Signals) -> None:
    """By Ctrl-C, or killed, while ranks train: no process and no file is left. The path must suit a socket."""
    environ = {**os.environ, "TMPDIR": str(tmp_path), "GPUDOCTOR_TEST_STEP": str(tmp_path)}
    mark = f"GPUDOCTOR_TEST_STEP={tmp_path}"
    parent = subprocess.Popen(
        [*bench[: -2 * len(KERNELS)], "--kernel", "readiness.parallel"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert until(lambda: len([pid for pid in marked(mark) if '"rank": 1' in command_line(pid)]) == 1)
    parent.send_signal(sign)
    parent.wait(10)
    assert left(lambda: marked(mark)) == []
    assert left(tmp_path.iterdir) == []

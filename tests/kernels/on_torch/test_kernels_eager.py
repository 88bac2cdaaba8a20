"""torch's operations on the CPU, through the real child: right where they are, and told exactly where they are not."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import specs
from tests import needs
from tests.conftest import Program
from tests.kernels.faults.__main__ import trials

CHECKED = [
    "matmul",
    "elementwise",
    "convolution",
    "attention",
    "fft",
    "sort",
    "reduction",
    "autograd",
]
IDS = [one.spec.id for one in specs.select_kernels(CHECKED)]
LYING = """
import runpy, sys
import torch

mm, sort, times = torch.mm, torch.sort, [0]

def wrong(left, right):
    times[0] += 1
    out = mm(left, right)
    if out.shape[0] > 128:  # not where the product is only tried
        at = 7 if STUCK else times[0] % out.shape[1]
        out[5, at] += 1
    return out

torch.mm = wrong
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""An interpreter whose products have one wrong value: always the same, or another each time."""


def runs(gpudoctor: Program, python: str, *kernels: str) -> dict[str, Any]:
    """What became of each kernel."""
    asked = [word for name in kernels for word in ("--kernel", name)]
    run = gpudoctor("bench", "--device", "cpu", "--python", python, "--json", *asked, timeout=300)
    return {one["kernel"]: one for one in run.document["runs"]}


def liar(folder: Path, stuck: bool) -> str:
    """The path of that interpreter."""
    script = folder / "lying.py"
    script.write_text(f"STUCK = {stuck}\n{LYING}", "utf-8")
    python = folder / "python"
    lie = f'case "$1" in *__main__.py) set -- "{script}" "$@";; esac'
    python.write_text(f'#!/bin/sh\n{lie}\nexec "{needs.torch_python()}" "$@"\n', "utf-8")
    python.chmod(0o755)
    return str(python)


def holds(script: str) -> None:
    """Run it in the interpreter with torch, beside the script that injects faults; what it asserts must hold."""
    argv = [needs.torch_python(), "-W", "ignore", "-c", script, str(needs.REPOSITORY / "tests/kernels/faults")]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def found(gpudoctor: Program) -> dict[str, Any]:
    return runs(gpudoctor, needs.torch_python(), *CHECKED)


@pytest.mark.parametrize("name", IDS)
def test_a_sound_cpu_is_right_and_repeats_itself(found: dict[str, Any], name: str) -> None:
    run = found[name]
    assert (run["status"], run.get("right"), run.get("differ")) == ("ran", True, 0), run
    assert run["compared"] > 100
    assert run["details"]["repeats_equal"] is True
    assert len(run["details"]["digest"]) == 16
    assert ("value" in run) == name.startswith("matmul.")


def test_what_the_cpu_has_not_is_said(found: dict[str, Any]) -> None:
    assert "memory-efficient, float16: not on this device" in found["attention"]["words"]
    assert "flash" not in found["attention"]["words"]
    assert found["matmul.fp4"]["words"] == "Multiplied in a wider type: torch has no such product on this CPU"


@pytest.mark.full
def test_the_same_seed_gives_the_same_bytes(found: dict[str, Any], gpudoctor: Program) -> None:
    again = runs(gpudoctor, needs.torch_python(), "matmul.bf16", "sort")
    assert {name: run["details"]["digest"] for name, run in again.items()} == {
        name: found[name]["details"]["digest"] for name in again
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("stuck", "words"),
    [
        (True, "the same 1 in 3 of 3 repetitions: not noise"),
        (False, "in 3 of 3 repetitions, never at the same place in all"),
    ],
)
def test_one_wrong_value_is_told_and_whether_it_is_noise(
    gpudoctor: Program, tmp_path: Path, stuck: bool, words: str
) -> None:
    run = runs(gpudoctor, liar(tmp_path, stuck), "matmul.fp32")["matmul.fp32"]
    assert (run.get("right"), run.get("differ"), run.get("compared")) == (False, 1, 192 * 192), run
    assert run["words"].startswith("fp32 product: 1 of 36864 values is wrong, the first at [5, ")
    assert run["words"].endswith(words)
    assert run["details"]["repeats_equal"] is stuck
    assert ("digest" in run["details"]) is stuck


def test_every_flipped_bit_is_seen_and_no_clean_result_raises_an_alarm() -> None:
    """A sample; `python -m tests.kernels.faults --trials 2000` runs as many as wanted."""
    said = trials(100, seed=11)
    assert said["bad"] == []
    assert said["flipped"] == 100 <= said["clean"]
    assert said["repeated"] == 5
    assert set(said["kernels"]) == set(IDS)


LAYOUT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
import inject, torch
fp4 = importlib.import_module(inject.package() + ".eager.matmul")
rows, columns = 300, 9
blocks = (torch.arange(rows * columns) % 16 + 1).view(rows, columns).float()
tiled = fp4._tiled_scales(torch, blocks.to(torch.float8_e4m3fn)).float()
for row in range(rows):
    for column in range(columns):
        tile = row // 128 * -(-columns // 4) + column // 4
        at = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
        assert tiled[at] == blocks[row, column], (row, column)
packed = fp4.Packed.of(torch, torch.tensor([[0.5, -6.0, 1.5, 4.0] * 4]), torch.tensor([2.0]))
assert packed.codes.tolist() == [[0b1111_0001, 0b0110_0011] * 4]
assert packed.unpacked(torch)[0, :4].tolist() == [1.0, -12.0, 3.0, 8.0]
"""
"""Where cuBLAS's documentation says that the scale of a block lies, and what its bits are."""


@pytest.mark.full
def test_4_bit_floats_and_their_scales_lie_where_cublas_looks_for_them() -> None:
    holds(LAYOUT)


TILE = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
import inject, torch
root = inject.package() + "."
matmul, rung = (importlib.import_module(root + name) for name in ("eager.matmul", "eager"))
torch.set_num_threads(1)
case, = matmul.cases(rung.Context(torch, "cpu", 1), "matmul.bf16", 256)
result = case.compute()
for rows, more in ((16, False), (64, True)):
    wrong = result.clone()
    wrong[32 : 32 + rows, 64:192] = 0
    judged = case.judge(wrong)
    assert (judged.first, judged.more) == ((32, 64), more), judged
    assert judged.differ == 16 * 128 + rows - 16, judged
    wrong[:, :] = float("nan")
    assert case.judge(wrong).differ == 16 * 256 + 240
"""
"""Whole tiles that are wrong, as a broken multiprocessor leaves them."""


@pytest.mark.full
def test_a_wrong_tile_is_counted_up_to_sixteen_rows_and_said_to_be_more_beyond() -> None:
    holds(TILE)


OVERRIDE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
import inject
rung = importlib.import_module(inject.package() + ".eager")
for value, kept in (("0", "0"), ("1", None)):
    os.environ["NVIDIA_TF32_OVERRIDE"] = value
    rung.opened({"device": "cpu"})
    assert os.environ.get("NVIDIA_TF32_OVERRIDE") == kept, value
"""


@pytest.mark.full
def test_no_variable_makes_tf32_of_what_is_judged_as_fp32() -> None:
    holds(OVERRIDE)


FAILING = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
import inject, torch
root = inject.package() + "."
orders, rung, case = (importlib.import_module(root + name) for name in ("eager.reduction", "eager", "eager._check"))
torch.topk = lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA error: an illegal memory access was encountered"))
try:
    case.run_cases(rung.Context(torch, "cpu", 1), orders.cases(rung.Context(torch, "cpu", 1), "sort", 100))
except RuntimeError as error:
    assert str(error) == "topk: CUDA error: an illegal memory access was encountered", error
else:
    raise AssertionError
"""


def test_an_operation_that_fails_is_named() -> None:
    holds(FAILING)

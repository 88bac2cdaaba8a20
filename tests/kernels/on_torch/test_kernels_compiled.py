"""The compiled rung on the CPU: Triton's interpreter and inductor's C++, each result exact, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import runner, specs
from gpudoctor.target.local import Local
from tests import needs

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
GPU = [one for one in specs.select_kernels(["compiled"]) if one.spec.scope == "gpu"]
NODE = [one for one in specs.select_kernels(["compiled"]) if one.spec.scope == "node"]


@pytest.fixture(scope="module")
def python() -> str:
    return needs.triton_python()


def _ask(python: str, names: list[str], **environ: str) -> runner.RungResult:
    target = Local("deep", python, environ={**os.environ, **environ})
    kernels = [one for one in specs.all_kernels() if one.spec.id in names]
    return runner.ask(target, runner.Question("compiled", "cpu", kernels), lambda *_: None, lambda: "")


def _empty_soon(folder: Path) -> list[str]:
    until = time.monotonic() + 600
    while (left := sorted(path.name for path in folder.iterdir())) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def heard(python: str, home: Path) -> runner.RungResult:
    needs.program("g++")
    names = [one.spec.id for one in (*GPU, *NODE)]
    nowhere = {"TRITON_CACHE_DIR": "", "TORCHINDUCTOR_CACHE_DIR": ""}
    return _ask(python, names, HOME=str(home), TMPDIR=str(home / "tmp"), **nowhere)


@pytest.mark.parametrize("name", [one.spec.id for one in GPU])
def test_every_value_is_right(heard: runner.RungResult, name: str) -> None:
    outcome = heard.outcomes[name]
    assert outcome["status"] == "ran", outcome
    assert outcome["right"] is True
    assert outcome["compared"] > 200
    assert outcome["value"] > 0
    assert outcome["details"]["repeats_equal"] is True
    assert outcome["details"]["first_call_s"] > 0


def test_the_users_folders_stay_as_they_are(heard: runner.RungResult, home: Path) -> None:
    assert heard.outcomes["compile.caches"]["details"]["TRITON_CACHE_DIR"] == f"{home}/.triton/cache"
    assert _empty_soon(home / "tmp") == []
    assert [path.name for path in home.iterdir()] == ["tmp"]
    assert heard.outcomes["compile.caches"]["details"]["TORCHINDUCTOR_CACHE_DIR"].startswith(f"{home}/tmp/torchind")


def test_a_child_that_is_killed_leaves_no_folder(python: str, tmp_path: Path) -> None:
    halted = False

    def hear(_: str, outcome: Mapping[str, Any]) -> None:
        nonlocal halted
        halted = True

    target = Local("deep", python, environ={**os.environ, "TMPDIR": str(tmp_path)})
    kernels = [one for one in GPU if one.spec.id == "compile.function"]
    question = runner.Question("compiled", "cpu", kernels)
    heard = runner.ask(target, question, hear, lambda: "stopped" if halted else "")
    assert halted
    assert not heard.outcomes
    assert _empty_soon(tmp_path) == []


def test_without_triton_only_its_kernels_cannot_be_run(python: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    heard = _ask(python, ["triton.add", "compile.caches"], PYTHONPATH=str(tmp_path))
    assert heard.outcomes["triton.add"]["status"] == "not-run"
    assert heard.outcomes["triton.add"]["because"] == "triton is not installed in this interpreter"
    assert heard.outcomes["compile.caches"]["status"] == "ran"


def test_without_a_compiler_inductor_cannot_be_run_on_the_cpu(python: str, tmp_path: Path) -> None:
    outcome = _ask(python, ["compile.function"], PATH=str(tmp_path), CXX="g++").outcomes["compile.function"]
    assert outcome["status"] == "not-run"
    assert outcome["because"] == "inductor compiles for the CPU with g++ or clang++, and there is none"


def test_torch_compile_that_is_switched_off_is_not_measured(python: str) -> None:
    outcome = _ask(python, ["compile.function"], TORCHDYNAMO_DISABLE="1").outcomes["compile.function"]
    assert outcome["status"] == "not-run"
    assert outcome["because"] == "TORCHDYNAMO_DISABLE=1 switches torch.compile off"


def test_a_cache_folder_that_is_none_is_told(python: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    heard = _ask(python, ["compile.caches"], TRITON_CACHE_DIR=str(tmp_path / "file" / "cache"))
    outcome = heard.outcomes["compile.caches"]
    assert outcome["status"] == "failed"
    assert f"{tmp_path}/file may not be written to" in outcome["because"]
    assert outcome["advice"] == "set TRITON_CACHE_DIR to a folder on a local disk"


def test_every_flipped_bit_is_seen(python: str) -> None:
    """Of results at random sizes, one bit that the check states it sees; and clean results raise no alarm."""
    argv = [python, str(HERE / "compiled_faults.py"), "100", "1"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["bad"] == []
    assert told["flipped"] == 100
    assert told["clean"] >= 100
    assert set(told["kernels"]) == {one.spec.id for one in GPU if one.spec.id.startswith("triton.")}

"""Triton, torch.compile and NCCL on a real GPU: right, and nothing left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import specs
from tests import needs
from tests.conftest import Program

pytestmark = pytest.mark.gpu


def _bench(gpudoctor: Program, family: str) -> dict[str, Any]:
    python = needs.triton_python()
    ran = gpudoctor("bench", "--kernel", family, "--python", python, "--json", timeout=300)
    assert ran.code == 0, ran.out
    return {f"{run['kernel']} {run['gpu']}": run for run in ran.document["runs"]}


def test_every_triton_kernel_and_torch_compile_are_right(gpudoctor: Program) -> None:
    found = _bench(gpudoctor, "compiled")
    assert {run["kernel"] for run in found.values()} == {one.spec.id for one in specs.select_kernels(["compiled"])}
    ran = [run for run in found.values() if run["status"] == "ran"]
    assert len(ran) == len(found) or all("sm_80" in run["because"] for run in found.values() if run not in ran)
    assert all(run["right"] for run in ran if run["kernel"] != "compile.caches")


def test_compiling_leaves_the_users_folders_as_they_are(
    gpudoctor: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    _bench(gpudoctor, "compile.function")
    until = time.monotonic() + 20
    while (left := list(tmp_path.iterdir())) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def test_nccl_starts_on_all_gpus_and_every_value_is_right(gpudoctor: Program) -> None:
    found = {run["kernel"]: run for run in _bench(gpudoctor, "collective").values()}
    first = found["nccl.all_reduce"]
    assert (first["status"], first["right"]) == ("ran", True)
    if first["details"]["ranks"] == 1:
        assert "no link was tested" in first["words"]
        assert {found[name]["because"] for name in found if name != "nccl.all_reduce"} == {"needs two GPUs"}
    else:
        assert all(run["right"] and run["value"] > 0 for run in found.values())

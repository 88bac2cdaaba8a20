"""A sound container in WSL, which no scenario of tests/sim has: from files to the findings, over the real rulebook.

What NVML and the loader answer there is told: a tree has neither.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Known
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.probes import collect, container, driver, environment, host, limits, pci, wsl
from tests.probes.test_probe_container import LIB, VERSION, handed
from tests.probes.test_probe_wsl import KERNEL
from tests.probes.trees import Tree


def test_a_container_with_its_gpu_in_wsl_gives_neither_error_nor_warning(tmp_path: Path) -> None:
    told = ModuleType("gpudoctor.probes.told")
    answers = {
        "nvml.state": Known("ok", "NVML"),
        "gpu.count": Known(1, "NVML"),
        "libs.libcuda": Known(f"{LIB}/libcuda.so.1", "the loader"),
        "libs.libcuda_kind": Known("driver", "the loader"),
        "libs.libcuda_version": Known(VERSION, "the loader"),
    }
    kinds = {"gpu.count": "int", "libs.libcuda_version": "version"}
    facts = [fact(name, kinds.get(name, "text"), "told") for name in answers]  # type: ignore[arg-type]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers.items()))
    library = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1"
    tree = handed(Tree(tmp_path).linux(kernel=KERNEL).container(), library, nodes=("dxg",))
    target = tree.target(PATH=os.environ["PATH"])
    read = collect(target, [container, driver, environment, host, limits, told, pci, wsl])
    found = judge(complete(read), rulebook.load()).findings
    assert [finding.id for finding in found if finding.severity != "info"] == []

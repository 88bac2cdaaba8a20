"""Containers, their hosts and WSL, whole: from files to the findings, over the real rulebook.

What NVML and the loader answer there is told: a tree has neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor import rulebook
from gpudoctor.collect import collect
from gpudoctor.judge import judge
from gpudoctor.knowledge import complete
from gpudoctor.model.catalog import fact
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Absent, Known
from gpudoctor.probes import container, driver, environment, host, limits, pci, wsl
from tests.unit.test_probe_container import LIB, VERSION, handed, spec
from tests.unit.test_probe_container import host as docker_host
from tests.unit.test_probe_wsl import KERNEL
from tests.unit.test_probe_wsl import sound as sound_wsl
from tests.unit.trees import Tree

BOOK = rulebook.load()
PATH = {"PATH": os.environ["PATH"]}


@dataclass(frozen=True)
class Machine:
    """A tree, its session's variables, and what NVML (`nvml`, `gpus`) and the loader (`libcuda`) would say."""

    lay_out: Callable[[Path], Tree]
    nvml: str = "ok"
    gpus: int | None = 1
    libcuda: str = "driver"

    def diagnosis(self, root: Path) -> Diagnosis:
        told = ModuleType("gpudoctor.probes.told")
        missing = Absent("no libcuda.so.1")
        answers = {
            "nvml.state": Known(self.nvml, "NVML"),
            "gpu.count": Absent("NVML does not answer") if self.gpus is None else Known(self.gpus, "NVML"),
            "libs.libcuda": Known(f"{LIB}/libcuda.so.1", "the loader") if self.libcuda else missing,
            "libs.libcuda_kind": Known(self.libcuda, "the loader") if self.libcuda else missing,
            "libs.libcuda_version": Known(VERSION, "the loader") if self.libcuda == "driver" else missing,
        }
        kinds = {"gpu.count": "int", "libs.libcuda_version": "version"}
        facts = [fact(name, kinds.get(name, "text"), "told") for name in answers]  # type: ignore[arg-type]
        vars(told).update(FACTS=facts, probe=lambda _: iter(answers.items()))
        target = self.lay_out(root).target(**PATH)
        return judge(complete(collect(target, [container, driver, environment, host, limits, told, pci, wsl])), BOOK)


def node(root: Path, gpus: int = 8) -> Tree:
    """What a container sees of a healthy node: its bus, its modules, nothing of its disk."""
    tree = Tree(root).linux()
    for _ in range(gpus):
        tree.gpu("nvidia")
    tree.driver(VERSION, nodes=False)
    for name in (f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}", "libcuda.so.1", "libnvidia-ml.so.1"):
        tree.without(f"{LIB}/{name}")
    return tree


NODES = ("nvidiactl", "nvidia0", "nvidia-uvm")
"""Machines that no scenario of tests/sim has; the others are judged there, under the whole program."""


def fresh_cdi(root: Path) -> Tree:
    return docker_host(root).gpu("nvidia").driver(VERSION).file("/etc/cdi/nvidia.yaml", spec(VERSION))


def docker_in_wsl(root: Path) -> Tree:
    library = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1"
    return handed(Tree(root).linux(kernel=KERNEL).container(), library, nodes=("dxg",))


@pytest.mark.parametrize("lay_out", [fresh_cdi, docker_in_wsl])
def test_a_sound_one_gives_neither_error_nor_warning(tmp_path: Path, lay_out: Callable[[Path], Tree]) -> None:
    found = Machine(lay_out).diagnosis(tmp_path).findings
    assert [finding.id for finding in found if finding.severity != "info"] == []


def devices_alone(root: Path) -> Tree:
    return handed(node(root, 1).container(), nodes=NODES)


def loader_that_does_not_look(root: Path) -> Tree:
    return sound_wsl(root).without("/etc/ld.so.conf.d/ld.wsl.conf")


@pytest.mark.parametrize(
    ("cause", "lay_out"), [("container.no-gpu", devices_alone), ("wsl.libcuda", loader_that_does_not_look)]
)
def test_the_cause_is_named_first(tmp_path: Path, cause: str, lay_out: Callable[[Path], Tree]) -> None:
    found = Machine(lay_out, "library not found", None, "").diagnosis(tmp_path)
    assert [finding.id for finding in found.findings][:1] == [cause]
    assert found.verdict == "broken"

"""Containers, their hosts and WSL, whole: from files to the findings, over the real rulebook.

What NVML and the loader answer there is told: a tree has neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from tests.unit.test_probe_container import LIB, MOUNTED, VERSION, handed, spec
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
    environ: Mapping[str, str] = field(default_factory=dict)

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
        target = self.lay_out(root).target(**{**PATH, **self.environ})
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


def docker(root: Path, *nodes: str) -> Tree:
    return handed(node(root, 1).container(), *MOUNTED, "/proc/driver/nvidia", nodes=nodes or NODES)


NODES = ("nvidiactl", "nvidia0", "nvidia-uvm")
BARE: Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "all"}
UNGIVEN = Machine(lambda root: node(root).container(), "library not found", None, "", BARE)
WSL_BARE = Machine(lambda root: Tree(root).linux(kernel=KERNEL).container(), "library not found", None, "", {})

SOUND: dict[str, Machine] = {
    "Docker with --gpus all": Machine(docker, environ={**BARE, "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}),
    "a pod with two of eight GPUs": Machine(
        lambda root: handed(node(root).container(), *MOUNTED, nodes=("nvidiactl", "nvidia3", "nvidia6", "nvidia-uvm")),
        gpus=2,
        environ={"NVIDIA_VISIBLE_DEVICES": "GPU-1111,GPU-2222", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    ),
    "rootless Podman with CDI": Machine(
        lambda root: handed(node(root, 1).container("podman"), *MOUNTED, nodes=NODES),
        environ={"NVIDIA_VISIBLE_DEVICES": "void"},
    ),
    "an image that requires a newer minor release of CUDA": Machine(
        docker, environ={**BARE, "NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=tesla,driver>=470,driver<471"}
    ),
    "a scheduler's subset": Machine(
        lambda root: Tree(root).linux().gpu("nvidia").gpu("nvidia").gpu("nvidia").driver(VERSION),
        gpus=3,
        environ={"CUDA_VISIBLE_DEVICES": "2,0", "SLURM_JOB_ID": "1"},
    ),
    "a host with Docker configured and a fresh CDI file": Machine(
        lambda root: docker_host(root).gpu("nvidia").driver(VERSION).file("/etc/cdi/nvidia.yaml", spec(VERSION))
    ),
    "a host with Docker where nobody wants GPUs in containers": Machine(
        lambda root: Tree(root).linux().gpu("nvidia").driver(VERSION).file("/usr/bin/dockerd")
    ),
    "WSL": Machine(sound_wsl, libcuda="wsl"),
    "Docker in WSL with --gpus all": Machine(
        lambda root: handed(
            Tree(root).linux(kernel=KERNEL).container(),
            "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1",
            nodes=("dxg",),
        )
    ),
}

SICK: dict[str, tuple[str, Machine]] = {
    "docker run without --gpus": ("container.no-gpu", UNGIVEN),
    "NVIDIA_VISIBLE_DEVICES=none": (
        "container.no-gpu",
        Machine(
            lambda root: handed(node(root, 1).container(), *MOUNTED, nodes=("nvidiactl",)),
            gpus=0,
            environ={"NVIDIA_VISIBLE_DEVICES": "none"},
        ),
    ),
    "device files and no libraries": (
        "container.no-gpu",
        Machine(lambda root: handed(node(root, 1).container(), nodes=NODES), "library not found", None, ""),
    ),
    "Docker in WSL without --gpus": ("container.no-gpu", WSL_BARE),
    "NVIDIA_DRIVER_CAPABILITIES=utility": (
        "container.capabilities",
        Machine(docker, libcuda="", environ={"NVIDIA_DRIVER_CAPABILITIES": "utility"}),
    ),
    "NVIDIA_DRIVER_CAPABILITIES=compute": (
        "container.capabilities",
        Machine(docker, "library not found", None, environ={"NVIDIA_DRIVER_CAPABILITIES": "compute"}),
    ),
    "a daemon-reload": (
        "container.cgroup-lost",
        Machine(
            lambda root: docker(root).file("/sys/fs/cgroup/devices/devices.list", "c 195:* m\n"), "unknown error", None
        ),
    ),
    "a newer libcuda in the image": (
        "container.driver-in-image",
        Machine(
            lambda root: handed(
                node(root, 1).container(), f"{LIB}/libcuda.so.535.54.03", f"{LIB}/libnvidia-ml.so.535.54.03"
            ).file(f"{LIB}/libcuda.so.{VERSION}", b"\x7fELF"),
            "version mismatch",
            None,
        ),
    ),
    "Docker's runtime was removed": (
        "container.toolkit",
        Machine(
            lambda root: docker_host(root).gpu("nvidia").driver(VERSION).without("/usr/bin/nvidia-container-runtime")
        ),
    ),
    "the host's numbers in a container": (
        "env.visible-devices",
        Machine(docker, environ={"CUDA_VISIBLE_DEVICES": "4"}),
    ),
    "a Linux driver in WSL": (
        "wsl.linux-driver",
        Machine(lambda root: sound_wsl(root).libraries(VERSION), "driver not loaded", None, "driver"),
    ),
    "WSL whose loader does not look": (
        "wsl.libcuda",
        Machine(lambda root: sound_wsl(root).without("/etc/ld.so.conf.d/ld.wsl.conf"), "library not found", None, ""),
    ),
    "WSL without /dev/dxg": (
        "wsl.libcuda",
        Machine(lambda root: sound_wsl(root).without("/dev/dxg"), "unknown error", None, "wsl"),
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_one_gives_neither_error_nor_warning(tmp_path: Path, name: str) -> None:
    found = SOUND[name].diagnosis(tmp_path).findings
    assert [finding.id for finding in found if finding.severity != "info"] == []


@pytest.mark.parametrize("name", SICK)
def test_the_cause_is_named_first(tmp_path: Path, name: str) -> None:
    expected, machine = SICK[name]
    found = machine.diagnosis(tmp_path)
    assert [finding.id for finding in found.findings][:1] == [expected]
    assert found.verdict == "broken"


def test_a_cdi_file_of_the_previous_driver_is_a_warning_with_its_command(tmp_path: Path) -> None:
    def lay_out(root: Path) -> Tree:
        return docker_host(root).gpu("nvidia").driver(VERSION).file("/etc/cdi/nvidia.yaml", spec("535.54.03"))

    (finding,) = [one for one in Machine(lay_out).diagnosis(tmp_path).findings if one.severity != "info"]
    assert (finding.id, finding.severity) == ("container.cdi-stale", "warning")
    assert finding.fixes[0].steps[0].argv == ("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")

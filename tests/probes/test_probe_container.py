"""Containers from inside, as Docker, a device plugin, CDI and Apptainer leave them; and engines from the host."""

import json
import os
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import container
from tests.probes.trees import Tree, refused, said, spoilt, values

LIB = "/usr/lib/x86_64-linux-gnu"
VERSION = "550.54.15"
MOUNTED = (f"{LIB}/libcuda.so.{VERSION}", f"{LIB}/libnvidia-ml.so.{VERSION}", "/usr/bin/nvidia-smi")
INSIDE = frozenset(spec.name.partition(".")[2] for spec in container.FACTS[:8])


def handed(tree: Tree, *mounts: str, nodes: tuple[str, ...] = ("nvidiactl", "nvidia0", "nvidia-uvm")) -> Tree:
    """The container with those files of the host's driver mounted, and those device files."""
    place = tree.root / "proc/self/mountinfo"
    lines = [f"{700 + n} 651 259:2 {path} {path} ro,nosuid - ext4 /dev/nvme0n1p2 rw" for n, path in enumerate(mounts)]
    tree.file("/proc/self/mountinfo", place.read_text() + "\n".join(lines) + "\n")
    for path in mounts:
        if "." in path.rpartition("/")[2] or path.endswith("nvidia-smi"):
            tree.file(path, b"\x7fELF")
    for name in nodes:
        tree.file(f"/dev/{name}", mode=0o666)
    return tree


def docker(tmp_path: Path, *mounts: str) -> Tree:
    return handed(Tree(tmp_path).linux().container(), *(mounts or (*MOUNTED, "/proc/driver/nvidia")))


def test_a_docker_container_with_one_gpu(tmp_path: Path) -> None:
    target = docker(tmp_path).target(NVIDIA_VISIBLE_DEVICES="0", PATH=os.environ["PATH"])
    facts = said(container, target)
    assert facts["container.requested"] == Known(("0",), "NVIDIA_VISIBLE_DEVICES")
    assert facts["container.lacks"].value == ()
    assert facts["container.driver_mounts"].value == MOUNTED
    assert facts["container.driver_version"].value == VERSION
    assert facts["container.driver_in_image"].value == ()
    assert facts["container.handover"].value == "NVIDIA's runtime"
    assert facts["container.device_access"].value is True
    assert set(facts["container.capabilities"].value) == {"utility", "compute"}


def test_the_hosts_side_is_not_claimed_from_inside_and_neither_where_nobody_can_tell(tmp_path: Path) -> None:
    facts = said(container, docker(tmp_path).file("/etc/docker/daemon.json", "{}").target())
    outside = {name: state for name, state in facts.items() if name.partition(".")[2] not in INSIDE}
    assert outside
    assert all(isinstance(state, Unread) and "docker" in state.why for state in outside.values())
    tree = Tree(tmp_path / "unclear").linux()
    tree.file("/proc/self/mountinfo", "651 533 0:72 / / rw - overlay overlay rw\n").folder("/sys/module")
    facts = values(container, tree.target())
    assert all(facts[f"container.{name}"] is Unread for name in INSIDE)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("all", ("all",)), ("GPU-aa,GPU-bb", ("GPU-aa", "GPU-bb")), ("none", ()), ("void", Absent), ("", Absent)],
)
def test_requests_by_the_variable(tmp_path: Path, variable: str, expected: object) -> None:
    target = docker(tmp_path).target(NVIDIA_VISIBLE_DEVICES=variable)
    assert values(container, target)["container.requested"] == expected


def test_a_device_plugins_mounts_count_before_the_images_variable(tmp_path: Path) -> None:
    tree = handed(Tree(tmp_path).linux().container("podman"), *MOUNTED)
    for name in ("GPU-1111", "GPU-2222"):
        tree.file(f"/var/run/nvidia-container-devices/{name}")
    facts = values(container, tree.target(NVIDIA_VISIBLE_DEVICES="all", KUBERNETES_SERVICE_HOST="10.0.0.1"))
    assert facts["container.requested"] == ("GPU-1111", "GPU-2222")
    assert facts["container.handover"] == "device plugin"


def test_how_gpus_were_handed_over(tmp_path: Path) -> None:
    tree = handed(Tree(tmp_path).linux().container("podman"), *MOUNTED)
    facts = values(container, tree.target(NVIDIA_VISIBLE_DEVICES="void"))
    assert facts["container.handover"] == "CDI"
    assert facts["container.lacks"] == ()
    tree = Tree(tmp_path / "apptainer").linux().container().file("/.singularity.d/libs/libcuda.so.1", b"\x7fELF")
    facts = values(container, handed(tree).target())
    assert facts["container.lacks"] == ()
    assert facts["container.handover"] == "apptainer --nv"
    facts = values(container, Tree(tmp_path / "none").linux().container().target())
    assert facts["container.lacks"] == ("the driver's libraries", "/dev/nvidiactl", "/dev/nvidia0 (or another GPU's)")
    assert facts["container.handover"] is Absent
    assert facts["container.device_access"] is Absent


def test_what_may_not_be_read_is_not_called_missing() -> None:
    with refused("/usr/lib64") as tree:
        tree.linux().container().folder("/usr/lib64")
        for name in ("nvidiactl", "nvidia0"):
            tree.file(f"/dev/{name}", mode=0o666)
        assert values(container, tree.close())["container.lacks"] is Unread
    with refused("/etc/cdi") as tree:
        tree.linux().file("/etc/cdi/nvidia.yaml", spec(VERSION))
        facts = values(container, tree.close())
        assert facts["container.cdi_driver"] is Unread
        assert facts["container.cdi_specs"] is Unread


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ("a *:* rwm\n", True),
        ("c 1:3 rwm\nc 195:255 rw\nc 195:0 rw\n", True),
        ("c 1:3 rwm\nc 195:* m\nb *:* m\n", False),
        ("c *:* m\nc 1:3 rwm\n", False),
    ],
)
def test_device_rules_of_version_1(tmp_path: Path, rules: str, allowed: bool) -> None:
    tree = docker(tmp_path).file("/sys/fs/cgroup/devices/devices.list", rules)
    assert values(container, tree.target())["container.device_access"] is allowed


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ("sh: 1: cannot open /dev/nvidiactl: Operation not permitted", 2, False),
        ("sh: can't create /dev/nvidiactl: Operation not permitted", 1, False),
        ("sh: 1: cannot open /dev/nvidiactl: No such device or address", 2, Unread),
        ("", 0, True),
    ],
)
def test_device_rules_of_version_2_show_when_the_file_is_opened(
    tmp_path: Path, words: str, status: int, expected: object
) -> None:
    """No tree can refuse an open as a device rule does; a shell that says what one says stands for it."""
    shell = tmp_path / "bin/sh"
    shell.parent.mkdir()
    shell.write_text(f"#!/bin/sh\necho {json.dumps(words)} >&2\nexit {status}\n")
    shell.chmod(0o755)
    target = docker(tmp_path / "root").target(PATH=str(shell.parent))
    assert values(container, target)["container.device_access"] == expected


def test_a_container_without_a_shell_leaves_device_rules_open(tmp_path: Path) -> None:
    assert values(container, docker(tmp_path).target(PATH=str(tmp_path)))["container.device_access"] is Unread


NVIDIA_RUNTIME = (
    '{"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}, "default-runtime": "nvidia"}'
)


def host(tmp_path: Path) -> Tree:
    """A host with Docker and the toolkit, as ``nvidia-ctk runtime configure --set-as-default`` leaves it."""
    tree = Tree(tmp_path).linux().file("/usr/bin/dockerd").file("/usr/bin/containerd")
    for name in ("nvidia-ctk", "nvidia-container-runtime"):
        tree.file(f"/usr/bin/{name}")
    packages = "Package: nvidia-container-toolkit\nStatus: install ok installed\nVersion: 1.17.8-1\n\n"
    tree.file("/var/lib/dpkg/status", packages)
    config = '[nvidia-container-cli]\nno-cgroups = false\n\n[nvidia-container-runtime]\nmode = "auto"\n'
    tree.file("/etc/nvidia-container-runtime/config.toml", config)
    return tree.file("/etc/docker/daemon.json", NVIDIA_RUNTIME)


def test_a_host_with_docker_configured(tmp_path: Path) -> None:
    facts = values(container, host(tmp_path).target())
    assert facts["container.engines"] == ("docker", "containerd")
    assert (facts["container.toolkit"], facts["container.toolkit_version"]) == (True, "1.17.8")
    assert (facts["container.toolkit_mode"], facts["container.no_cgroups"]) == ("auto", False)
    assert facts["container.runtimes"] == ("docker",)
    assert facts["container.default_runtime"] == "nvidia"
    assert facts["container.broken"] == ()
    assert all(facts[f"container.{name}"] is Absent for name in INSIDE)


def test_a_bare_host_has_nothing_and_without_dpkg_the_library_tells_the_version(tmp_path: Path) -> None:
    facts = values(container, Tree(tmp_path).linux().target())
    assert (facts["container.engines"], facts["container.runtimes"], facts["container.broken"]) == ((), (), ())
    assert facts["container.toolkit"] is False
    assert facts["container.default_runtime"] is Absent
    assert facts["container.cdi_driver"] is Absent
    tree = host(tmp_path / "host").without("/var/lib/dpkg/status").file("/usr/lib64/libnvidia-container.so.1.17.4")
    assert values(container, tree.target())["container.toolkit_version"] == "1.17.4"


@pytest.mark.parametrize(
    ("settings", "said_of_it"),
    [
        ('{"runtimes": {"nvidia": {"path": "/opt/nvidia-container-runtime"}}}', "which is not there"),
        ('{"default-runtime": "nvidia"}', "which is not among its runtimes"),
        ('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime",}}}', "is not JSON"),
    ],
)
def test_settings_of_docker_that_cannot_work(tmp_path: Path, settings: str, said_of_it: str) -> None:
    (broken,) = values(container, host(tmp_path).file("/etc/docker/daemon.json", settings).target())["container.broken"]
    assert said_of_it in broken


@pytest.mark.parametrize("settings", ["", "[]", '{"default-runtime": "crun"}', '{"runtimes": {"kata": {}}}'])
def test_settings_of_docker_that_are_none_of_ours(tmp_path: Path, settings: str) -> None:
    tree = host(tmp_path).file("/etc/docker/daemon.json", settings)
    assert values(container, tree.target())["container.broken"] == ()


def test_containerd_and_cri_o(tmp_path: Path) -> None:
    tree = host(tmp_path).without("/etc/docker/daemon.json").file("/usr/bin/crio")
    section = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    tree.file("/etc/containerd/config.toml", f'{section}  BinaryName = "/usr/bin/nvidia-container-runtime"\n')
    tree.file("/etc/crio/crio.conf.d/99-nvidia.conf", 'runtime_path = "/opt/gone/nvidia-container-runtime"\n')
    facts = values(container, tree.target())
    assert facts["container.runtimes"] == ("containerd", "cri-o")
    assert facts["container.broken"] == (
        "/etc/crio/crio.conf.d/99-nvidia.conf is /opt/gone/nvidia-container-runtime, which is not there",
    )


def spec(version: str, kind: str = "nvidia.com/gpu") -> str:
    """What ``nvidia-ctk cdi generate`` writes, cut down."""
    return (
        f'---\ncdiVersion: 0.5.0\nkind: {kind}\ndevices:\n  - name: "0"\n    containerEdits:\n      deviceNodes:\n'
        "        - path: /dev/nvidia0\ncontainerEdits:\n  env:\n    - NVIDIA_VISIBLE_DEVICES=void\n  mounts:\n"
        f"    - hostPath: {LIB}/libcuda.so.{version}\n      containerPath: {LIB}/libcuda.so.{version}\n"
    )


def test_cdi_files_in_the_order_engines_take_them(tmp_path: Path) -> None:
    tree = host(tmp_path).file("/etc/cdi/nvidia.yaml", spec("550.54.15")).file("/run/cdi/nvidia.yaml", spec(VERSION))
    tree.file("/etc/cdi/other.yaml", spec("1.2", "vendor.com/device")).link("/var/run", "/run")
    tree.file("/etc/cdi/as.json", json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}, indent=1))
    facts = said(container, tree.target())
    specs = facts["container.cdi_specs"].value
    assert specs == ("/var/run/cdi/nvidia.yaml", "/etc/cdi/as.json", "/etc/cdi/nvidia.yaml")
    assert facts["container.cdi_driver"] == Known(VERSION, "/var/run/cdi/nvidia.yaml")


def test_damaged_files_end_no_probe(tmp_path: Path) -> None:
    trees = [host(tmp_path / "host").file("/etc/cdi/nvidia.yaml", spec(VERSION)), docker(tmp_path / "in")]
    trees[0].file("/etc/containerd/config.toml", "version = 2\n").file("/run/cdi/n.json", "{}")
    trees[1].file("/sys/fs/cgroup/devices/devices.list", "a *:* rwm\n")
    for tree in trees:
        target = tree.target()
        for place in sorted(path for path in tree.root.rglob("*") if path.is_file() and not path.is_symlink()):
            for kind in spoilt(place):
                names = {name for name, _ in container.probe(target)}
                assert len(names) == len(container.FACTS), f"{place} {kind}"

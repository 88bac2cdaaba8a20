"""What a container does not see of its machine, and what it sees instead."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.sim.driver import library_folder
from tests.sim.files import Files
from tests.sim.host import PACKAGES, process

_OVERLAY = "651 533 0:72 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A"


def enter(files: Files, machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> None:
    """Hide the host's files and processes; mount the driver as NVIDIA's container toolkit does."""
    files.drop(
        "/lib/modules",
        "/lib/firmware",
        "/usr/src",
        "/sys/firmware",
        "/run/systemd",
        "/dev/kmsg",
        "/var/log",
        "/run/nvidia-fabricmanager",
        "/usr/bin/nv-fabricmanager",
        "/etc/systemd",
        "/usr/lib/systemd",
        "/opt/nvidia",
        "/dev/infiniband",
        "/usr/bin/nvidia-modprobe",
    )
    if PACKAGES in files.files:  # the image's own: what it was built of, without a driver
        own, _, _ = files.files[PACKAGES].partition(b"\n\n")
        files.add(PACKAGES, own + b"\n\n")
    pids = {path.split("/")[2] for path in files.files if path.startswith("/proc/")}
    files.drop(*[f"/proc/{pid}" for pid in pids if pid.isdigit()])
    process(files, 1, "bash")
    for pid, name in machine["processes"].items():
        process(files, pid, name)
    files.folder("/sys/firmware")
    files.add("/proc/1/cgroup", "0::/\n").add("/proc/self/cgroup", "0::/\n")
    files.add("/sys/fs/cgroup/memory.max", "max\n").add("/sys/fs/cgroup/cpu.max", "max 100000\n")
    files.add("/proc/self/mountinfo", "".join(f"{line}\n" for line in _mounts(machine, gpus)))
    mark = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}.get(machine["container"])
    if mark:
        files.add(mark, "")
    else:
        files.add("/run/secrets/kubernetes.io/serviceaccount/namespace", "default\n")


def _mounts(machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overlay, the driver's files and the device files of the GPUs that were handed over."""
    lines = [_OVERLAY]
    version, folder = machine["driver"], library_folder(machine)
    if not version:
        return lines
    lines.append("655 653 0:75 / /proc/driver/nvidia rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=555")
    for at, name in enumerate(("libcuda", "libnvidia-ml"), 660):
        path = f"{folder}/{name}.so.{version}"
        lines.append(f"{at} 651 259:2 {path} {path} ro,nosuid,nodev,relatime - ext4 /dev/root rw")
    lines.append("670 651 259:2 /usr/bin/nvidia-smi /usr/bin/nvidia-smi ro,nosuid,nodev,relatime - ext4 /dev/root rw")
    nodes = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{gpu['minor']}" for gpu in gpus)]
    for at, node in enumerate(nodes, 680):
        lines.append(f"{at} 652 0:5 /{node} /dev/{node} ro,nosuid,noexec,relatime master:2 - devtmpfs udev rw")
    return lines

"""A container from inside: which GPUs it was to get, and what of the driver is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes import _marks
from gpudoctor.probes._driver import disk
from gpudoctor.probes._reading import names, real, text, there, usable
from gpudoctor.target import Target

_MOUNTS = "/proc/self/mountinfo"
_PLUGIN = "/var/run/nvidia-container-devices"
_CONTROL = "/dev/nvidiactl"
_V1_RULES = "/sys/fs/cgroup/devices/devices.list"
_DRIVER = pattern(
    r"/(?:lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so[.\d]*|nvidia-smi)$"
    r"|^/usr/local/nvidia(?:/lib64)?$|^/usr/lib/wsl(?:/(?:lib|drivers)\b.*)?$"
)
"""Where mounts of the driver end: single files, or the folder that Google's and WSL's nodes mount."""

_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_MORE_FOLDERS = ("/usr/lib/wsl/lib", "/.singularity.d/libs")


def facts(target: Target, engine: str) -> Iterator[tuple[str, Fact]]:
    """All of the inside's facts; `engine` as host.container names it."""
    asked = _requested(target)
    yield "container.requested", asked
    yield "container.capabilities", _capabilities(target.environ.get("NVIDIA_DRIVER_CAPABILITIES"))
    table = text(target, _MOUNTS, 1 << 20)
    points = re.findall(r"^\d+ \d+ \S+ \S+ (\S+) ", table, re.M) if isinstance(table, str) else []
    mounts = [point for point in dict.fromkeys(points) if _DRIVER.search(point)]
    yield "container.driver_mounts", Known(tuple(mounts), _MOUNTS) if isinstance(table, str) else Unread(table.why)
    yield "container.driver_version", _version(mounts)
    versions, _, trouble = disk.libraries(target)
    yield "container.driver_in_image", _in_image(target, mounts, versions, trouble)
    devices = names(target, "/dev")
    present = devices if isinstance(devices, list) else []
    yield "container.handover", _handover(target, engine, points, asked, mounts, present)
    yield "container.lacks", _lacks(target, devices, bool(mounts or versions), trouble)
    yield "container.device_access", _access(target)


def _requested(target: Target) -> Fact:
    """The device plugin's mounts count before the variable, which most CUDA images set to ``all`` by themselves."""
    mounted = names(target, _PLUGIN)
    if isinstance(mounted, list) and mounted:
        return Known(tuple(mounted), _PLUGIN)
    name = "NVIDIA_VISIBLE_DEVICES"
    value = target.environ.get(name)
    if value is None:
        return Absent(f"{name} is not set, and there is no {_PLUGIN}")
    if value == "void" or not value:
        return Absent(f"{name} is {value!r}: it asks NVIDIA's runtime for nothing, CDI may have handed GPUs over")
    return Known(() if value == "none" else tuple(filter(None, value.split(","))), name)


def _capabilities(value: str | None) -> Fact:
    name = "NVIDIA_DRIVER_CAPABILITIES"
    if not value:
        return Known(("utility", "compute"), f"{name} is not set; these are what the toolkit then gives")
    return Known(tuple(filter(None, (part.strip() for part in value.split(",")))), name)


def _version(mounts: list[str]) -> Fact:
    for mount in mounts:
        if match := re.search(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)$", mount):
            return Known(match[1], f"{_MOUNTS}: {mount}")
    return Absent(f"{_MOUNTS}: no mounted libcuda names its version")


def _in_image(target: Target, mounts: list[str], versions: dict[str, str], trouble: Unread | None) -> Fact:
    """Only where single libraries are mounted can it be told which are not."""
    if not any(".so" in mount for mount in mounts):
        return Absent("no single library of the driver is mounted into this container")
    own = tuple(path for path in versions if path not in mounts and real(target, path) not in mounts)
    return trouble if trouble and not own else Known(own, "libraries of the driver that are no mounts")


def _handover(
    target: Target, engine: str, points: list[str], asked: Fact, mounts: list[str], devices: list[str]
) -> Fact:
    """NVIDIA's older runtime lays a file system of its own over /proc/driver/nvidia; CDI sets its variable to void."""
    cards = any(re.fullmatch(r"nvidia\d+|dxg", name) for name in devices)
    if not mounts and not cards:
        return Absent("nothing of the driver is in this container")
    if isinstance(asked, Known) and asked.source == _PLUGIN:
        return Known("device plugin", _PLUGIN)
    if target.environ.get("NVIDIA_VISIBLE_DEVICES") == "void":
        return Known("CDI", "NVIDIA_VISIBLE_DEVICES is void")
    if engine == "apptainer":
        return Known("apptainer --nv", "/.singularity.d")
    if "/proc/driver/nvidia" in points:
        return Known("NVIDIA's runtime", f"{_MOUNTS}: /proc/driver/nvidia")
    if engine == "podman" and mounts:
        return Known("CDI", f"{_MOUNTS}: {mounts[0]}")
    return Unread("nothing shows who handed the GPUs over")


def _lacks(target: Target, devices: list[str] | Absent | Unread, libraries: bool, trouble: Unread | None) -> Fact:
    if isinstance(devices, Unread):
        return devices
    missing: list[str] = []
    if not libraries:
        places = [f"{folder}/{name}" for folder in (*disk.LIBRARY_FOLDERS, *_MORE_FOLDERS) for name in _LIBRARIES]
        states = [there(target, path) for path in places]
        unread = next((state for state in (trouble, *states) if isinstance(state, Unread)), None)
        if unread and True not in states:
            return unread
        if True not in states:
            missing.append("the driver's libraries")
    present = devices if isinstance(devices, list) else []
    if isinstance(_marks.wsl(target), Known):
        needed = {"/dev/dxg": "dxg"}
    elif isinstance(_marks.jetson(target), Known):
        needed = {}  # the chip's GPU has device files of other names, which differ by release
    else:
        needed = {_CONTROL: "nvidiactl", "/dev/nvidia0 (or another GPU's)": r"nvidia\d+"}
    missing += [said for said, pattern in needed.items() if not any(re.fullmatch(pattern, name) for name in present)]
    return Known(tuple(missing), "/dev and the loader's usual folders")


def _access(target: Target) -> Fact:
    """Version 1 of cgroups lists its device rules. Version 2 keeps them in a program: only opening the file tells."""
    rules = text(target, _V1_RULES, 1 << 16)
    if isinstance(rules, str) and rules:
        allowed = re.search(r"^(?:a |c (?:195|\*):\S+ \w*r)", rules, re.M)
        return Known(bool(allowed), _V1_RULES)
    if there(target, _CONTROL) is not True:
        return Absent(f"no {_CONTROL}")
    if not usable(target, _CONTROL):
        return Unread(f"the permissions of {_CONTROL} keep this user from opening it")
    try:  # the place is no argument, so that a record of the command holds on any machine
        place = {"LC_ALL": "C", "NODE": str(target.path(_CONTROL))}
        answer = target.run(("sh", "-c", ': <> "$NODE"'), timeout=2, env=place)
    except OSError as error:
        return Unread(f"{_CONTROL} could not be tried: no shell ({error.strerror})")
    if answer.ok:
        return Known(True, f"{_CONTROL} could be opened")
    if "not permitted" in answer.err:
        return Known(False, f"{_CONTROL}: Operation not permitted, though its mode allows it")
    return Unread(f"{_CONTROL}: {answer.err.strip()[-120:] or answer.how}")

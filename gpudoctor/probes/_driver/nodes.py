"""Device files of the NVIDIA driver: which are there, which should be, and who may open them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._bus.config import BUS, asleep
from gpudoctor.probes._reading import names, text, usable
from gpudoctor.target import Target

PROC = "/proc/driver/nvidia"


def params(target: Target) -> Fact:
    """Lines ``EnableGpuFirmware: 18``."""
    path = f"{PROC}/params"
    found = text(target, path, 1 << 16)
    if not isinstance(found, str):
        return found
    return Known(dict(re.findall(r"^(\w+): (.*)$", found, re.M)), path)


def device_files(target: Target, loaded: Fact, inside: Fact, wsl: bool) -> Iterator[tuple[str, Fact | Rows]]:
    present = names(target, "/dev")
    if not isinstance(present, list):
        why = Unread(present.why)
        yield from (("node", why), ("driver.nodes_missing", why), ("driver.nodes_denied", why))
        return
    paths = [f"/dev/{name}" for name in present if re.fullmatch(r"nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset)", name)]
    rows = tuple(_node(target, path) for path in paths)
    yield "node", rows
    needed = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)")
    denied = [path for path, row in zip(paths, rows, strict=True) if row["usable"] == Known(False, path)]
    yield "driver.nodes_denied", Known(tuple(path for path in denied if needed.fullmatch(path)), "/dev")
    if wsl:
        yield "driver.nodes_missing", Absent("WSL has /dev/dxg in their place")
    elif not isinstance(loaded, Known):
        yield "driver.nodes_missing", loaded
    elif not loaded.value:
        yield "driver.nodes_missing", Absent("the nvidia module is not loaded")
    else:
        yield "driver.nodes_missing", _missing(target, paths, inside)


def _node(target: Target, path: str) -> Row:
    try:
        mode: Fact = Known(f"{target.path(path).stat().st_mode & 0o7777:04o}", path)
    except OSError as error:
        mode = Unread(f"{path}: {error.strerror}")
    return {"path": Known(path, "/dev"), "mode": mode, "usable": Known(usable(target, path), path)}


def _missing(target: Target, present: list[str], inside: Fact) -> Fact:
    """Those that a process would need and nobody will make.

    Outside containers nvidia-modprobe, set to run as root, makes them at first use, unless the module was told not to
    let it. Inside a container a GPU that was not handed over has no node, so that one GPU's node is enough.
    """
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    contained = isinstance(inside, Known)
    if not contained and _on_demand(target):
        return Known((), "nvidia-modprobe makes them at first use")
    cards = [f"/dev/nvidia{minor}" for minor in _minors(target)]
    if not (contained and any(card in present for card in cards)):
        wanted += cards
    return Known(tuple(path for path in wanted if path not in present), "/dev")


def _minors(target: Target) -> list[str]:
    """Numbers of the GPUs that the module has taken, but for those that are asleep."""
    found = names(target, f"{PROC}/gpus")
    listed = found if isinstance(found, list) else []
    taken = [address for address in listed if not asleep(target, f"{BUS}/{address}")]
    notes = [text(target, f"{PROC}/gpus/{address}/information", 4096) for address in taken]
    minors = [re.search(r"^Device Minor:\s*(\d+)", note, re.M) for note in notes if isinstance(note, str)]
    return sorted(minor[1] for minor in minors if minor)


def _on_demand(target: Target) -> bool:
    said = params(target)
    if isinstance(said, Known) and isinstance(said.value, dict) and said.value.get("ModifyDeviceFiles") == "0":
        return False
    status = text(target, "/proc/self/status", 4096)
    if isinstance(status, str) and re.search(r"^Uid:\s+\d+\s+0\s", status, re.M):
        return True
    try:
        mode = target.path("/usr/bin/nvidia-modprobe").stat().st_mode
    except OSError:
        return False
    return bool(mode & 0o4000 and mode & 0o001)

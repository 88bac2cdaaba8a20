"""Listings of state without any fact: their lines are marked as understood, so that rules do not read them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 1

_LISTING = Pattern(
    r"\s*(?:NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) [Vv]ersion\s*:\s"  # nvidia-smi --version
    r"|\s*GPU \d+: \S.*\(UUID: GPU-|\s+MIG \S+\s+Device\s+\d+: \(UUID: MIG-"  # nvidia-smi -L
    r"|\s*(?:GPU|NIC|mlx5_)\d+(?:\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C)(?=\s|$))+"  # nvidia-smi topo -m
    r"|\s*GPU\d+(?:\s+(?:GPU\d+|NIC\d+|mlx5_\w+))*\s+CPU Affinity\b"
    r"|\s*Link \d+(?::|,)\s*(?:<inactive>|[\d.]+ [GM]B/s|[A-Z][\w ]+: (?:\d+|true|false|N/A)\s*$)"  # nvlink
    r"|\s*(?i:NVML: Unable to retrieve Nvlink information as all links are inActive)\s*$"
    r"|\s*(?i:Nvlink (?:queries are|is) not supported\b)"
    r"|\[[^\]]{10,40}\] \[INFO\] \[tid \d+\] "  # fabricmanager.log
    r"|[5-7],\d+,\d+,[^;]{0,80};|<[5-7]>|kern\s*:(?:notice|info|debug)\s*: "  # the kernel: no worse than notice
)
_CDI = Pattern(
    r"\s*(?:WARN\[\d{4}\] Could not locate (?!lib(?:cuda|nvidia-ml)\.so)\S+: pattern \S+ not found"
    r"|(?:32|64)-bit library (?!lib(?:cuda|nvidia-ml)\.so)\S+: not found|INFO\[\d{4}\] (?:Selecting|Using) \S.*)\s*$"
)
"""What nvidia-ctk looks for and few hosts have, and what it takes."""
_DEVICE = Pattern(r"\s*(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\s+[A-Z\d][^:\[]{2,50}(?: \[\w+\])?: \S")
_OF_DEVICE = Pattern(r"\s+[A-Z][\w/ .-]*(?::| at )")
_COMMANDS = Pattern(r"(?:sudo )?(?:nvidia-smi|lspci|dcgmi|nvcc|dmesg|journalctl|cat|ls|lsmod|uname)\b")
_MONITOR = Pattern(r"\s*#\s?(?:Date\s+Time\s+)?gpu\s+\w+")
_UNITS = Pattern(r"\s*#\s?(?:YYYYMMDD\s+HH:MM:SS\s+)?Idx\s")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields nothing; marks the lines of state listings (lspci, nvidia-smi, ...) and typed commands as placed."""
    for index, line in enumerate(paste.lines):
        if _LISTING.match(line) or (paste.bare[index] is not line and _LISTING.match(paste.bare[index])):
            paste.mark_listed(index)
    for index, command in paste.commands.items():  # what was asked is not what is
        if _COMMANDS.match(command):
            paste.mark_listed(index)
    for index, line in paste.having("could not locate", "-bit library", "info["):
        if _CDI.match(line):
            paste.mark_listed(index, data=True)
    _mark_lspci(paste)
    _mark_monitors(paste)
    if "nvidia-smi" in paste.lower:
        _mark_nvidia_smi_table(paste)
    yield from ()


def _mark_lspci(paste: Paste) -> None:
    """Mark lspci's lines: one per device, with -v the device's attributes below it."""
    in_device = False
    for index, line in enumerate(paste.bare):
        device = bool(_DEVICE.match(line))
        if device or (in_device and _OF_DEVICE.match(line)):
            paste.mark_listed(index)
        in_device = device or (in_device and line[:1].isspace())


def _mark_monitors(paste: Paste) -> None:
    """Mark ``nvidia-smi dmon`` and ``pmon``: heading, units, and a line for each sample."""
    columns = 0
    for index, line in enumerate(paste.lines):
        if _MONITOR.match(line):
            columns = len(line.replace("#", " ").split())
            paste.mark_listed(index, data=True)
        elif columns and _UNITS.match(line):
            paste.mark_listed(index, data=True)
        elif columns and (cells := line.split()):
            if len(cells) >= columns and any(cell.isdecimal() for cell in cells[:3]):
                paste.mark_listed(index, data=True)
            else:
                columns = 0


def _mark_nvidia_smi_table(paste: Paste) -> None:
    """Mark all framed lines where the text shows nvidia-smi's table."""
    framed = [index for index, line in enumerate(paste.bare) if line.lstrip()[:1] in ("|", "+")]
    if any("NVIDIA-SMI" in paste.bare[index] or "Persistence-M" in paste.bare[index] for index in framed):
        paste.mark_listed(*framed)

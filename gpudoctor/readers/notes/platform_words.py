"""The platform, where nothing names it, by the files and commands that a text speaks of."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._machine import system_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 0

_LINUX_WORDS = (
    "nvrm:",
    "/usr/lib/",
    ".so.1",
    "modprobe",
    "lsmod",
    "/proc/driver",
    "dmesg",
    "apt-get",
    "linux-gnu",
    "/usr/local/cuda",
)
_NAMED = Pattern(
    r"(?:Ubuntu|Debian|CentOS|Fedora|RHEL|Red Hat|Rocky|AlmaLinux|Arch Linux|Manjaro|openSUSE|Linux Mint|Pop!_OS"
    r"|(?:Microsoft )?Windows(?: 1[01])?)\b[^,;:]{0,40}$"
)
"""A system by its name, on a line or in a list of its own."""
_WINDOWS = Pattern(r"\b(?:windows|win) ?(?:7|8|8\.1|1[01])\b")
_NOT_ALONE = Pattern(
    r"\bwsl|linux|ubuntu|debian|fedora|centos|docker|container|dual.?boot|\bvms?\b|virtual|proxmox|esxi|remote"
)
"""Beside one of these, Windows may be somebody else's system."""
_WINDOWS_WORDS = ("c:\\", "d:\\", ".dll", "winerror", "win_amd64", "\\lib\\site-packages")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """host.platform guessed from system names, paths and commands in the text; any other reader overrules it."""
    for index, line in enumerate(paste.bare):
        if index not in paste.used and (match := _NAMED.match(line.strip(" -*").partition(",")[0])):
            yield from system_facts(match.group(), f"line {paste.numbers[index]}")
    for platform, words in (("linux", _LINUX_WORDS), ("windows", _WINDOWS_WORDS)):
        present_words = [word for word in words if word in paste.lower]
        if present_words:
            index, _ = next(paste.having(*present_words))
            yield "host.platform", Known(platform, f"line {paste.numbers[index]}: {present_words[0]}")
            return
    for index, line in paste.having("windows", "win"):
        if (match := _WINDOWS.search(line.lower())) and not _NOT_ALONE.search(paste.lower):
            yield "host.platform", Known("windows", f"line {paste.numbers[index]}: {match.group()}")
            return

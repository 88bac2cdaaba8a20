"""What is guessed where nothing tells it: the platform by files and commands, builds of extensions by tags of wheels.

Such a tag stands in ``flash-attn wheel: cu12torch2.3``; a file that is named need not be the one installed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows, known_facts
from gpudoctor.readers._machine import system_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases
from gpudoctor.readers._software import EXTENSIONS, tag_columns

EXACT = 0  # any other reader overrules it

_LINUX_WORDS = phrases(
    """
    nvrm: | /usr/lib/ | .so.1 | modprobe | lsmod | /proc/driver | dmesg | apt-get | linux-gnu | /usr/local/cuda
    """
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
    """Rows of ``extension`` by wheel tags that the text names, and the operating system, guessed."""
    yield from _wheel_tags(paste)
    yield from _platform(paste)


def _platform(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """The operating system's facts by a line that names it, then host.platform guessed from paths and commands."""
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


_TAG = Pattern(r"(?i)([\w -]{2,30}?)(?: wheel| build| version)?\s*[:=]\s*\S*?((?:cu\d{2,3})?torch\d+\.\d+\w*)\b")
_NOT_THIS = Pattern(
    r"(?i)not a supported wheel|\b(?:works?|worked|fixe[sd]|solve[sd]|tried|trying|404|instead|before|after"
    r"|earlier|old)\b"
)


def _wheel_tags(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """A row of ``extension`` for each extension of which exactly one wheel tag is named: torch, CUDA and C++ ABI.

    Lines that speak of another time or of a failed trial do not count.
    """
    rows_by_tag: dict[str, dict[str, Row]] = {}
    for index, line in paste.having("torch"):
        if _NOT_THIS.search(line) or not (match := _TAG.match(paste.bare[index])):
            continue
        name, tag = match.group(1).strip().lower().replace("_", "-").replace(" ", "-"), match.group(2)
        if name not in EXTENSIONS:
            continue
        source = paste.use(index)
        row = {**known_facts(source, name=name, version=f"({tag})"), **tag_columns(tag, source)}
        rows_by_tag.setdefault(name, {}).setdefault(tag.lower(), row)
    rows = tuple(row for tags in rows_by_tag.values() if len(tags) == 1 for row in tags.values())
    if rows:
        yield "extension", rows

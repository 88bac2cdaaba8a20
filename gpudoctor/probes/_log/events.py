"""What kernel log lines mean: one row for each thing that happened, however often, with its first and last time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Row
from gpudoctor.model.pattern import pattern
from gpudoctor.model.xids import LINE, pci_address, xid
from gpudoctor.probes._log.lines import Log

RECOVERY = 154
"""The Xid that says what a GPU needs before it is used again. The last such line holds, not the first."""

_SXID = pattern(r": SXid \((?:PCI:)?[0-9a-fA-F:.]{5,20}\): \d{4,6}, (?:Non-)?[Ff]atal, (?:Link \d{1,3})?")
_SXID_PARTS = pattern(r"\((?:PCI:)?([^)]+)\): (\d+), ([\w-]+), (?:Link (\d+))?")
_AER = pattern(
    r"[^ ;\]]+ [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: (?:AER: )?"
    r"PCIe Bus Error: severity=\w+(?: \([\w-]+\))?, type=[A-Za-z ]+"
)
_AER_PARTS = pattern(r"(\S+) (\S+): (?:AER: )?PCIe Bus Error: severity=(\w+)(?: \(([\w-]+)\))?, type=([A-Za-z ]+)")
_OOM = pattern(r"(?:Memory cgroup out|Out) of memory: Kill(?:ed)? process \d{1,10} \([^\n]{0,16}\)")
_OOM_PARTS = pattern(r"(Memory cgroup out|Out) .* process (\d+) \((.*)\)")
_MCE = pattern(
    r"EDAC MC\d+: \d+ [CU]E (?:memory \w+ error )?on \S+"
    r"|\[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: \d+ Bank \d+: [0-9a-f]{8,16}"
)
_EDAC_PARTS = pattern(r"EDAC (MC\d+): \d+ ([CU])E .*on (\S+)")
_MCE_PARTS = pattern(r"(CPU \d+): .* Bank (\d+): ([0-9a-f]+)")
_MOST_ROWS = 64
"""Rows a group gets at most, the oldest: the first is the one that matters."""


class Seen:
    """One thing that the log tells of: how often, and where in the text it stands first and last."""

    def __init__(self, raw: str, count: int, first: int, last: int) -> None:
        self.raw = raw
        self.count = count
        self.first = first
        self.last = last

    def times(self, log: Log) -> dict[str, Fact]:
        """The columns that every group has."""
        first, last = log.at(self.first), log.at(self.last)
        return {
            "line": Known(log.words(self.first), log.source),
            "count": Known(self.count, log.source),
            "time": log.wall(first),
            "age_s": Known(max(0, int(log.now - first)), log.source),
            "last_time": log.wall(last),
            "last_age_s": Known(max(0, int(log.now - last)), log.source),
        }


def seen(log: Log, pattern: re.Pattern[str], text: str, same: Callable[[str], object] = str) -> list[Seen]:
    """What `pattern` finds in `text`, a part of the log's lines, oldest first; alike are those of which `same` is."""
    found: dict[object, Seen] = {}
    for raw, count in Counter(pattern.findall(text)).items():
        one = Seen(raw, count, _first(log.text, raw), _last(log.text, raw))
        known = found.setdefault(same(raw), one)
        if known is not one:
            known.count += count
            known.last = max(known.last, one.last)
            if one.first < known.first:
                known.raw, known.first = one.raw, one.first
    return sorted(found.values(), key=lambda one: one.first)[:_MOST_ROWS]


def _first(text: str, raw: str) -> int:
    """Where `raw` stands first and no digit follows: ``): 4`` is not in ``): 45``."""
    at = text.find(raw)
    while text[at + len(raw) : at + len(raw) + 1].isdigit():
        at = text.find(raw, at + 1)
    return at


def _last(text: str, raw: str) -> int:
    at = text.rfind(raw)
    while text[at + len(raw) : at + len(raw) + 1].isdigit():
        at = text.rfind(raw, 0, at)
    return at


def xids(log: Log, own: set[str] | None) -> tuple[Row, ...]:
    """By GPU, MIG instance and number, NVLink 5's events also by unit and severity; `own` GPUs only, None is all."""
    rows: list[Row] = []
    for one in seen(log, LINE, log.text, xid):
        event = xid(one.raw)
        if event is None or (own is not None and event.address not in own):
            continue
        row: Row = {**event.row(log.words(one.first), log.source), **one.times(log)}
        if event.code == RECOVERY:
            row = {**row, "line": Known(log.words(one.last), log.source)}
        rows.append(row)
    return tuple(rows)


def sxids(log: Log) -> tuple[Row, ...]:
    """``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 27 sourcetrack timeout error (First)``."""
    rows: list[Row] = []
    for one in seen(log, _SXID, log.text) if ": SXid (" in log.text else ():
        match = _SXID_PARTS.search(one.raw)
        if match:
            link = Known(int(match[4]), log.source) if match[4] else Absent(f"the line names no link ({log.source})")
            rows.append(
                {
                    "code": Known(int(match[2]), log.source),
                    "address": Known(pci_address(match[1]), log.source),
                    "fatal": Known(match[3].lower() == "fatal", log.source),
                    "link": link,
                    **one.times(log),
                }
            )
    return tuple(rows)


def bus_errors(log: Log, gpu_of: Callable[[str], Fact]) -> tuple[Row, ...]:
    """``nvidia 0000:1a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)``.

    From Linux 6.16 on the severities read ``Correctable`` and ``Uncorrectable (Fatal)``.
    """
    rows: list[Row] = []
    for one in seen(log, _AER, "\n".join(log.having("PCIe Bus Error"))):
        match = _AER_PARTS.search(one.raw)
        if match:
            severity = "corrected" if match[3].startswith("Correct") else (match[4] or "fatal").lower()
            rows.append(
                {
                    "address": Known(match[2], log.source),
                    "driver": Known(match[1], log.source),
                    "severity": Known(severity, log.source),
                    "kind": Known(match[5].strip(), log.source),
                    "gpu": gpu_of(match[2]),
                    **one.times(log),
                }
            )
    return tuple(rows)


def killed(log: Log) -> tuple[Row, ...]:
    """``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:..., anon-rss:31457280kB, ...``."""
    rows: list[Row] = []
    for one in seen(log, _OOM, "\n".join(log.having("Kill process", "Killed process"))):
        match = _OOM_PARTS.search(one.raw)
        if match:
            size = re.search(r"anon-rss:(\d{1,15})kB", log.words(one.first))
            rows.append(
                {
                    "process": Known(match[3], log.source),
                    "pid": Known(int(match[2]), log.source),
                    "scope": Known("machine" if match[1] == "Out" else "cgroup", log.source),
                    "memory_mib": Known(int(size[1]) >> 10, log.source) if size else Absent("the line does not say"),
                    **one.times(log),
                }
            )
    return tuple(rows)


def machine_checks(log: Log) -> tuple[Row, ...]:
    """``EDAC MC0: 1 CE memory read error on DIMM_A1`` and ``mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7:``.

    Bit 61 of a machine check's status says uncorrected.
    """
    text = "\n".join(log.having("EDAC MC", "[Hardware Error]: CPU"))
    return tuple(row for one in seen(log, _MCE, text, _same_check) for row in _machine_check(log, one))


def _same_check(raw: str) -> str:
    """One DIMM's corrected errors, and one CPU bank's, are one row each."""
    return re.sub(r": \d+ (?=[CU]E)", ": ", raw) if raw.startswith("EDAC") else raw.rpartition(": ")[0]


def _machine_check(log: Log, one: Seen) -> Iterable[Row]:
    if match := _EDAC_PARTS.search(one.raw):
        yield {
            "kind": Known("memory", log.source),
            "where": Known(f"{match[1]} {match[3]}", log.source),
            "corrected": Known(match[2] == "C", log.source),
            **one.times(log),
        }
    elif match := _MCE_PARTS.search(one.raw):
        yield {
            "kind": Known("machine check", log.source),
            "where": Known(f"{match[1]} bank {match[2]}", log.source),
            "corrected": Known(not int(match[3], 16) >> 61 & 1, log.source),
            **one.times(log),
        }


def fallen_off(log: Log) -> Iterator[str]:
    """GPUs that the driver says have fallen off the bus, in any of its words: an Xid 79, or a sentence without one.

    The long form spans lines: ``NVRM: The NVIDIA GPU 0000:1a:00.0`` ... ``fallen off the bus and is not responding``.
    """
    lines = log.having("fallen off the bus", "NVRM: The NVIDIA GPU ", "NVRM: (PCI ID", "installed in this system has")
    named = ""
    for line in lines:
        match = re.search(
            r"(?:GPU(?: at)? |\((?:PCI:)?)(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F.]{2,4})", line
        )
        named = pci_address(match[1]) if match else named
        if "fallen off the bus" in line and named:
            yield named

"""The kernel: its log (Xid, SXid, NVRM), its modules (lsmod, modinfo, modprobe, blacklists), its command line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, known, known_facts, text_of
from gpudoctor.core.log_lines import BUS_ERROR, LINE, bus_error_row, denied, parse_xid
from gpudoctor.readers._machine import kernel_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import driver_version, normalized_pci_address

EXACT = 6
FACTS = (
    column("xid.code", "int", "Xid number"),
    column("xid.address", "text", "PCI address of the GPU it is about; absent where the line does not say"),
    column(
        "xid.instance",
        "text",
        "MIG instance it is about: the GPU instance, 5, or that and its compute instance, 1/0; absent in others",
    ),
    column("xid.line", "text", "the line as the kernel printed it"),
    column("xid.fatal", "bool", "whether an Xid of 144 to 150 calls itself fatal; absent where the line does not say"),
    column("sxid.code", "int", "SXid number: an error of an NVSwitch"),
    column("sxid.fatal", "bool", "whether the line calls it fatal"),
    column("sxid.line", "text", "the line as the kernel printed it"),
    fact("kernel_log.first_xid", "int", "the first Xid of the log that is not a mere consequence (45, 154)"),
    fact("kernel_log.sxid", "list", "SXid numbers, each once"),
)

NVLINK_5 = range(144, 151)
"""Xids of NVLink 5, which say of themselves whether they are fatal."""
CONSEQUENCES = (45, 154)
"""Xids that follow another one: a channel torn down, a recovery action announced."""

_MENTION = Pattern(
    r"(?i)(?<![a-z])xid\b\s*(?:(?:\((?:PCI:)?([0-9a-f:.]+)\)|error|event|code)\s*)?(?:[:=#]\s*)?"
    r"(\d{1,3})\b(?![.:]\d|[%/])"
)
_CODES = Pattern(r"\d{1,3}(?:\s*(?:,|/|\+|and|then|->)\s*\d{1,3})*(?=\s*(?:$|[(;,]))")
_XIDS = Pattern(
    r"(?:(?:nvidia|gpu|nvrm|kernel|dmesg|first|last|log) )*xids?(?: (?:errors?|codes?|numbers?|events?|messages?))*"
    r"(?: (?:in|from|by|of) (?:the )?[a-z ]{2,24}| seen| logged| found| reported)?"
)
_SEPARATORS = Pattern(r"\D+")
_SXID = Pattern(r"\bSXid\s*(?:\([^)]*\)\s*)?(?::\s*)?(\d{4,5})\b")
_SEVERITY = Pattern(r"(?i)\b(Non-?)?fatal\b")
_SWITCH = Pattern(r"(?i)\bSXid\b[^,\n]*: \d{4,6}, (?:(Non-)?fatal\b|Severity (?:(0)|1)\b)")
_CLIENT = Pattern(r"the client has (?:the )?version:?\s+v?(\d+(?:\.\d+)+)")
_MODULE = Pattern(r"this kernel module has (?:the )?version:?\s+v?(\d+(?:\.\d+)+)")
_LOADING = Pattern(r"NVIDIA UNIX (Open )?(?:\S+ )?Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_DEVICE = Pattern(r"(?i)NVIDIA GPU ([0-9a-f:.]+) \(PCI ID: ([0-9a-f]{4}:[0-9a-f]{4})\)")
_BOUND = Pattern(r"(?i)GPU ([0-9a-f:.]+) is already bound to (\w+)")
_DSO = Pattern(r"kernel version (\d+(?:\.\d+)+) does not match DSO version (\d+(?:\.\d+)+)")
_FABRIC = Pattern(
    r"interface version (\d+(?:\.\d+)+) (?:don't|doesn't|does not) match(?: with driver version (\d+(?:\.\d+)+))?"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``xid``, ``sxid``, ``aer`` and ``pci``, the driver's versions and modules, from kernel logs and tools."""
    if "xid" in paste.lower:
        yield from _xid_rows(paste)
        yield from _sxid_rows(paste)
    yield from _bus_errors(paste)
    yield from _driver_versions(paste)
    yield from _pci_devices(paste)
    for versions, source in paste.matches(_DSO.search, "does not match dso version"):
        yield "driver.module_version", Known(versions.group(1), source)
        yield "driver.library_version", Known(versions.group(2), source)
    for fabric, source in paste.matches(_FABRIC.search, "interface version"):
        yield "driver.fabric_manager_version", Known(fabric.group(1), source)
        if fabric.group(2):
            yield "driver.version", Known(fabric.group(2), source)
            yield "driver.module_version", Known(fabric.group(2), source)
    yield from _modules(paste)


def _xid_rows(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``xid`` and kernel_log.first_xid, the first that no other Xid causes; nothing where there is no Xid.

    kernel_log.first_xid is `Absent` where all are consequences of another fault.
    """
    rows: list[Row] = []
    for index, line in paste.having("xid"):
        events = [(match.start(), event) for match in LINE.finditer(line[:600]) if (event := parse_xid(match.group()))]
        for start, event in events:
            source = paste.use(index)
            rows.append({**event.row(line[start:], source), "line": Known(line.strip()[:500], source)})
        if events and all(event.fatal is False for _, event in events):
            paste.mark_listed(index)
        if not events:
            rows.extend(_mentioned_xids(paste, index, line[:600]))
    rows.extend(_labelled_xids(paste))
    if not rows:
        return
    yield "xid", tuple(rows)
    causes = [code for row in rows if (code := known(row["code"])) and code.value not in CONSEQUENCES]
    if causes:
        yield "kernel_log.first_xid", causes[0]
    else:
        yield (
            "kernel_log.first_xid",
            Absent(f"only Xid {' and '.join(map(str, CONSEQUENCES))}, which follow another fault"),
        )


def _mentioned_xids(paste: Paste, index: int, line: str) -> Iterator[Row]:
    """A row per Xid in a line that has no kernel event: ``Xid 79``, ``XID error: 31``; none that is denied or 0."""
    for match in _MENTION.finditer(line):
        if not int(match.group(2)) or denied(line, *match.span()):
            continue
        source = paste.use(index)
        code = int(match.group(2))
        fatal = _fatal_fact(_SEVERITY.search(line) if code in NVLINK_5 else None, source)
        yield {**bare_xid(code, match.group(1) or "", line, source), "fatal": fatal}


def bare_xid(code: int, address: str, line: str, source: str) -> Row:
    """The row of ``xid`` for a line that gives no more than a number and maybe a PCI address.

    ``fatal`` is `Absent`, and so is ``address`` where there is none.
    """
    pci_address, silent = normalized_pci_address(address), Absent(f"the line does not say ({source})")
    located = Known(pci_address, source) if pci_address else silent
    return {**known_facts(source, code=code, line=line.strip()[:500]), "address": located, "fatal": silent}


def _fatal_fact(severity: re.Match[str] | None, source: str) -> Fact:
    """Whether the error is fatal: False where `severity` has a group (Non-, 0); absent where it is None."""
    return Known(not any(severity.groups()), source) if severity else Absent(f"the line does not say ({source})")


def _labelled_xids(paste: Paste) -> Iterator[Row]:
    """Xids in a label such as ``xids: 13, 31``, without the one that `_mentioned_xids` sees."""
    for label in paste.labels:
        if _XIDS.fullmatch(label.name) and (listed := _CODES.match(label.value)):
            source = paste.use(label.index)
            codes = [int(code) for code in _SEPARATORS.compiled.split(listed.group())]
            mention = _MENTION.search(paste.bare[label.index])
            for code in codes[1:] if mention else codes:
                yield bare_xid(code, "", paste.bare[label.index], source)


def _sxid_rows(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``sxid`` (errors of an NVSwitch) where severity is stated, each once; kernel_log.sxid, all codes."""
    codes: dict[int, str] = {}
    rows: list[Row] = []
    known_severities: set[tuple[str, bool]] = set()
    for index, line in paste.having("sxid"):
        for match in _SXID.finditer(line[:600]):
            codes.setdefault(int(match.group(1)), paste.use(index))
            # the switch prints its error in words, then by the number of its severity
            severity = _SWITCH.search(line[:600])
            if severity and (code_and_severity := (match.group(1), any(severity.groups()))) not in known_severities:
                known_severities.add(code_and_severity)
                source = paste.use(index)
                row = {"code": Known(int(match.group(1)), source), "line": Known(line.strip()[:500], source)}
                rows.append({**row, "fatal": _fatal_fact(severity, source)})
    yield "sxid", tuple(rows)
    if codes:
        yield "kernel_log.sxid", Known(tuple(codes), next(iter(codes.values())))


_PASSES_ON = ("pcieport", "pci", "vfio-pci")
"""Drivers of devices that may be, or have below them, a GPU: a port, one without a driver, one lent to a guest."""


def _bus_errors(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``aer``: one per device, severity and layer, with how often the log has it."""
    found: dict[tuple[str, ...], tuple[Row, int]] = {}
    for index, line in paste.having("pcie bus error"):
        if match := BUS_ERROR.search(line[:600]):
            row = bus_error_row(match.group(), paste.use(index))
            key = tuple(text_of(fact) for fact in row.values())
            first, count = found.get(key, ({**row, "line": Known(line.strip()[:500], paste.use(index))}, 0))
            found[key] = first, count + 1
    rows = tuple(
        {**row, "count": Known(count, "lines of the log"), "gpu": _gpu_of_bus_error(row)}
        for row, count in found.values()
    )
    if rows:
        yield "aer", rows


def _gpu_of_bus_error(row: Row) -> Fact:
    """The address of the GPU whose link a row of ``aer`` is about, if its driver is NVIDIA's.

    Unread for a port, which may lead to any device; absent for other devices.
    """
    driver = text_of(row["driver"])
    if driver == "nvidia":
        return row["address"]
    if driver in _PASSES_ON:
        return Unread(f"the log does not say what is below {text_of(row['address'])}", reason=Reason.NOT_STATED)
    return Absent(f"{driver} drives no NVIDIA GPU")


def _driver_versions(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Versions of the driver's module and library, the module's kind, and that it is loaded, from NVRM lines."""
    for pattern, words, name in (
        (_CLIENT, "the client has", "driver.library_version"),
        (_MODULE, "this kernel module has", "driver.module_version"),
    ):
        for match, source in paste.matches(pattern.search, words):
            yield name, Known(match.group(1), source)
    for match, source in paste.matches(_LOADING.search, "nvidia unix"):
        yield "driver.module_version", Known(match.group(2), source)
        yield "driver.version", Known(match.group(2), source)
        yield "driver.module_kind", Known("open" if match.group(1) else "proprietary", source)
        yield "driver.module_loaded", Known(True, source)
        yield "driver.installed", Known(True, source)


def _pci_devices(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``pci`` from log lines with a GPU's PCI id, the kind of the kernel module that by such a line does not
    support the GPU, and the driver that a GPU is bound to.
    """
    rows: list[Row] = []
    for match, source in paste.matches(_DEVICE.search, "nvidia gpu"):
        pci_address = normalized_pci_address(match.group(1))
        rows.append(known_facts(source, address=pci_address, vendor="nvidia", device_id=match.group(2).lower()))
        if "not supported by open" in match.string:
            yield "driver.module_kind", Known("open", source)
        elif "requires use of the nvidia open kernel modules" in match.string.lower():
            yield "driver.module_kind", Known("proprietary", source)
    if rows:
        yield "pci", tuple(rows)
    for bound, source in paste.matches(_BOUND.search, "already bound to"):
        holder = bound.group(2).lower()
        yield "pci.nvidia_drivers", Known(("nova" if holder.startswith("nova") else holder,), source)
        if holder.startswith("nova"):
            yield "driver.nova_loaded", Known(True, source)
        if holder == "nouveau":
            yield "driver.nouveau_loaded", Known(True, source)


_MODULE_LINE = Pattern(r"(nvidia|nvidia_uvm|nvidia_peermem|nv_peer_mem|nouveau|nova_core)\s+\d+\s+-?\d+(?:\s|$)")
_ON_TOP = Pattern(r"nvidia_(?:uvm|modeset|drm|peermem)\s+\d+\s+-?\d+(?:\s|$)")
"""Modules that cannot be loaded without nvidia."""
_MODULES = {
    "nvidia": "driver.module_loaded",
    "nvidia_uvm": "driver.uvm_loaded",
    "nouveau": "driver.nouveau_loaded",
    "nova_core": "driver.nova_loaded",
    "nvidia_peermem": "driver.peermem_loaded",
    "nv_peer_mem": "driver.peermem_loaded",
}
_SHOWS_NVIDIA = Pattern(r"\bnvidia(?![\w-])")
"""A filter of lsmod's lines that shows the module nvidia: not one for nvidia_uvm alone."""
_FILE = Pattern(r"filename:\s+/lib/modules/([^/]{1,120})/.{0,200}/?nvidia(?:-current)?\.ko")
_VERSION = Pattern(r"version:\s+(\d{3}\.\d+(?:\.\d+)?)$")
_LICENSE = Pattern(r"license:\s+(NVIDIA|Dual MIT/GPL)")
_NOT_FOUND = Pattern(r"Module nvidia(?:-current)? not found(?: in directory /lib/modules/(\S+))?")
_REFUSED = Pattern(r"could not insert '?(nvidia(?!_fs\b)\w*)'?: (\S.*)")
_BLACKLIST = Pattern(r"^\s*blacklist\s+(nouveau|nvidia)\s*$")
_ON_COMMAND_LINE = Pattern(
    r"(?:modprobe\.blacklist|rd\.driver\.blacklist|module_blacklist)=\S{0,200}\b(nouveau|nvidia)\b"
)
_COMMAND_LINE = Pattern(r"(?:Kernel command line:\s*|^\s*)(BOOT_IMAGE=\S.*)")


def _modules(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Which kernel modules are loaded, on disk, refused or blacklisted, and the kernel's command line."""
    low = paste.lower
    if any(word in low for word in ("nvidia", "nouveau", "nova_core")):
        yield from _loaded_modules(paste)
    yield from _module_on_disk(paste)
    yield from _load_errors(paste)
    for index, _ in paste.commands_starting("cat /sys/module/nvidia/version"):
        for after, line in paste.output(index, 1):
            if version := driver_version(line):
                yield "driver.module_version", Known(version, paste.use(after))
    if "blacklist" in low or "boot_image=" in low:
        yield from _blacklists(paste)


def _loaded_modules(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """True for each driver module in lsmod; driver.module_loaded False where lsmod's output has no nvidia.

    But not where lsmod is filtered by another word than nvidia.
    """
    sources: dict[str, str] = {}
    for index, line in enumerate(paste.bare):
        if line[:1] == "n" and (match := _MODULE_LINE.match(line)):
            sources.setdefault(match.group(1), paste.use(index))
        if line[:1] == "n" and _ON_TOP.match(line):
            sources.setdefault("nvidia", paste.use(index))
    for module, source in sources.items():
        yield _MODULES[module], Known(True, source)
    for index, command in paste.commands_starting("lsmod"):
        if "|" not in command or _SHOWS_NVIDIA.search(command):
            output = [line for _, line in paste.output(index) if line.strip()]
            if output and "nvidia" not in sources and all(len(line.split()) >= 3 for line in output[:2]):
                yield "driver.module_loaded", Known(False, paste.use(index))


def _module_on_disk(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts of the nvidia module's file from modinfo: version, kind, driver.installed and driver.module_on_disk.

    The last only where the text also names that kernel release elsewhere, for the file may be another kernel's.
    """
    for index, line in paste.having("/lib/modules/"):
        if not (match := _FILE.search(line)):
            continue
        source = paste.use(index)
        yield "driver.installed", Known(True, source)
        for after in range(index + 1, min(index + 12, len(paste.bare))):
            below = paste.bare[after].strip()
            if version := _VERSION.match(below):
                yield "driver.module_disk_version", Known(version.group(1), paste.use(after))
            elif license_line := _LICENSE.match(below):
                kind = "proprietary" if license_line.group(1) == "NVIDIA" else "open"
                yield "driver.module_kind", Known(kind, paste.use(after))
        if match.group(1) in paste.text.replace(line, ""):
            yield "driver.module_on_disk", Known(True, source)


def _load_errors(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts from modprobe's errors: after ``Module nvidia not found`` it is neither on disk nor loaded, and of the
    kernel named there; after ``could not insert`` the module is not loaded, but on disk if its key was rejected.
    """
    for match, source in paste.matches(_NOT_FOUND.search, "module nvidia"):
        yield "driver.module_on_disk", Known(False, source)
        yield "driver.module_loaded", Known(False, source)
        if match.group(1):
            yield from kernel_facts(match.group(1).rstrip(".'"), source)
    for match, source in paste.matches(_REFUSED.search, "could not insert"):
        name = match.group(1).replace("current_", "")
        yield _MODULES.get(name, "driver.module_loaded"), Known(False, source)
        if "key was rejected" in match.group(2).lower():
            yield "driver.module_on_disk", Known(True, source)


def _blacklists(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Blacklisted modules in modprobe.d and on the kernel's command line, and that command line."""
    for index, line in enumerate(paste.bare):
        source = f"line {paste.numbers[index]}"
        if blacklist := _BLACKLIST.match(line):
            yield f"driver.{blacklist.group(1)}_blacklisted", Known(True, paste.use(index))
        for module in _ON_COMMAND_LINE.finditer(line):
            yield f"driver.{module.group(1)}_blacklisted", Known(True, source)
        if command_line := _COMMAND_LINE.search(line):
            yield "host.kernel_command_line", Known(command_line.group(1).strip(), paste.use(index))

"""``nvidia-smi -q`` and ``nvidia-smi -q -x``: one tree of labels and values in two notations.

-q indents, -x has an element for each label. Both are turned into the same entries (path of labels, value), from which
one author makes the facts. The elements are read line by line as nvidia-smi writes them, so that a log that is cut,
quoted or stands among other text gives what is there; no XML parser runs, and a DTD or an entity means nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import unescape
from typing import NamedTuple

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Rows, Value, texts_of, value_of
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, by_phrase, phrases
from gpudoctor.readers._values import first_integer, first_version, normalized_pci_address, size_mib, yes_or_no

EXACT = 9
FACTS = (column("gpu.unrepairable", "bool", "whether the driver says that its memory cannot be repaired any more"),)

_PARTS = phrases(
    """
    gpu link info | clocks throttle reasons | clocks event reasons | fb memory usage | gpu power readings |
    ecc errors | remapped rows | max clocks | mig mode
    """
)
"""Headings of its sections (lower case): a part of the output is read as well, as of one GPU."""

_LOG = Pattern(r"\s*=+NVSMI LOG=+\s*$")
_SECTION = Pattern(r"\s{0,4}GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*\\?$")
_SECTION_LINE = Pattern(r"(?m)^\s{0,4}GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d[ \t]*$")
_LABEL = Pattern(r"(\s*)(\S[^:]*?)\s*(?::\s?(.*))?$")
_ELEMENT = Pattern(r"<(/?)([A-Za-z_][\w.-]{0,80})((?:\s[^<>]{0,200})?)(/?)>([^<]*)")
_ID = Pattern(r"\bid=[\"']([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)[\"']")
_XML = Pattern(
    r"<(?:/?nvidia_smi_log>|gpu id=|/gpu>"
    r"|/?(?:fb_memory|clocks|gpu|sram|dram|ecc|retired|remapped|power|pcie?|mig)_\w+>|\w+_(?:clock|util)>)"
)
"""Elements that only nvidia-smi writes."""
_VALUE = Pattern(r"\s{4,}[A-Z][\w /().-]{1,60}?\s+:\s\S")
_DEEPEST = 32
_MOST_SECTIONS = 1024

_ALIASES = by_phrase(
    """
gpu uuid: uuid
gpu: gpu util
gpu current temp: gpu temp
gpu link info: pci gpu link info
pcie generation: pcie gen
link width: link widths
current: current link gen | current link width | current mig | current ecc
max: max link gen | max link width
sm: sm clock
pending: pending mig | pending ecc | remapped row pending
idle: gpu idle
display clock setting: display clocks setting
sram uncorrectable sec-ded: sram uncorrectable secded
uncorrectable error: remapped row unc
correctable error: remapped row corr
remapping failure occurred: remapped row failure
pending page blacklist: pending retirement | pending blacklist
single bit ecc: multiple single bit retirement/retired count
double bit ecc: double bit retirement/retired count
"""
)
"""Elements of -x, ``_`` as a space, whose label in -q is another."""
_REASON = Pattern(r"clocks (?:throttle|event) reason ")

_HEAD = {
    "driver version": "driver.version",
    "kmd version": "driver.version",
    "cuda version": "driver.cuda_version",
    "cuda umd version": "driver.cuda_version",
}
_TEXT = {"product name": "name", "gpu uuid": "uuid", "compute mode": "compute_mode"}
_NUMBERS = by_phrase(
    """
temperature_c: gpu current temp
temperature_slowdown_c: gpu slowdown temp
temperature_max_c: gpu max operating temp
utilization: utilization/gpu
link_generation: pcie generation/current
link_generation_max: pcie generation/max
link_width: link width/current
link_width_max: link width/max
clock_mhz: clocks/sm
clock_max_mhz: max clocks/sm
power_w: power draw | average power draw | instantaneous power draw | instant power draw
power_limit_w: enforced power limit | current power limit | power limit
power_limit_default_w: default power limit
remapped_uncorrected: remapped rows/uncorrectable error
retired_single_bit: retired pages/single bit ecc
retired_double_bit: retired pages/double bit ecc
memory_mib: fb memory usage/total
memory_used_mib: fb memory usage/used
"""
)
_ACTION = Pattern(r"^None$|[Rr]eset|[Rr]eboot|[Dd]rain")
"""What the driver may ask for; of a value that is cut off nothing is read."""
_FABRIC_STATES = ("Not Started", "In Progress", "Completed")
_SWITCHES: dict[str, tuple[str, Callable[[str], Value]]] = {
    "mig mode/current": ("mig", lambda value: value == "Enabled"),
    "mig mode/pending": ("mig_pending", lambda value: value == "Enabled"),
    "remapped rows/pending": ("remap_pending", yes_or_no),
    "remapped rows/remapping failure occurred": ("remap_failed", yes_or_no),
    "retired pages/pending page blacklist": ("retired_pending", yes_or_no),
    "retired pages/pending": ("retired_pending", yes_or_no),
    "unrepairable memory": ("unrepairable", yes_or_no),
    "aggregate/sram threshold exceeded": ("sram_threshold_exceeded", yes_or_no),
    "virtualization mode": ("virtualization", lambda value: value.lower().replace("-", "")),
    "gpu recovery action": ("recovery_action", lambda value: value.lower() if _ACTION.search(value) else None),
    "fabric/state": ("fabric_state", lambda value: value.lower() if value in _FABRIC_STATES else None),
    "fabric/status": ("fabric_status", lambda value: 0 if value == "Success" else None),
}
_UNCORRECTED = (
    "dram uncorrectable",
    "sram uncorrectable",
    "sram uncorrectable parity",
    "sram uncorrectable sec-ded",
    "double bit/total",
)
_HEALTH = {
    ("bandwidth", "degraded"): "degraded bandwidth",
    ("route recovery in progress", "true"): "route recovery",
    ("route unhealthy", "true"): "route unhealthy",
    ("access timeout recovery", "true"): "access timeout",
}
"""What a label and its value below Fabric, Health say is wrong: the words of ``gpu.fabric_health``."""
_CONFIGURED = ("none", "not supported", "false")
_NOT_THE_GPU = ("mig device", "mig devices", "gpu memory power readings", "module power readings")
"""Sections inside a GPU's that are about a part of it, or about more: their values are not the GPU's."""
_NO_VALUE = ("N/A", "[N/A]", "None", "Requested functionality has been deprecated", "")
_MAY_BE_NONE = ("gpu recovery action", "virtualization mode")


class _Entry(NamedTuple):
    """One label with its value: the path of labels from the GPU's section down, the value, the line's index."""

    path: tuple[str, ...]
    value: str
    line: int


class _Log:
    """One run of nvidia-smi -q: entries of the machine (`head`) and of each GPU (address, line, entries).

    `closed`: the XML log has its end.
    """

    def __init__(self) -> None:
        self.head: list[_Entry] = []
        self.gpus: list[tuple[str, int, list[_Entry]]] = []
        self.closed = False

    def add(self, entry: _Entry) -> None:
        """Add the entry to the GPU listed last; before the first GPU to `head`, if about the machine, else drop it."""
        if self.gpus:
            self.gpus[-1][2].append(entry)
        elif entry.path[-1] in _MACHINE:
            self.head.append(entry)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Driver versions, number of GPUs, and a row of ``gpu`` with all columns that the labels fill.

    Of several logs, those of the same machine and driver as the first are merged, earlier values first. A GPU of
    another machine, by its UUID, is a row without a number.
    """
    logs = [log for log in (*_text_logs(paste), *_xml_logs(paste)) if log.head or log.gpus]
    gpus: dict[object, dict[str, Fact]] = {}
    for number, log in enumerate(logs):
        if not number or not _is_of_another_machine(log, logs[0]):
            yield from _machine_facts(log, paste)
            for position, (pci_address, index, entries) in enumerate(log.gpus[:_MOST_SECTIONS]):
                row = _gpu_row(entries, paste)
                if pci_address:
                    source = paste.use(index)
                    row = {"address": Known(pci_address, source), **row}
                    if _is_whole(log) or pci_address in gpus:
                        row = {"index": Known(len(gpus), source), **row}
                known = gpus.setdefault(pci_address or position, row)
                known.update({name: fact for name, fact in row.items() if name not in known})
            continue
        for pci_address, index, entries in log.gpus[:_MOST_SECTIONS]:
            row = _gpu_row(entries, paste)
            uuid = value_of(row.get("uuid"))
            if uuid and uuid not in {value_of(other.get("uuid")) for other in gpus.values()}:
                gpus[uuid] = {"address": Known(pci_address, paste.use(index)), **row} if pci_address else row
    if any(gpus.values()):
        yield "gpu", tuple(gpus.values())


def _is_whole(log: _Log) -> bool:
    """Whether the log lists its GPUs from the first one on, so that their order tells their numbers.

    One GPU of several, or one whose log has no head, may be any: ``nvidia-smi -q -i 5``.
    """
    stated = next((e.value for e in log.head if e.path[-1] == "attached gpus"), "")
    return (len(log.gpus) > 1 and bool(log.head)) or stated == "1" or (log.closed and not stated)


def _is_of_another_machine(log: _Log, first: _Log) -> bool:
    """Whether the log has another driver version than `first`, or no GPU, by PCI address, in common with it."""
    versions = [
        {first_version(e.value) for e in each.head if _HEAD.get(e.path[-1]) == "driver.version"}
        for each in (log, first)
    ]
    addresses = [{address_of for address_of, _, _ in each.gpus} for each in (log, first)]
    return versions[0] != versions[1] or not addresses[0] & addresses[1]


def _text_logs(paste: Paste) -> list[_Log]:
    """The logs of ``nvidia-smi -q``; a part of one without its head is a log of one GPU; empty without any.

    Their lines are marked as listed.
    """
    low = paste.text
    if "NVSMI LOG" not in low and "Attached GPUs" not in low and not _SECTION_LINE.search(low):
        if not any(heading.strip().lower() in _PARTS for heading in paste.bare):
            return []
        log = _Log()
        log.gpus.append(("", -1, []))
        logs = [log]
    else:
        logs = [_Log()]
    path: list[tuple[int, str, int]] = []
    inside = False
    for index, line in enumerate(paste.bare):
        if _LOG.match(line):
            logs.append(_Log())
            inside = True
            paste.mark_listed(index)
            continue
        if section := _SECTION.match(line):
            logs[-1].gpus.append((normalized_pci_address(section.group(1)) or "", index, []))
            path = []
            inside = True
            paste.mark_listed(index)
            continue
        match = _LABEL.match(line[:300])
        if not match or not line.strip():
            continue
        indent, label, value = len(match.group(1)), match.group(2).strip().lower(), (match.group(3) or "").rstrip(" \\")
        path = [heading_above for heading_above in path if heading_above[0] < indent]
        if inside and (indent >= 4 or label in _MACHINE):
            paste.mark_listed(index)
        elif _VALUE.match(line):
            paste.mark_listed(index, *(heading for depth, _, heading in path if depth))
        else:
            inside = inside and not logs[-1].gpus
        path.append((indent, label, index))
        if value or label == "mig device":
            logs[-1].add(_Entry(tuple(name for _, name, _ in path), value.strip(), index))
    return logs


def _xml_logs(paste: Paste) -> list[_Log]:
    """The logs of ``nvidia-smi -q -x``, whole or cut, with -q's labels; empty without any. Their lines are placed."""
    if "<" not in paste.text or not _XML.search(paste.text):
        return []
    logs = [_Log()]
    path: list[str] = []
    for index, line in enumerate(paste.bare):
        if "<" not in line:
            continue
        for close, tag, attributes, self_closing, text in (match.groups() for match in _ELEMENT.finditer(line[:2000])):
            if tag == "nvidia_smi_log":
                logs[-1].closed = bool(close)
                logs += [] if close else [_Log()]
                path = []
            elif tag == "gpu" and not close and (gpu_id := _ID.search(attributes)):
                logs[-1].gpus.append((normalized_pci_address(gpu_id.group(1)) or "", index, []))
                path = []
            elif close:
                label = _label_of_tag(tag)
                path = path[: max((at for at, name in enumerate(path) if name == label), default=len(path))]
            elif len(path) < _DEEPEST:
                label = _label_of_tag(tag)
                value = unescape(text).strip()
                if value or label == "mig device":
                    full_path = (*path, label)
                    alias = _ALIASES.get("/".join(full_path[-2:]))
                    entry = _Entry((*path[:-1], alias) if alias else full_path, value, index)
                    if not logs[-1].gpus and label not in _MACHINE:
                        logs[-1].gpus.append(("", -1, []))
                    logs[-1].add(entry)
                if not self_closing:
                    path.append(label)
        paste.mark_listed(index, data=True)
    return logs


def _label_of_tag(tag: str) -> str:
    """The label that ``nvidia-smi -q`` prints, in lower case, for the name of an XML element of ``-q -x``."""
    label = _REASON.compiled.sub("", tag.lower().replace("_", " "))
    return _ALIASES.get(label, label)


_MACHINE = frozenset((*_HEAD, "timestamp", "attached gpus", "display driver version", "driver branch"))


def _machine_facts(log: _Log, paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Driver and CUDA versions, and the number of GPUs as stated, or as listed in a complete XML log.

    With a version also that NVML answers (nvml.state).
    """
    count = None
    for path, value, index in log.head:
        if path[-1] in _HEAD and (version := first_version(value)):
            yield _HEAD[path[-1]], Known(version, paste.use(index))
            yield "nvml.state", Known("ok", paste.use(index))
        elif path[-1] == "attached gpus" and value.isdecimal():
            count = Known(int(value), paste.use(index))
    if count is None and log.closed and log.gpus:
        count = Known(len(log.gpus), paste.use(log.gpus[0][1]) if log.gpus[0][0] else "the log")
    if count:
        yield "gpu.count", count


def _gpu_row(entries: Sequence[_Entry], paste: Paste) -> dict[str, Fact]:
    """The row of ``gpu`` with all columns that the entries fill; of labels that repeat, the first value holds.

    Uncorrected ECC errors of MIG devices are added up, and the MIG devices counted.
    """
    row: dict[str, Fact] = {}
    instances = 0
    for path, value, index in entries:
        if path[0] in _NOT_THE_GPU:
            instances += path[-1] == "mig device"
            if _counts_uncorrected(path) and value.isdecimal() and int(value):
                row["ecc_uncorrected"] = Known(_added_to(row.get("ecc_uncorrected"), int(value)), paste.use(index))
        elif value not in _NO_VALUE or (value == "None" and path[-1] in _MAY_BE_NONE):
            row.update(dict(_columns_of_label(path, value, row, lambda at=index: paste.use(at))))  # type: ignore[misc]
    if instances:
        row["mig_instances"] = Known(instances, "the MIG devices of the log")
    return row


def _columns_of_label(
    path: tuple[str, ...], value: str, row: dict[str, Fact], source: Callable[[], str]
) -> Iterator[tuple[str, Fact]]:
    """The columns that one label of ``nvidia-smi -q`` fills and `row` does not have yet.

    But uncorrected ECC counts are added up and throttle reasons collected. `source` marks the line and names it.
    """
    label, last_two, whole_path = path[-1], "/".join(path[-2:]), "/".join(path)
    if not row and label not in _TEXT and not any(part in whole_path for part in _PARTS):
        return
    if label in _TEXT and len(path) < 3:
        if _TEXT[label] not in row:
            yield _TEXT[label], Known(value, source())
    elif numeric := _NUMBERS.get(last_two) or _NUMBERS.get(label):
        number = size_mib(value) if numeric.endswith("_mib") else first_integer(value)
        if number is not None and numeric not in row:
            yield numeric, Known(number, source())
    elif switch := _SWITCHES.get(last_two) or _SWITCHES.get(label):
        name, read_as = switch
        if name not in row and (state := read_as(value)) is not None:
            yield name, Known(state, source())
            if name == "virtualization":
                yield "virtual", Known(state == "vgpu", source())
    elif "/".join(path[-3:-1]) == "fabric/health" and (state := _fabric_trouble(label, value.lower())) is not None:
        troubles = texts_of(row.get("fabric_health"))
        yield "fabric_health", Known((*troubles, state) if state else troubles, source())
    elif _counts_uncorrected(path) and value.isdecimal():
        yield "ecc_uncorrected", Known(_added_to(row.get("ecc_uncorrected"), int(value)), source())
    elif ("throttle reasons" in whole_path or "event reasons" in whole_path) and value in ("Active", "Not Active"):
        yield "throttle_reasons", _with_reason(row, label, value == "Active", source())


def _fabric_trouble(label: str, value: str) -> str | None:
    """What is wrong with the fabric by this label, empty where nothing is; None for a label that is not read."""
    if label == "incorrect configuration":
        return "" if value in _CONFIGURED else label
    if label in {name for name, _ in _HEALTH}:
        return _HEALTH.get((label, value), "")
    return None


def _counts_uncorrected(path: tuple[str, ...]) -> bool:
    """Whether the label counts uncorrectable ECC errors since the driver was loaded (volatile)."""
    volatile = any(name.startswith("volatile") for name in path)
    return volatile and (path[-1] in _UNCORRECTED or "/".join(path[-2:]) in _UNCORRECTED)


def _added_to(so_far: Fact | None, more: int) -> int:
    """`more` plus the count in the fact; a fact that is not known counts as 0."""
    return more + (count if isinstance(count := value_of(so_far), int) else 0)


def _with_reason(row: dict[str, Fact], label: str, active: bool, source: str) -> Fact:
    """The row's throttle reasons, with the label's added if it is active, as a fact."""
    names = texts_of(row.get("throttle_reasons"))
    name = "gpu_idle" if label == "idle" else label.replace(" ", "_")
    return Known((*names, name) if active and name not in names else names, source)

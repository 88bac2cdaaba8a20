"""The kernel's messages since boot as one text, wherever they may be read: the ring buffer, a file, the journal.

The text stays whole, for a driver may flood it with 100,000 lines: what is sought in it is sought by the regular
expression engine, and only lines that were found are taken apart.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from gpudoctor.core import system
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known, known_facts, number_of, text_of
from gpudoctor.core.frozen import frozen, mutable, replace
from gpudoctor.core.log_lines import BUS_ERROR, LINE, bus_error_row, parse_xid, pci_address
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._machine_kind import container
from gpudoctor.probes._reading import line, number, path_exists, refusal, text
from gpudoctor.target import Target

MOST_LOG_BYTES = 4 << 20
"""Bytes of log that are searched: of a longer one the first and the last half, for it is one message over and over."""

_MOST_JOURNAL_LINES = "10000"
"""Messages taken from the end of a journal that is longer than `MOST_LOG_BYTES`."""

_KMSG = "/dev/kmsg"
_FILE = "/var/log/kern.log"
_BOOT = pattern(r"^.*kernel: \[ *\d+\.\d+\] Linux version ", re.M)
_STAMPS = {
    _KMSG: (re.compile(r"[0-7],\d+,(\d{1,18}),[^;\n]*;"), 1e-6),
    _FILE: (re.compile(r"[^\n\[]{8,120} kernel: \[ *(\d{1,12}\.\d{1,9})\] "), 1.0),
    "journalctl -k -b": (re.compile(r"\[ *(\d{1,12}\.\d{1,9})\] \S+ kernel: "), 1.0),
}
"""What stands before a message, with the time since boot; and how many seconds one of its units are."""

_MORE = pattern(r"(?:\\x0a|#012)(?:NVRM:)? *")
"""How a new line within a message is written by the ring buffer and by syslog: NVIDIA's driver has such messages."""

_MORE_IN_JOURNAL = pattern(r"\n +(?:NVRM:)? *")


@frozen(slots=False)
class Log:
    """Messages, oldest first, one a line. `now` is in seconds since boot, `booted` in seconds since 1970.

    The kernel's clock stands still while the machine sleeps: after a suspend, times read too early.
    """

    text: str
    source: str
    now: float
    booted: int | None

    @cached_property
    def lines(self) -> list[str]:
        """The log's text split at newlines."""
        return self.text.split("\n")

    def lines_with(self, *needles: str) -> list[str]:
        """The lines that contain at least one of the strings."""
        wanted = [needle for needle in needles if needle in self.text]
        return [line for line in self.lines if any(needle in line for needle in wanted)] if wanted else []

    @cached_property
    def without_xids(self) -> Log:
        """A copy of the log without its Xid lines, of which there may be a great many."""
        return replace(self, text="\n".join([line for line in self.lines if " Xid (" not in line]))

    def time_at(self, position: int) -> float:
        """Seconds since boot when the message at `position`, an offset into the text, was logged; 0.0 if unstamped."""
        stamp, unit = _STAMPS[self.source]
        match = stamp.match(self.text, self.text.rfind("\n", 0, position) + 1)
        return float(match[1]) * unit if match else 0.0

    def message_at(self, position: int) -> str:
        """The message at `position` (an offset into the text), without its time stamp; at most 500 characters."""
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        return self.without_stamp(self.text[start : end if end >= 0 else len(self.text)])

    def without_stamp(self, line: str) -> str:
        """A line's message without its time stamp; at most 500 characters."""
        match = _STAMPS[self.source][0].match(line)
        return line[match.end() if match else 0 :].strip()[:500]

    def since(self, seconds: float) -> Log:
        """A copy of the log with only the messages logged at `seconds` since boot or later, found by binary search."""
        low, high = 0, len(self.text)
        while low < high:
            start = self.text.rfind("\n", 0, (low + high) // 2) + 1
            if self.time_at(start) < seconds:
                low = self.text.find("\n", (low + high) // 2) + 1 or len(self.text)
            else:
                high = min(high - 1, start)
        return replace(self, text=self.text[low:])

    def before(self, seconds: float) -> Log:
        """A copy with only the messages logged earlier than `seconds` since boot, and `seconds` as its time `now`."""
        return replace(self, text=self.text[: len(self.text) - len(self.since(seconds).text)], now=seconds)

    def from_last(self, needle: str, since: str = "") -> Log:
        """A copy of the log from the last line that contains `needle` on, that line included.

        The whole log if none does. If `since` stands between the last two `needle`, the copy starts at the line with
        `since` instead.
        """
        found = self.text.rfind(needle)
        if since and found >= 0:
            before = self.text.rfind(needle, 0, found)
            start = self.text.rfind(since, max(before, 0), found)
            found = start if start >= 0 else found
        return replace(self, text=self.text[self.text.rfind("\n", 0, found) + 1 :]) if found >= 0 else self

    def clock_time(self, seconds: float) -> Fact:
        """Seconds since boot as clock time in UTC, ``2026-11-21T13:05:11Z``; unread if the boot time is unknown."""
        if self.booted is None:
            return Unread("/proc/stat does not say when the machine was booted")
        return Known(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.booted + seconds)), self.source)


def read_log(target: Target) -> Log | Unread:
    """The kernel's log from /dev/kmsg, else from syslog's file, else, from level standard on, from the journal.

    Unread if none of them can be read, with why and a hint how to read it.
    """
    try:
        return _make_log(target, _read_kmsg(target), _KMSG)
    except OSError as error:
        refused = refusal(_KMSG, error)
    if path_exists(target, _KMSG) is False:
        refused = Unread(f"no {_KMSG}")
    file_text = _read_log_file(target)
    if file_text:
        return _make_log(target, file_text, _FILE)
    return _read_journal(target) or Unread(f"{refused.why}; {_access_hint(target)}")


def _make_log(target: Target, content: str, source: str) -> Log:
    """A `Log` of the text, with the time now: the uptime, else the last message's."""
    uptime = number_of(number(target, "/proc/uptime"))
    full_log = Log(content, source, 0.0, boot_time(target))
    now = full_log.time_at(len(content)) if uptime is None else float(uptime)
    return replace(full_log, now=now)


def boot_time(target: Target) -> int | None:
    """Boot time in seconds since 1970, from /proc/stat; None if it cannot be read."""
    content = text(target, "/proc/stat", 1 << 18)
    match = re.search(r"^btime (\d{1,12})$", content, re.M) if isinstance(content, str) else None
    return int(match[1]) if match else None


def _access_hint(target: Target) -> str:
    """Advice on how to read the kernel's log: on the host if this is a container, else as root or as a member."""
    if known(container(target)):
        return "the kernel's log is the host's: read it there with sudo dmesg"
    restricted = known(line(target, "/proc/sys/kernel/dmesg_restrict"))
    options = ["root may read the kernel's log: sudo dmesg"]
    if restricted and restricted.value != "0":
        options.append("sysctl kernel.dmesg_restrict=0 lets every user read it")
    return "; ".join([*options, "members of the groups adm and systemd-journal may read journalctl -k"])


def _read_kmsg(target: Target) -> str:
    """The records of /dev/kmsg that are kernel messages, one a line; raises `OSError` if it may not be opened.

    Records are ``priority,number,microseconds,flags;message``; a read gives one, and must not block after the last.
    Priorities of 8 and more are programs' messages: anyone who may write to /dev/kmsg can put those there. Of more than
    `MOST_LOG_BYTES` the middle is left out.
    """
    handle = os.open(target.path(_KMSG), system.READ | system.NON_BLOCKING)
    buffer = bytearray()
    try:
        for _ in range(1 << 19):
            try:
                chunk = os.read(handle, 1 << 14)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the record was overwritten before we came to it; the next read goes on
                continue
            if not chunk:
                break
            buffer += chunk
            if len(buffer) > MOST_LOG_BYTES:
                del buffer[MOST_LOG_BYTES >> 1 : (MOST_LOG_BYTES >> 1) + (1 << 20)]
    finally:
        os.close(handle)
    records = buffer.decode("utf-8", "replace").split("\n")
    return _join_continuations(
        "\n".join([record for record in records if record[1:2] == "," and "0" <= record[0] < "8"])
    )


def _join_continuations(content: str) -> str:
    """The text with line breaks within a message, as the ring buffer or syslog escapes them, replaced by spaces."""
    return _MORE.sub(" ", content) if "\\x0a" in content or "#012" in content else content


def _read_log_file(target: Target) -> str:
    """This boot's messages at the end of syslog's file; empty if it does not hold the boot's first line."""
    try:
        with target.path(_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_LOG_BYTES))
            content = file.read(MOST_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    boots = [match.start() for match in _BOOT.finditer(content)]
    return _join_continuations(content[boots[-1] :].rstrip("\n")) if boots else ""


def _read_journal(target: Target) -> Log | None:
    """This boot's kernel messages by journalctl, of a very long journal the newest; else None.

    None at level quick, without journalctl, if it takes too long, or if it shows no message (this user has no right
    to).
    """
    if target.level == "quick" or not target.which("journalctl"):
        return None
    argv = ("journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic")
    try:
        answer = target.run(argv, timeout=4, limit=MOST_LOG_BYTES)
        if answer.status is None:  # it is too long, and began with what is oldest
            answer = target.run((*argv, "-n", _MOST_JOURNAL_LINES), timeout=3, limit=MOST_LOG_BYTES)
    except OSError:
        return None
    if answer.status is None:
        return None
    stamp = _STAMPS["journalctl -k -b"][0]
    unfolded = _MORE_IN_JOURNAL.sub(" ", answer.out)
    content = "\n".join([line for line in unfolded.split("\n") if line[:1] == "["])
    return _make_log(target, content, "journalctl -k -b") if stamp.match(content) else None


# ---- What the lines mean: one row for each thing that happened, however often, with its first and last time ----

RECOVERY_XID = 154
"""The Xid that says what a GPU needs before it is used again. The last such line holds, not the first."""

_SXID = pattern(r": SXid \((?:PCI:)?[0-9a-fA-F:.]{5,20}\): \d{4,6}, (?:Non-)?[Ff]atal, (?:Link \d{1,3})?")
_SXID_PARTS = pattern(r"\((?:PCI:)?([^)]+)\): (\d+), ([\w-]+), (?:Link (\d+))?")
_OOM = pattern(r"(?:Memory cgroup out|Out) of memory: Kill(?:ed)? process \d{1,10} \([^\n]{0,16}\)")
_OOM_CGROUP = pattern(r"oom-kill:constraint=[^\n]{0,2000}task_memcg=(/[^,\n]{0,1000}),task=[^\n]{0,20},pid=(\d{1,10}),")
_OOM_PARTS = pattern(r"(Memory cgroup out|Out) .* process (\d+) \((.*)\)")
_MCE = pattern(
    r"EDAC MC\d+: \d+ [CU]E (?:memory \w+ error )?on \S+"
    r"|\[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: \d+ Bank \d+: [0-9a-f]{8,16}"
)
_EDAC_PARTS = pattern(r"EDAC (MC\d+): \d+ ([CU])E .*on (\S+)")
_MCE_PARTS = pattern(r"(CPU \d+): .* Bank (\d+): ([0-9a-f]+)")
_LINK_DOWN = pattern(r"(?<![\w.@-])(?!SATA )[\w.@-]{1,15}(?::| :|) (?:NIC |)(?:Link (?:is |)|link )(?:D|d)own\b")
"""Of a network interface; ``ata2: SATA link down`` is a port of the disk controller with nothing plugged in."""

_MOST_ROWS = 64
"""Rows a group gets at most, the oldest: the first is the one that matters."""


@mutable
class LogEvent:
    """One event of the log: its matched text, how often it occurs, and the text offsets of its first and last line."""

    raw: str
    count: int
    first: int
    last: int

    def times(self, log: Log) -> dict[str, Fact]:
        """The event's columns line, count, time and last_time (UTC), age_s and last_age_s (before the log's `now`)."""
        first, last = log.time_at(self.first), log.time_at(self.last)
        return {
            "line": Known(log.message_at(self.first), log.source),
            "count": Known(self.count, log.source),
            "time": log.clock_time(first),
            "age_s": Known(max(0, int(log.now - first)), log.source),
            "last_time": log.clock_time(last),
            "last_age_s": Known(max(0, int(log.now - last)), log.source),
        }


def find_events(log: Log, pattern: re.Pattern[str], text: str, key: Callable[[str], object] = str) -> list[LogEvent]:
    """Events that match `pattern` in `text`, a part of the log's lines, oldest first; at most `_MOST_ROWS`.

    Matches for which `key` returns equal keys (by default equal texts) are one event with the sum of their counts.
    """
    found: dict[object, LogEvent] = {}
    for raw, count in Counter(pattern.findall(text)).items():
        event = LogEvent(raw, count, _first_offset(log.text, raw), _last_offset(log.text, raw))
        known = found.setdefault(key(raw), event)
        if known is not event:
            known.count += count
            known.last = max(known.last, event.last)
            if event.first < known.first:
                known.raw, known.first = event.raw, event.first
    return sorted(found.values(), key=lambda event: event.first)[:_MOST_ROWS]


def _first_offset(text: str, raw: str) -> int:
    """Offset of the first `raw` that no digit follows: ``): 4`` is not in ``): 45``; else of the first, -1 if none."""
    at = text.find(raw)
    while at >= 0 and text[at + len(raw) : at + len(raw) + 1].isdigit():
        at = text.find(raw, at + 1)
    return at if at >= 0 else text.find(raw)


def _last_offset(text: str, raw: str) -> int:
    """Offset of the last `raw` that no digit follows, else of the last; -1 if there is none."""
    at = text.rfind(raw)
    while at >= 0 and text[at + len(raw) : at + len(raw) + 1].isdigit():
        at = text.rfind(raw, 0, at)
    return at if at >= 0 else text.rfind(raw)


def xids(log: Log, own_gpus: set[str] | None) -> tuple[Row, ...]:
    """Rows of the group ``xid``: one per GPU, MIG instance and Xid code, NVLink 5's events also by unit and severity.

    `own_gpus`: PCI addresses of the GPUs to report; None means all. Columns are those of `Xid.row` and
    `LogEvent.times`.
    """
    rows: list[Row] = []
    for logged in find_events(log, LINE, log.text, parse_xid):
        event = parse_xid(logged.raw)
        if event is None or (own_gpus is not None and event.address not in own_gpus):
            continue
        row: Row = {**event.row(log.message_at(logged.first), log.source), **logged.times(log)}
        if event.code == RECOVERY_XID:
            row = {**row, "line": Known(log.message_at(logged.last), log.source)}
        rows.append(row)
    return tuple(rows)


def _event_rows(
    log: Log,
    sought: re.Pattern[str],
    text: str,
    parts: re.Pattern[str],
    columns: Callable[[re.Match[str], LogEvent], Row],
) -> tuple[Row, ...]:
    """One row per event that `sought` matches in `text`: what `columns` makes of its match by `parts`, and its times.

    Events whose text `parts` does not match get no row.
    """
    matched = ((event, parts.search(event.raw)) for event in find_events(log, sought, text))
    return tuple({**columns(match, event), **event.times(log)} for event, match in matched if match)


def sxids(log: Log) -> tuple[Row, ...]:
    """Rows of NVSwitch errors (SXid), one per address, code, severity and link: code, address, fatal, link and times.

    ``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 27 sourcetrack timeout error (First)``
    """

    def columns(match: re.Match[str], _: LogEvent) -> Row:
        """The SXid's columns code, PCI address, fatal, and link (absent if the line names none)."""
        link = Known(int(match[4]), log.source) if match[4] else Absent(f"the line names no link ({log.source})")
        fatal = match[3].lower() == "fatal"
        return {
            **known_facts(log.source, code=int(match[2]), address=pci_address(match[1]), fatal=fatal),
            "link": link,
        }

    return _event_rows(log, _SXID, log.text, _SXID_PARTS, columns) if ": SXid (" in log.text else ()


def bus_errors(log: Log, gpu_links: Callable[[], Mapping[str, str]]) -> tuple[Row, ...]:
    """Rows of PCIe errors (AER), one per device, severity and layer: address, driver, severity, kind, gpu and times.

    `gpu_links` is called if there is an error; it gives the NVIDIA GPU by its own address and by that of the port right
    above it. The column gpu is absent for other devices.
    """
    events = find_events(log, BUS_ERROR, "\n".join(log.lines_with("PCIe Bus Error")))
    gpus = gpu_links() if events else {}
    rows: list[Row] = []
    for event in events:
        row = bus_error_row(event.raw, log.source)
        address = text_of(row["address"])
        missing = Absent(f"{address} is no link of an NVIDIA GPU")
        gpu: Fact = Known(gpus[address], "/sys/bus/pci/devices") if address in gpus else missing
        rows.append({**row, "gpu": gpu, **event.times(log)})
    return tuple(rows)


def oom_kills(log: Log) -> tuple[Row, ...]:
    """Rows of processes killed because memory ran out: process (its name), pid, scope, memory_mib, cgroup and times.

    ``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:..., anon-rss:31457280kB, ...``.
    """
    cgroups = {int(pid): path for path, pid in _OOM_CGROUP.findall("\n".join(log.lines_with("oom-kill:constraint=")))}

    def columns(match: re.Match[str], event: LogEvent) -> Row:
        """process (name), pid, scope (machine or cgroup), memory_mib and cgroup; these two absent if not logged."""
        size = re.search(r"anon-rss:(\d{1,15})kB", log.message_at(event.first))
        scope, cgroup = "machine" if match[1] == "Out" else "cgroup", cgroups.get(int(match[2]), "")
        return {
            **known_facts(log.source, process=match[3], pid=int(match[2]), scope=scope),
            "memory_mib": Known(int(size[1]) >> 10, log.source) if size else Absent("the line does not say"),
            "cgroup": Known(cgroup, log.source) if cgroup else Absent("the kernel does not name it"),
        }

    return _event_rows(log, _OOM, "\n".join(log.lines_with("Kill process", "Killed process")), _OOM_PARTS, columns)


_CRASH = pattern(
    r"^(?:traps: )?[^\n\[\]]{1,16}\[\d{1,10}\]:? (?:segfault at |trap |general protection fault )[^\n]{0,200}", re.M
)
_CRASH_PARTS = pattern(
    r"^(?:traps: )?(?P<name>.{1,16})\[(?P<pid>\d+)\]:? (?:trap )?"
    r"(?P<kind>segfault|[a-z][a-z ]{2,40}?)(?= at | ip:| in )"
    r"(?: at (?P<at>[0-9a-f]+))?(?:.*? in (?P<library>[^\s\[]{1,120})\[)?"
)


def crashes(log: Log) -> tuple[Row, ...]:
    """Rows of processes that the kernel ended for a fault of their code: process (name), pid, kind, library, times.

    ``python3[4711]: segfault at 10 ip 00007f... sp 00007f... error 4 in libfoo.so[7f...+1000]`` and ``traps:
    python3[4711] trap invalid opcode ip:... sp:... error:0 in libbar.so[...]``.
    """

    def columns(match: re.Match[str], _: LogEvent) -> Row:
        """process (name), pid, kind of fault, and the library that it was in; absent if the line names none."""
        library = match["library"]
        return {
            **known_facts(log.source, process=match["name"].strip(), pid=int(match["pid"]), kind=match["kind"].strip()),
            "library": Known(library, log.source) if library else Absent("the line names none"),
        }

    lines = "\n".join(log.without_stamp(line) for line in log.lines_with("segfault at", "traps: ", "protection fault"))
    return _event_rows(log, _CRASH, lines, _CRASH_PARTS, columns)


def machine_checks(log: Log) -> tuple[Row, ...]:
    """Rows of memory errors (EDAC) and machine checks, one per DIMM or CPU bank: kind, where, corrected and times.

    ``EDAC MC0: 1 CE memory read error on DIMM_A1`` and ``mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7:``. Bit
    61 of a machine check's status says uncorrected.
    """
    text = "\n".join(log.lines_with("EDAC MC", "[Hardware Error]: CPU"))
    return tuple(row for event in find_events(log, _MCE, text, _check_key) for row in _check_rows(log, event))


def _check_key(raw: str) -> str:
    """Text that is equal for corrected (or uncorrected) errors of one DIMM, or machine checks of one CPU bank."""
    if check := _MCE_PARTS.search(raw):
        return f"{check[1]} {check[2]} {_is_corrected(check[3])}"
    return re.sub(r": \d+ (?=[CU]E)", ": ", raw)


def _is_corrected(status: str) -> bool:
    """True if a machine check's status, in hexadecimal, says that the error was corrected: bit 61 is not set."""
    return not int(status, 16) >> 61 & 1


def _check_rows(log: Log, event: LogEvent) -> Iterable[Row]:
    """Yields the event's row: kind (memory or machine check), where, corrected, times; nothing for other lines."""
    if match := _EDAC_PARTS.search(event.raw):
        yield {
            **known_facts(log.source, kind="memory", where=f"{match[1]} {match[3]}", corrected=match[2] == "C"),
            **event.times(log),
        }
    elif match := _MCE_PARTS.search(event.raw):
        yield {
            "kind": Known("machine check", log.source),
            "where": Known(f"{match[1]} bank {match[2]}", log.source),
            "corrected": Known(_is_corrected(match[3]), log.source),
            **event.times(log),
        }


def link_losses(log: Log) -> tuple[Row, ...]:
    """Rows of network interfaces whose link went down, one each: interface and the columns of `LogEvent.times`.

    ``mlx5_core 0000:1a:00.0 ens1np0: Link down``, ``ice 0000:17:00.0 eth0: NIC Link is Down``, ``tg3 0000:02:00.0 eno1:
    Link is down``, ``igb: eth0 NIC Link is Down``.
    """
    text = "\n".join(log.lines_with("ink down", "ink is down", "ink is Down", "ink Down"))
    return tuple(
        {"interface": Known(re.split(r"[: ]", event.raw)[0], log.source), **event.times(log)}
        for event in find_events(log, _LINK_DOWN, text, lambda raw: re.split(r"[: ]", raw)[0])
    )


def fallen_off(log: Log) -> Iterator[str]:
    """Yields PCI addresses of GPUs that the driver reports as fallen off the bus, by an Xid 79 or another message.

    An address may come more than once. The long form spans lines: ``NVRM: The NVIDIA GPU 0000:1a:00.0`` ... ``fallen
    off the bus and is not responding``.
    """
    lines = log.lines_with(
        "fallen off the bus", "NVRM: The NVIDIA GPU ", "NVRM: (PCI ID", "installed in this system has"
    )
    address = ""
    for message in lines:
        match = re.search(
            r"(?:GPU(?: at)? |\((?:PCI:)?)(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F.]{2,4})", message
        )
        address = pci_address(match[1]) if match else address
        if "fallen off the bus" in message and address:
            yield address

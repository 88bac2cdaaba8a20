"""What the system's package managers keep: dpkg's list of what is installed, and the logs of all of them.

rpm's database is no text and is not read.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import cache, partial
from time import gmtime, strftime
from typing import TYPE_CHECKING

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.core.secrets import without_secrets
from gpudoctor.probes._reading import text
from gpudoctor.probes.children import script
from gpudoctor.target import Target
from gpudoctor.target.protocol import answers, printable

if TYPE_CHECKING:
    from datetime import tzinfo


DPKG_STATUS = "/var/lib/dpkg/status"
_MOST_STATUS_BYTES = 32 << 20


def installed_packages(target: Target, pattern: str) -> dict[str, str] | Absent | Unread:
    """Name to version, without epoch, of the installed dpkg packages whose whole name matches the regular expression
    `pattern`.

    Absent without dpkg, unread if its list cannot be read.
    """
    status = text(target, DPKG_STATUS, _MOST_STATUS_BYTES)
    if not isinstance(status, str):
        return status
    found: dict[str, str] = {}
    for match in re.finditer(rf"^Package: ({pattern})$", status, re.M):
        entry = status[match.start() : status.find("\n\n", match.start()) + 1 or len(status)]
        version = re.search(r"^Version: (?:\d+:)?(\S+)", entry, re.M)
        if version and re.search(r"^Status: .* installed$", entry, re.M):
            found[match[1]] = version[1]
    return found


# ---- One package that was installed, exchanged or removed, and which packages are reported at all ----

_RELEVANT = pattern(
    r"nvidia|cuda|cudnn|cublas|nccl|tensorrt|fabricmanager|fabric-manager|\bnvlsm\b|\bimex\b|nouveau"
    r"|^linux(?:$|-(?:image|headers|modules|generic|aws|azure|gcp|oracle|lts|zen|hardened|firmware))"
    r"|^kernel(?:$|-(?:core|modules|devel|default|uek|rt|longterm))|^dkms$|akmod|kmod-"
    r"|^shim-signed$|^mokutil$|^(?:py)?torch|triton|^(?:tensorflow|jax|cupy|onnxruntime|vllm|flash-attn|xformers)"
    r"|^(?:docker|containerd|podman|cri-o|runc|libc6|glibc)(?:$|[-.])"
    r"|rdma-core|libibverbs|^mlnx|^ofed|^doca|^ucx|openmpi"
)
"""Names of packages that a GPU's work may hang on: the driver, CUDA, the kernel, containers, fabrics, frameworks."""

_LONGEST_COMMAND = 120
_PROGRAMS = {"unattended-upgrade": "unattended-upgrades", "dnf-automatic": "dnf-automatic"}
"""Programs that are known by another name, or whose arguments say nothing."""


@frozen
class PackageChange:
    """One change of a package: `before` is empty if it was installed, `after` if it was removed.

    `time` as the log has it, `stamp` in seconds since 1970.
    `by`: what did it (a command line, ``unattended-upgrades``), `user`: who asked; empty if the log does not say.
    """

    name: str
    before: str
    after: str
    time: str
    stamp: float
    by: str
    user: str
    source: str


def is_relevant(name: str) -> bool:
    """True if changes of the package are reported, as GPU work may depend on it."""
    return _RELEVANT.search(name) is not None


def short_command(line: str) -> str:
    """A command line without its program's folder, a Python before it and secrets, cut to 120 characters; empty for
    bare Python.

    Unprintable characters are escaped; a program in `_PROGRAMS` is named as there, without its arguments.
    """
    words = without_secrets(printable(line, 4 * _LONGEST_COMMAND)).replace("'", "").split()
    while words and words[0].rpartition("/")[2].startswith("python"):
        words = words[1:]
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    if name in _PROGRAMS:
        return _PROGRAMS[name]
    command = " ".join([name, *words[1:]])
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."


def newest_changes(entries: Iterable[PackageChange], most: int) -> list[PackageChange]:
    """At most `most` changes, the newest first. Equal changes in the same or the next hour (of two logs) are one: that
    which names a user, else the longer command.
    """
    found: dict[tuple[str, str, str, int], PackageChange] = {}
    for entry in sorted(entries, key=lambda entry: (-entry.stamp, not entry.by, entry.name)):
        hour = int(entry.stamp // 3600)
        known = next(
            (found[key] for at in (hour, hour - 1, hour + 1) if (key := _change_key(entry, at)) in found), None
        )
        if known is None:
            found[_change_key(entry, hour)] = entry
        elif not known.user and (entry.user or len(entry.by) > len(known.by)):
            found[_change_key(known, int(known.stamp // 3600))] = entry
    return list(found.values())[:most]


def _change_key(entry: PackageChange, hour: int) -> tuple[str, str, str, int]:
    """Name, versions and hour: equal for entries of the same change."""
    return entry.name, entry.before, entry.after, hour


# ---- Logs that grow and are rotated: their ends, the newest first, and the clock that they were written by ----

_MOST_LOG_BYTES = 256 << 10
"""Bytes of one log that are looked at, the newest."""
LOG_PATHS = pattern(r"/var/log/(?:apt/history\.log|dpkg\.log|pacman\.log|zypp/history)(?:\.\d)?")
_FRAME = pattern(r"^(?:Start-Date: |Commandline: |End-Date: |\s*$)|\] \[PACMAN\] Running |\|command\|")
_WORD = pattern(r"[\w.+-]+")
_SUFFIXES = ("", ".1", ".1.gz", ".2.gz")

ClockReader = Callable[[str], "tuple[str, float] | None"]
"""Of ``2025-11-03 06:25:14`` the time with the machine's offset, and in seconds since 1970."""


def _log_texts(target: Target, path: str, most: int = _MOST_LOG_BYTES) -> Iterator[tuple[str, str]]:
    """Yields (path, text) of the log and its rotated predecessors, the newest first; at most `most` bytes in all.

    Raises `OSError` if the log itself is refused.
    """
    left = most
    for suffix in _SUFFIXES:
        place = path + suffix
        try:
            text = _read_gzip_end(target, place, left) if suffix.endswith(".gz") else _read_end(target, place, left)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            if not suffix:
                raise
            continue
        if text:
            yield place, text.decode("utf-8", "replace")
        left -= len(text)
        if left <= 0:
            return


def _read_end(target: Target, path: str, most: int) -> bytes:
    """The last `most` bytes of the file; raises `OSError`."""
    with target.path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most))
        return bytes(file.read(most))


def _read_gzip_end(target: Target, path: str, most: int) -> bytes:
    """The last `most` bytes of what the file's first 256 KiB unpack to; empty if it is no gzip. Raises `OSError`."""
    packed = target.read_bytes(path, _MOST_LOG_BYTES)
    stream = zlib.decompressobj(wbits=31)
    try:
        return stream.decompress(packed, 8 * _MOST_LOG_BYTES)[-most:]
    except zlib.error:
        return b""


def screened_log(text: str) -> str:
    """The log without lines about packages that GPU work does not depend on, which may name people.

    Lines that begin or end a transaction, its command line too, are kept.
    """
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if _FRAME.search(line) or any(map(is_relevant, _WORD.findall(line))))


def machine_clock(target: Target) -> ClockReader:
    """A parser of log times: to ISO text with its zone, and seconds since 1970; a time that names no zone has the
    machine's (/etc/localtime, else UTC).

    The parser returns None for text that is no time.
    """
    default_zone = cache(partial(_machine_zone, target))  # most logs name their zone

    def parse_time(time: str) -> tuple[str, float] | None:
        """ISO text and seconds since 1970; None if the text is no time."""
        try:
            moment = datetime.fromisoformat(time.strip().replace("  ", " "))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=default_zone())
            return moment.isoformat(timespec="seconds"), moment.timestamp()
        except (ValueError, OverflowError):
            return None

    return parse_time


def utc_text(stamp: float) -> str:
    """Seconds since 1970 as ISO text in UTC: ``2025-11-03T06:25:14+00:00``."""
    return strftime("%Y-%m-%dT%H:%M:%S+00:00", gmtime(stamp))


def _machine_zone(target: Target) -> tzinfo:
    """The machine's time zone by /etc/localtime; UTC if it cannot be read."""
    import zoneinfo  # a tenth of what all probes take to import; times of packages are asked where there is a log

    try:
        return zoneinfo.ZoneInfo.from_file(io.BytesIO(target.read_bytes("/etc/localtime", 1 << 16)))
    except (OSError, ValueError, EOFError):
        return timezone.utc


# ---- apt and dpkg ----
# apt's history.log names the command and who asked for it; dpkg.log has what apt never saw.

_APT_LOG = "/var/log/apt/history.log"
_DPKG_LOG = "/var/log/dpkg.log"

_LONGEST_NAME = 100
_APT_FIELD = pattern(r"^([A-Z][A-Za-z-]*): (.*)$", re.M)
_DPKG_LINE = pattern(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:install|upgrade|remove|purge) "
    r"([^\s:]{1,100})(?::\S{1,20})? (\S{1,100}) (\S{1,100})$",
    re.M,
)
_NONE = "<none>"
_MOST_DPKG_LOG_BYTES = 96 << 10
"""Bytes of dpkg.log: ten lines for each package, most of which apt's log has in a word."""


def _apt_changes(target: Target, parse_time: ClockReader) -> Iterator[PackageChange]:
    """Yields changes of relevant packages in apt's log: fields such as ``Upgrade: name:arch (before, after), ...``.

    Raises `OSError` if the log may not be read; nothing if there is none.
    """
    for path, log in _log_texts(target, _APT_LOG):
        for stanza in log.split("\n\n"):
            fields = dict(_APT_FIELD.findall(stanza))
            changed = list(_stanza_changes(fields))
            if changed and (at := parse_time(fields.get("Start-Date", ""))):
                by = short_command(fields.get("Commandline", ""))
                user = fields.get("Requested-By", "").partition(" (")[0][:60]
                yield from (PackageChange(name, before, after, *at, by, user, path) for name, before, after in changed)


def _stanza_changes(fields: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yields (name, version before, version after) of the relevant packages in a stanza of apt's log.

    `fields`: field name to text; the version before is empty if newly installed, the one after if removed.
    """
    for kind in ("Install", "Upgrade", "Downgrade", "Remove", "Purge"):
        for item in fields.get(kind, "").split("), "):
            name, _, versions = item.partition(" (")
            name = name.partition(":")[0]
            if len(name) <= _LONGEST_NAME and is_relevant(name):
                first, _, second = versions[: 3 * _LONGEST_NAME].rstrip(")").partition(", ")
                before = "" if kind == "Install" else first
                after = first if kind == "Install" else second if kind in ("Upgrade", "Downgrade") else ""
                yield name, before, after


def _dpkg_changes(target: Target, parse_time: ClockReader) -> Iterator[PackageChange]:
    """Yields changes of relevant packages in dpkg's log, which names no command and no user.

    ``2025-11-03 06:25:14 upgrade libnvidia-compute-580:amd64 580.82.07-0ubuntu1 580.95.05-0ubuntu1``
    """
    for path, log in _log_texts(target, _DPKG_LOG, _MOST_DPKG_LOG_BYTES):
        for time, name, before, after in _DPKG_LINE.findall(log):
            if is_relevant(name) and (at := parse_time(time)):
                was, now = ("" if version == _NONE else version for version in (before, after))
                if was != now:
                    yield PackageChange(name, was, now, *at, "", "", path)


# ---- dnf ----
# Its own history, which a child reads: it is a database, and it may be damaged.

_DNF_DATABASES = ("/usr/lib/sysimage/libdnf5/transaction_history.sqlite", "/var/lib/dnf/history.sqlite")
"""Of dnf 5 and of dnf 4; where both are, dnf 4 was in use before."""

_DNF_SECONDS = 3.0
_NO_LOGIN_UID = 4294967295
"""The login of what no login began: a timer, the installer."""


def _dnf_changes(target: Target, parse_time: ClockReader, path: str) -> Iterator[PackageChange]:
    """Yields changes in dnf's database at `path`, read by a child; raises `OSError` if that fails."""
    argv = [target.python or "python3", "-I", "-S", *script("ask_dnf.py")]
    answer = target.run([*argv, str(target.path(path)), _RELEVANT.pattern], _DNF_SECONDS)
    entries = list(answers(answer.out))
    if not entries or "done" not in entries[-1]:
        raise OSError(0, f"the child that reads it: {answer.how}", path)
    for raw in entries[:-1]:
        if entry := _dnf_change(raw, parse_time, path):
            yield entry


def _dnf_change(raw: dict[str, object], parse_time: ClockReader, path: str) -> PackageChange | None:
    """One entry of the child that reads dnf's database as a change; None if its time is malformed."""
    at, user = raw.get("at"), raw.get("user")
    if not isinstance(at, int) or not 0 < at < 1 << 33:
        return None
    name, before, after = (printable(raw.get(key, ""), 100) for key in ("name", "before", "after"))
    local = parse_time(utc_text(at))
    who = "" if user in (None, _NO_LOGIN_UID, -1) else "root" if user == 0 else f"user {printable(user, 12)}"
    return (
        PackageChange(name, before, after, *local, short_command(printable(raw.get("by", ""), 400)), who, path)
        if local
        else None
    )


# ---- The logs of pacman, zypper and conda ----

_PACMAN_LOG = "/var/log/pacman.log"
_ZYPP_LOG = "/var/log/zypp/history"

_PACMAN_LINE = (
    r"(?m)^\[(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)([+-]\d{4})?\] \[(?:PACMAN|ALPM)\] "
    r"(?:Running '([^'\n]{1,400})'|(installed|upgraded|downgraded|removed) (\S{1,100}) \(([^()\n]{1,200})\))$"
)
_ZYPP_LINE = r"(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\|(install|remove ?|command)\|([^|\n]{1,200})\|([^|\n]{0,400})"
_CONDA_LINE = (
    r"(?m)^(?:==> (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) <==|# cmd: (?P<cmd>[^\n]{1,400})"
    r"|(?P<sign>[-+])(?:\S{1,200}::)?(?P<name>[^\s:]{1,100}?)-(?P<version>[^\s-]{1,60})-[^\s-]{1,60})$"
)


def _pacman_changes(target: Target, parse_time: ClockReader) -> Iterator[PackageChange]:
    """Yields changes of relevant packages in pacman's log; raises `OSError` if it may not be read.

    ``[2025-11-03T06:25:13+0100] [ALPM] upgraded nvidia-open (580.82.09-3 -> 580.95.05-1)``
    """
    for path, log in _log_texts(target, _PACMAN_LOG):
        by = ""
        for time, offset, command, verb, name, versions in re.findall(_PACMAN_LINE, log):
            if command:
                by = short_command(command)
            elif is_relevant(name) and (at := parse_time(f"{time}{offset[:3]}:{offset[3:]}" if offset else time)):
                first, _, second = versions.partition(" -> ")
                before, after = {"installed": ("", first), "removed": (first, "")}.get(verb, (first, second))
                yield PackageChange(name, before, after, *at, by, "", path)


def _zypp_changes(target: Target, parse_time: ClockReader) -> Iterator[PackageChange]:
    """Yields changes of relevant packages in zypper's history; raises `OSError` if it may not be read.

    The version before is known if the log has an earlier installation. ``2025-11-03
    06:25:13|install|nvidia-open-driver-G06|580.95.05-1.1|x86_64|...``
    """
    for path, log in _log_texts(target, _ZYPP_LOG):
        by, versions = "", dict[str, str]()
        for time, verb, name, version in re.findall(_ZYPP_LINE, log):
            if verb == "command":
                by = short_command(version.partition("|")[0])
            elif is_relevant(name) and (at := parse_time(time)):
                gone = verb.startswith("remove")
                before = version if gone else versions.get(name, "")
                after = "" if gone else version
                versions[name] = after
                yield PackageChange(name, before, after, *at, by, "", path)


def conda_changes(target: Target, parse_time: ClockReader, prefix: str) -> Iterator[PackageChange]:
    """Yields changes of relevant packages in the history (conda-meta/history) of the conda environment at `prefix`.

    A transaction there is its time and command, then removed (``-``) and added (``+``) packages. Raises `OSError` if it
    may not be read.
    """
    for path, log in _log_texts(target, f"{prefix}/conda-meta/history"):
        at: tuple[str, float] | None = None
        by = ""
        changed: dict[str, list[str]] = {}
        for match in (*re.finditer(_CONDA_LINE, log), None):
            if match is None or match["time"]:
                if at:
                    yield from (
                        PackageChange(name, was, now, *at, by, "", path) for name, (was, now) in changed.items()
                    )
                at, by, changed = (parse_time(match["time"]) if match else None), "", {}
            elif match["cmd"]:
                by = short_command(match["cmd"])
            elif is_relevant(match["name"]):
                changed.setdefault(match["name"], ["", ""])[match["sign"] == "+"] = match["version"]


LogReader = Callable[[Target, ClockReader], Iterator[PackageChange]]
SYSTEM_LOGS: tuple[tuple[str, LogReader], ...] = (
    (_APT_LOG, _apt_changes),
    (_DPKG_LOG, _dpkg_changes),
    (_PACMAN_LOG, _pacman_changes),
    (_ZYPP_LOG, _zypp_changes),
    *((path, partial(_dnf_changes, path=path)) for path in _DNF_DATABASES),
)
"""The path of each log of the whole system, and what reads it; conda's are an environment's own."""

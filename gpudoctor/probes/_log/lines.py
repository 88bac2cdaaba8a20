"""The kernel's messages since boot as one text, wherever they may be read: the ring buffer, a file, the journal.

The text stays whole, for a driver may flood it with 100,000 lines: what is sought in it is sought by the regular
expression engine, and only lines that were found are taken apart.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from gpudoctor.model.fact import Fact, Known, Unread
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._marks import container
from gpudoctor.probes._reading import line, number, refusal, text, there
from gpudoctor.target import Target

MOST = 4 << 20
"""Bytes of log that are searched: of a longer one the first and the last half, for it is one message over and over."""

_KMSG = "/dev/kmsg"
_FILE = "/var/log/kern.log"
_BOOT = pattern(r"^.*kernel: \[ *\d+\.\d+\] Linux version ", re.M)
_STAMPS = {
    _KMSG: (re.compile(r"[0-7],\d+,(\d{1,18}),[^;\n]*;"), 1e-6),
    _FILE: (re.compile(r"[^\n\[]{8,60} kernel: \[ *(\d{1,12}\.\d{1,9})\] "), 1.0),
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
        return self.text.split("\n")

    def having(self, *needles: str) -> list[str]:
        """The lines that hold one of these."""
        wanted = [needle for needle in needles if needle in self.text]
        return [line for line in self.lines if any(needle in line for needle in wanted)] if wanted else []

    @cached_property
    def without_xids(self) -> Log:
        """All but the Xids, which there may be a great many of."""
        return replace(self, text="\n".join([line for line in self.lines if " Xid (" not in line]))

    def at(self, position: int) -> float:
        """Seconds since boot at which the message at `position` of the text was logged."""
        stamp, unit = _STAMPS[self.source]
        match = stamp.match(self.text, self.text.rfind("\n", 0, position) + 1)
        return float(match[1]) * unit if match else 0.0

    def words(self, position: int) -> str:
        """The message at `position`, without what stands before it."""
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        return self.bare(self.text[start : end if end >= 0 else len(self.text)])

    def bare(self, line: str) -> str:
        """A whole line without what stands before its message."""
        match = _STAMPS[self.source][0].match(line)
        return line[match.end() if match else 0 :].strip()[:500]

    def since(self, seconds: float) -> Log:
        """The messages from that time since boot on."""
        low, high = 0, len(self.text)
        while low < high:
            start = self.text.rfind("\n", 0, (low + high) // 2) + 1
            if self.at(start) < seconds:
                low = self.text.find("\n", (low + high) // 2) + 1 or len(self.text)
            else:
                high = min(high - 1, start)
        return replace(self, text=self.text[low:])

    def after_last(self, words: str, since: str = "") -> Log:
        """From the last line that holds `words` on; all of it where none does.

        `since`: what the same thing says first, if it said so after the last but one time of `words`.
        """
        found = self.text.rfind(words)
        if since and found >= 0:
            before = self.text.rfind(words, 0, found)
            start = self.text.rfind(since, max(before, 0), found)
            found = start if start >= 0 else found
        return replace(self, text=self.text[self.text.rfind("\n", 0, found) + 1 :]) if found >= 0 else self

    def wall(self, seconds: float) -> Fact:
        """That time since boot on the clock: ``2026-11-21T13:05:11Z``."""
        if self.booted is None:
            return Unread("/proc/stat does not say when the machine was booted")
        import time

        return Known(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.booted + seconds)), self.source)


def read_log(target: Target) -> Log | Unread:
    """From /dev/kmsg, else the file that syslog keeps, else, from level standard on, the journal."""
    try:
        return _log(target, _ring(target), _KMSG)
    except OSError as error:
        refused = refusal(_KMSG, error)
    if there(target, _KMSG) is False:
        refused = Unread(f"no {_KMSG}")
    kept = _file(target)
    if kept:
        return _log(target, kept, _FILE)
    return _journal(target) or Unread(f"{refused.why}; {_advice(target)}")


def _log(target: Target, said: str, source: str) -> Log:
    uptime = number(target, "/proc/uptime")
    whole = Log(said, source, 0.0, _booted(target))
    now = float(str(uptime.value)) if isinstance(uptime, Known) else whole.at(len(said))
    return replace(whole, now=now)


def _booted(target: Target) -> int | None:
    said = text(target, "/proc/stat", 1 << 18)
    match = re.search(r"^btime (\d{1,12})$", said, re.M) if isinstance(said, str) else None
    return int(match[1]) if match else None


def _advice(target: Target) -> str:
    if isinstance(container(target), Known):
        return "the kernel's log is the host's: read it there with sudo dmesg"
    restricted = line(target, "/proc/sys/kernel/dmesg_restrict")
    ways = ["root may read the kernel's log: sudo dmesg"]
    if isinstance(restricted, Known) and restricted.value != "0":
        ways.append("sysctl kernel.dmesg_restrict=0 lets every user read it")
    return "; ".join([*ways, "members of the groups adm and systemd-journal may read journalctl -k"])


def _ring(target: Target) -> str:
    """Records ``priority,number,microseconds,flags;words``; a read gives one, and the last one must not block.

    Priorities of 8 and more are programs' messages, which anybody who may write to /dev/kmsg could have put there.
    """
    handle = os.open(target.path(_KMSG), os.O_RDONLY | os.O_NONBLOCK)
    heard = bytearray()
    try:
        for _ in range(1 << 19):
            try:
                part = os.read(handle, 1 << 14)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the record was overwritten before we came to it; the next read goes on
                continue
            if not part:
                break
            heard += part
            if len(heard) > MOST:
                del heard[MOST >> 1 : (MOST >> 1) + (1 << 20)]
    finally:
        os.close(handle)
    records = heard.decode("utf-8", "replace").split("\n")
    return _joined("\n".join([record for record in records if record[1:2] == "," and "0" <= record[0] < "8"]))


def _joined(said: str) -> str:
    """With each message on one line."""
    return _MORE.sub(" ", said) if "\\x0a" in said or "#012" in said else said


def _file(target: Target) -> str:
    """This boot's part of the file's end, where that holds the boot's first line and the kernel's own times."""
    try:
        with target.path(_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST))
            said = file.read(MOST).decode("utf-8", "replace")
    except OSError:
        return ""
    boots = [match.start() for match in _BOOT.finditer(said)]
    return _joined(said[boots[-1] :].rstrip("\n")) if boots else ""


def _journal(target: Target) -> Log | None:
    """Without the right to read it, the journal just looks empty."""
    if target.level == "quick" or not target.which("journalctl"):
        return None
    try:
        answer = target.run(("journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic"), timeout=4, limit=MOST)
    except OSError:
        return None
    stamp = _STAMPS["journalctl -k -b"][0]
    whole = _MORE_IN_JOURNAL.sub(" ", answer.out)
    said = "\n".join([line for line in whole.split("\n") if line[:1] == "["])
    return _log(target, said, "journalctl -k -b") if stamp.match(said) else None

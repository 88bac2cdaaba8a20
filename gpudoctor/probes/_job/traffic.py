"""What a machine's network carried between two moments, by the kernel's counters."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.target.proc import names, text

_RDMA = "/sys/class/infiniband"
_COUNTER_UNIT_BYTES = 4
"""Bytes that an RDMA port's counter of data counts as one."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The counters at one moment, in bytes and segments since the machine started; `rdma` is None without a port."""

    at: float
    sent: int
    received: int
    resent: int | None
    rdma: tuple[int, int] | None

    @classmethod
    def now(cls) -> Traffic:
        """Counters as of now: bytes of all interfaces but loopback, TCP segments sent again, bytes of RDMA ports."""
        sent = received = 0
        for line in text("/proc/net/dev").splitlines()[2:]:
            name, _, columns = line.partition(":")
            numbers = columns.split()
            if name.strip() != "lo" and len(numbers) > 8:
                received, sent = received + int(numbers[0]), sent + int(numbers[8])
        return cls(time.monotonic(), sent, received, _resent(), _ports())

    def facts_since(self, before: Traffic) -> dict[str, Fact]:
        """Facts sent_mb_s, received_mb_s, resent (TCP segments), rdma_sent_mb_s and rdma_received_mb_s since `before`.

        Rates are means, in 10^6 bytes per second. Without an RDMA port its rates are absent; resent is unread if not
        counted.
        """
        seconds = max(0.01, self.at - before.at)
        source = "the kernel's counters"
        facts: dict[str, Fact] = {
            "sent_mb_s": Known(round((self.sent - before.sent) / 1e6 / seconds, 2), source),
            "received_mb_s": Known(round((self.received - before.received) / 1e6 / seconds, 2), source),
            "resent": Unread("/proc/net/snmp does not tell"),
            **dict.fromkeys(("rdma_sent_mb_s", "rdma_received_mb_s"), Absent("no RDMA port shows counters")),
        }
        if self.resent is not None and before.resent is not None:
            facts["resent"] = Known(self.resent - before.resent, source)
        if self.rdma and before.rdma:
            for name, now, then in zip(("sent", "received"), self.rdma, before.rdma, strict=True):
                facts[f"rdma_{name}_mb_s"] = Known(round((now - then) / 1e6 / seconds, 2), source)
        return facts


def _resent() -> int | None:
    """TCP segments retransmitted since boot, by /proc/net/snmp; None if not readable."""
    match = re.search(r"^Tcp: (.*\bRetransSegs\b.*)\nTcp: (.*)$", text("/proc/net/snmp"), re.M)
    values = dict(zip(match[1].split(), match[2].split(), strict=False)) if match else {}
    return int(values["RetransSegs"]) if values.get("RetransSegs", "").isdecimal() else None


def _ports() -> tuple[int, int] | None:
    """Bytes that all RDMA ports together have sent and received; None if no port shows its counters."""
    sums, seen = [0, 0], False
    for device in names(_RDMA):
        for port in names(f"{_RDMA}/{device}/ports"):
            for place, name in enumerate(("port_xmit_data", "port_rcv_data")):
                value = text(f"{_RDMA}/{device}/ports/{port}/counters/{name}")
                if value.isdecimal():
                    sums[place] += int(value) * _COUNTER_UNIT_BYTES
                    seen = True
    return (sums[0], sums[1]) if seen else None

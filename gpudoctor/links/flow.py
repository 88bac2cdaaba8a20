"""What passes between this host and another: rate and losses each way, round trip, the size at which packets vanish."""

from __future__ import annotations

import json
import socket
import statistics
import time
from dataclasses import dataclass, replace

from gpudoctor.links import _bulk, _tcp, sizes
from gpudoctor.links._talk import ClosedError, Lines, TalkError, greeting
from gpudoctor.links.reach import Outcome, opened
from gpudoctor.links.sealing import nonce

SECONDS = 5.0
"""The most that one measurement takes, whatever is wrong."""

WINDOW = 0.25
"""Seconds that each direction is measured; paths with a long round trip are given up to four times as much."""

_JUMBO = 9000
"""The MTU that is assumed where the kernel does not say."""

_PINGS, _PINGING = 20, 0.25
_ROUND_TRIPS = 12
"""Round trips that the window holds at least, where it may grow so long: TCP doubles its rate in each."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One link, seen from the asking side: `out` leads to the other host. None where it was not measured.

    The rates are those of one TCP stream. Above some 20 Gbit/s they tell of the two CPUs, too: good to compare the
    links of a job with each other, not with what the hardware promises.
    """

    outcome: Outcome
    words: str
    peer: str = ""
    """What the other side calls itself."""
    gbps_out: float | None = None
    gbps_in: float | None = None
    ms: float | None = None
    """Round trip of a small message: the median."""
    retransmitted_out: float | None = None
    retransmitted_in: float | None = None
    """Shares of the data segments, as the sending kernel counts them. None where nothing came, too."""
    segments_out: int | None = None
    segments_in: int | None = None
    """Data segments sent, those that were sent again among them: a share of a few says little."""
    busy_out: float | None = None
    busy_in: float | None = None
    """The share of the time in which the busier end had or wanted a processor: near 1, the link may be faster."""
    stalled_above: int | None = None
    """Bytes: IP packets up to this size pass, and larger ones vanish without a word."""
    mtu: int | None = None
    """Bytes: the path's MTU as this host's kernel believes it."""
    clock_offset_ms: float | None = None
    """The other host's clock minus ours, by NTP's four timestamps; right to half the round trip."""
    seconds: float = 0.0

    @property
    def retransmitted(self) -> float | None:
        """The worse of both directions."""
        shares = [share for share in (self.retransmitted_out, self.retransmitted_in) if share is not None]
        return max(shares) if shares else None


def measure(
    address: str, port: int, key: str, seconds: float = SECONDS, window: float = WINDOW, source: str = ""
) -> Flow:
    """Ask the `Server` at an address and port, from the address `source` where given. Ends within `seconds`."""
    begun = time.monotonic()
    link, reached = opened(address, port, min(seconds, 2.0), source, _tcp.SMALL)
    if not link:
        return Flow(reached.outcome, reached.words, seconds=time.monotonic() - begun)
    with link:
        asking = _Asking(link, reached.address, port, key, begun + seconds, source)
        try:
            flow = asking.all(window)
        except (TalkError, OSError) as error:
            flow = replace(asking.known, outcome="failed", words=f"{address} port {port}: {error}")
    return replace(flow, seconds=time.monotonic() - begun)


class _Asking:
    """One conversation. `known` is what it has found so far."""

    def __init__(self, link: socket.socket, address: str, port: int, key: str, until: float, source: str) -> None:
        _tcp.at_once(link)
        self.known = Flow("connected", f"{address} port {port} answers")
        self._where = (address, port)
        self._source = source
        self._key = key
        self._until = until
        self._lines = Lines(link, until)
        self._token, self._nonce, self._bulks = nonce(), "", 0

    def all(self, window: float) -> Flow:
        """Everything, in the order in which it is of use should time run out."""
        self._lines.say(greeting(self._key, "talk", self._token))
        answer, _, self._nonce = self._welcome().partition(" ")
        if answer != "ok":
            raise TalkError("another program listens there")
        self._lines.authenticate(self._key, self._nonce, self._token, listens=False)
        self._learn(peer=self._lines.hear(2.0))
        self._ping()
        window = min(max(window, _ROUND_TRIPS * (self.known.ms or 0.0) / 1e3), 4 * window)
        full = self._out(window)
        self._in(window)
        if 0.0 in (self.known.gbps_out, self.known.gbps_in) and self._any_size_passes(full):
            self._out(window)
            self._in(window)
        return self.known

    def _welcome(self) -> str:
        try:
            return self._lines.hear(2.0)
        except ClosedError as error:
            raise TalkError("it hangs up on us: another program, or another job, listens there") from error

    def _learn(self, **found: object) -> None:
        self.known = replace(self.known, **found)  # type: ignore[arg-type]

    def _ping(self) -> None:
        trips: list[tuple[int, float]] = []
        until = time.monotonic() + _PINGING
        while len(trips) < 3 or (len(trips) < _PINGS and time.monotonic() < until):
            left = time.time_ns()
            self._lines.say("ping")
            came, answered = map(int, self._numbers(self._lines.hear(), 2))
            back = time.time_ns()
            trips.append(((back - left) - (answered - came), ((came - left) + (answered - back)) / 2))
        self._learn(
            ms=statistics.median(trip for trip, _ in trips) / 1e6,
            clock_offset_ms=min(trips)[1] / 1e6,
        )

    def _numbers(self, line: str, count: int) -> list[str]:
        words = line.split(" ")
        if len(words) != count or not all(word.isdecimal() for word in words):
            raise TalkError("it speaks another protocol")
        return words

    def _out(self, window: float) -> int:
        """Send, and hear how fast it came. The bytes of the largest segment that both ends allow."""
        with self._bulk() as link:
            self._lines.say(f"sink {window}")
            busy = _bulk.fill(link, self._said, min(self._until, time.monotonic() + window + 2 * _bulk.PATIENCE))
            came = self._json()
            sent = _tcp.sent(link)
            full = (sent.mtu or _JUMBO) - _tcp.headers(link)
            _tcp.hang_up(link)
        gbps = _figure(came, "gbps")
        again = sent.retransmitted if gbps else None
        self._learn(gbps_out=gbps, retransmitted_out=again, segments_out=sent.segments, mtu=sent.mtu)
        self._learn(busy_out=max(busy, _share(came)))
        return full

    def _in(self, window: float) -> None:
        with self._bulk() as link:
            self._lines.say(f"source {window + 2 * _bulk.PATIENCE}")
            try:
                came = _bulk.empty(link, window, self._until)
            except OSError:
                came = _bulk.Came(0, 0.0, 0.0)
            self._lines.say("enough")
            report = self._json()
            _tcp.hang_up(link)
        sent = _tcp.Sent(_count(report, "segments"), _count(report, "lost"), _count(report, "mtu"))
        again = sent.retransmitted if came.gbps else None
        self._learn(gbps_in=came.gbps, retransmitted_in=again, segments_in=sent.segments)
        self._learn(busy_in=max(came.busy, _share(report)))

    def _any_size_passes(self, full: int) -> bool:
        """Nothing came one way or the other: is it the size of the packets?"""
        asked = sizes.Path(*self._where, self._key, self._source, (self.known.ms or 0.0) / 1e3)
        passes = sizes.largest(asked, full, self._until)
        if passes is None:
            self._learn(words=f"{self._where[0]}: small messages pass, data does not, whatever its size")
        elif passes < full + asked.headers:
            words = f"packets of more than {passes} bytes vanish on the way, and nothing says so"
            self._learn(stalled_above=passes, words=f"{self._where[0]}: {words}")
        else:
            return True
        return False

    def _bulk(self) -> socket.socket:
        link, reached = opened(*self._where, min(2.0, self._until - time.monotonic()), self._source)
        if not link:
            raise TalkError(f"a second connection to it failed: {reached.words}")
        try:
            lines = Lines(link, self._until)
            lines.say(greeting(self._key, "bulk", self._token, self._bulks, self._nonce))
            self._bulks += 1
            if lines.hear(2.0) != "ok":
                raise TalkError("it speaks another protocol")
        except BaseException:
            link.close()
            raise
        return link

    def _said(self) -> bool:
        return bool(_tcp.readable([self._lines.link]))

    def _json(self) -> dict[str, object]:
        try:
            report = json.loads(self._lines.hear())
        except ValueError:
            report = None
        if not isinstance(report, dict):
            raise TalkError("it speaks another protocol")
        return report


def _figure(report: dict[str, object], name: str) -> float:
    value = report.get(name)
    if not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise TalkError("it speaks another protocol")
    return float(value)


def _count(report: dict[str, object], name: str) -> int | None:
    value = report.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def _share(report: dict[str, object]) -> float:
    value = report.get("busy")
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= 1 else 0.0

"""What passes between this host and another: rate and losses each way, round trip, the size at which packets vanish."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.protocol import ClosedError, Lines, TalkError, greeting, nonce
from gpudoctor.cluster.links.tcp import Outcome, open_connection

FLOW_SECONDS = 5.0
"""The most that one measurement takes, whatever is wrong."""

WINDOW_SECONDS = 0.25
"""Seconds that each direction is measured; paths with a long round trip are given up to four times as much."""

_ASSUMED_MTU = 9000
"""The MTU that is assumed where the kernel does not say."""

_PINGS, _PING_SECONDS = 20, 0.25
_LEAST_ROUND_TRIPS = 12
"""Round trips that the window holds at least, where it may grow so long: TCP doubles its rate in each."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Result of measuring one link from the asking side; ``out`` is towards the other host. None where not measured.
    Rates are of one TCP stream. Above about 20 Gbit/s they depend on the CPUs as well: compare them with each other
    only.
    """

    outcome: Outcome
    words: str
    peer: str = ""
    """What the other side calls itself."""
    gbps_out: float | None = None
    gbps_in: float | None = None
    ms: float | None = None
    """Round trip of a small message: the quickest of some."""
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
        """The larger share of retransmitted segments of both directions; None if neither was measured."""
        shares = [share for share in (self.retransmitted_out, self.retransmitted_in) if share is not None]
        return max(shares) if shares else None


def measure(
    address: str, port: int, key: str, seconds: float = FLOW_SECONDS, window: float = WINDOW_SECONDS, source: str = ""
) -> Flow:
    """Measure the link to the `Server` at an address and port, within `seconds`; failures are in the result's
    `outcome`.

    `key` is the secret that the server was given, `window` the seconds per direction (up to four times as many where
    round trips are long), `source` as `tcp.bind_source` takes it (``""``: any).
    """
    begun = time.monotonic()
    link, reached = open_connection(address, port, min(seconds, 2.0), source, tcp.SMALL_SEGMENT)
    if not link:
        return Flow(reached.outcome, reached.words, seconds=time.monotonic() - begun)
    with link:
        asking = _Conversation(link, reached.address, port, key, begun + seconds, source)
        try:
            flow = asking.measure_all(window)
        except (TalkError, OSError) as error:
            flow = replace(asking.known, outcome="failed", words=f"{address} port {port}: {error}")
    return replace(flow, seconds=time.monotonic() - begun)


class _Conversation:
    """One conversation with a server. `known` is the Flow measured so far."""

    def __init__(self, link: socket.socket, address: str, port: int, key: str, until: float, source: str) -> None:
        """Prepare a conversation over the connection; `until` is the deadline (monotonic seconds)."""
        tcp.disable_nagle(link)
        self.known = Flow("connected", f"{address} port {port} answers")
        self._where = (address, port)
        self._source = source
        self._key = key
        self._until = until
        self._lines = Lines(link, until)
        self._token, self._nonce, self._bulks = nonce(), "", 0

    def measure_all(self, window: float) -> Flow:
        """Authenticate, measure round trip and both directions; where nothing arrived in one, find the largest packet
        that passes, and, if all sizes pass, measure both again.

        Raises `TalkError` or `OSError`; `known` then keeps the results so far.
        """
        self._lines.say(greeting(self._key, "talk", self._token))
        try:
            answer, _, self._nonce = self._lines.receive(2.0).partition(" ")
        except ClosedError as error:
            raise TalkError("it hangs up on us: another program, or another job, listens there") from error
        if answer != "ok":
            raise TalkError("another program listens there")
        self._lines.authenticate(self._key, self._nonce, self._token, listens=False)
        self._update(peer=self._lines.receive(2.0))
        self._ping()
        window = min(max(window, _LEAST_ROUND_TRIPS * (self.known.ms or 0.0) / 1e3), 4 * window)
        full = self._measure_out(window)
        self._measure_in(window)
        if 0.0 in (self.known.gbps_out, self.known.gbps_in) and self._all_sizes_pass(full):
            self._measure_out(window)
            self._measure_in(window)
        return self.known

    def _update(self, **found: object) -> None:
        """Replace fields of `known`, the result so far; the arguments are named like those of Flow."""
        self.known = replace(self.known, **found)  # type: ignore[arg-type]

    def _ping(self) -> None:
        """Record round trip and clock offset by the quickest of 3 to 20 small messages; raises `TalkError`."""
        trips: list[tuple[int, float]] = []
        until = time.monotonic() + _PING_SECONDS
        while len(trips) < 3 or (len(trips) < _PINGS and time.monotonic() < until):
            left = time.time_ns()
            self._lines.say("ping")
            words = self._lines.receive().split(" ")
            if len(words) != 2 or not all(word.isdecimal() for word in words):
                raise TalkError("it speaks another protocol")
            came, answered = map(int, words)
            back = time.time_ns()
            trips.append(((back - left) - (answered - came), ((came - left) + (answered - back)) / 2))
        quickest, offset = min(trips)
        self._update(ms=quickest / 1e6, clock_offset_ms=offset / 1e6)

    def _measure_out(self, window: float) -> int:
        """Send data for `window` seconds and record the receiver's rate, losses as our kernel counts them, and load;
        returns the bytes of the largest TCP segment that fits the MTU. Raises `TalkError`.
        """
        with self._open_bulk() as link:
            self._lines.say(f"sink {window}")
            until = min(self._until, time.monotonic() + window + 2 * tcp.FIRST_BYTE_SECONDS)
            busy = tcp.send_data(link, lambda: bool(tcp.readable([self._lines.link])), until)
            came = self._receive_json()
            sent = tcp.sent_counts(link)
            full = (sent.mtu or _ASSUMED_MTU) - tcp.header_bytes(link)
            tcp.hang_up(link)
        gbps = _rate_field(came, "gbps")
        again = sent.retransmitted if gbps else None
        self._update(gbps_out=gbps, retransmitted_out=again, segments_out=sent.segments, mtu=sent.mtu)
        self._update(busy_out=max(busy, _busy_field(came)))
        return full

    def _measure_in(self, window: float) -> None:
        """Receive data for `window` seconds, record rate (0 if none came), losses and load. Raises `TalkError`."""
        with self._open_bulk() as link:
            self._lines.say(f"source {window + 2 * tcp.FIRST_BYTE_SECONDS}")
            try:
                came = tcp.receive_data(link, window, self._until)
            except OSError:
                came = tcp.Received(0, 0.0, 0.0)
            self._lines.say("enough")
            report = self._receive_json()
            tcp.hang_up(link)
        sent = tcp.Sent(_count_field(report, "segments"), _count_field(report, "lost"), _count_field(report, "mtu"))
        again = sent.retransmitted if came.gbps else None
        self._update(gbps_in=came.gbps, retransmitted_in=again, segments_in=sent.segments)
        self._update(busy_in=max(came.busy, _busy_field(report)))

    def _all_sizes_pass(self, largest_segment: int) -> bool:
        """True if packets of every size pass, tried by connections of their own: one that fails counts as lost.

        Otherwise False, and recorded is the size in bytes above which they vanish, or, in words, that none pass.
        """
        asked = Route(*self._where, self._key, self._source, (self.known.ms or 0.0) / 1e3)
        passes = largest_packet(asked, largest_segment, self._until)
        if passes is None:
            self._update(words=f"{self._where[0]}: small messages pass, data does not, whatever its size")
        elif passes < largest_segment + asked.header_bytes:
            words = f"packets of more than {passes} bytes vanish on the way, and nothing says so"
            self._update(stalled_above=passes, words=f"{self._where[0]}: {words}")
        else:
            return True
        return False

    def _open_bulk(self) -> socket.socket:
        """A second connection to the server, for data of this conversation; raises `TalkError`."""
        link, reached = open_connection(*self._where, min(2.0, self._until - time.monotonic()), self._source)
        if not link:
            raise TalkError(f"a second connection to it failed: {reached.words}")
        try:
            lines = Lines(link, self._until)
            lines.say(greeting(self._key, "bulk", self._token, self._bulks, self._nonce))
            self._bulks += 1
            if lines.receive(2.0) != "ok":
                raise TalkError("it speaks another protocol")
        except BaseException:
            link.close()
            raise
        return link

    def _receive_json(self) -> dict[str, object]:
        """JSON object in the next line from the server; raises `TalkError` for anything else."""
        try:
            report = json.loads(self._lines.receive())
        except ValueError:
            report = None
        if not isinstance(report, dict):
            raise TalkError("it speaks another protocol")
        return report


def _rate_field(report: dict[str, object], name: str) -> float:
    """Number from a report, 0 to 1e6; raises `TalkError` for anything else."""
    value = report.get(name)
    if not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise TalkError("it speaks another protocol")
    return float(value)


def _count_field(report: dict[str, object], name: str) -> int | None:
    """Non-negative integer from a report; None for anything else."""
    value = report.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def _busy_field(report: dict[str, object]) -> float:
    """Field ``busy`` of a report, 0 to 1; 0.0 for anything else."""
    value = report.get("busy")
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= 1 else 0.0


# ---- The largest packet that passes a path on which larger ones vanish ----
# A black hole for path MTU discovery (RFC 2923).

USUAL_MTUS = (576, 1280, 1400, 1420, 1450, 1480, 1492, 1500, 2044, 4092, 8000, 8900, 9000)
"""MTUs that networks are set to, tunnels and InfiniBand included; tried first, each with its successor."""

_SIZES_AT_A_TIME = 12
_SEGMENTS_PER_SIZE = 3
_ECHO_SECONDS = 0.35
"""Seconds beside four round trips: more than the 0.2 s after which Linux sends again what was lost."""


@dataclass(frozen=True, slots=True)
class Route:
    """Address, port and key of the server, the local address to use, and the round trip in seconds."""

    address: str
    port: int
    key: str
    source: str
    round_trip: float

    @property
    def header_bytes(self) -> int:
        """Bytes of IP and TCP headers per packet, without TCP options: 40, or 60 for IPv6."""
        return 60 if ip_address(self.address).version == 6 else 40


def largest_packet(path: Route, largest_segment: int, until: float) -> int | None:
    """Bytes of the largest IP packet that passes both ways, by bisection; None if not even small ones pass.
    `largest_segment` is the upper bound in bytes, without headers. At the deadline `until` (monotonic) it is the
    largest known to pass.
    """
    low, high = tcp.SMALL_SEGMENT, largest_segment
    passed = _passing_sizes(path, [low, high], until)
    if low not in passed:
        return None
    if high in passed:
        return high + path.header_bytes
    tried = [size - path.header_bytes + more for size in USUAL_MTUS for more in (0, 1)]
    while high - low > 1 and time.monotonic() < until:
        inside = [size for size in tried if low < size < high]
        if not inside:
            steps = range(1, _SIZES_AT_A_TIME + 1)
            inside = sorted({low + (high - low) * step // (_SIZES_AT_A_TIME + 1) for step in steps} - {low})
        passed = _passing_sizes(path, inside, until)
        low, high = _narrowed(low, high, inside, passed)
        tried = []
    return low + path.header_bytes


def _narrowed(low: int, high: int, sizes: Iterable[int], passed: set[int]) -> tuple[int, int]:
    """(largest size known to pass, smallest that did not) after a trial of `sizes`; `high` stays if all passed."""
    for size in sorted(sizes):
        if size not in passed:
            return low, size
        low = size
    return low, high


def _passing_sizes(path: Route, sizes: Iterable[int], until: float) -> set[int]:
    """Those of the TCP segment sizes in bytes whose data came back in time from an echo, one connection each."""
    links: dict[socket.socket, tuple[int, int]] = {}
    with contextlib.ExitStack() as open_links:
        for size in sizes:
            link = _start_echo(path, size, until)
            if link:
                open_links.callback(tcp.hang_up, link)
                links[link] = (size, _SEGMENTS_PER_SIZE * size)
        return _sizes_returned(links, min(until, time.monotonic() + _ECHO_SECONDS + 4 * path.round_trip))


def _start_echo(path: Route, size: int, until: float) -> socket.socket | None:
    """Connection over which segments of the size were sent to be echoed; None if that failed."""
    link, _ = open_connection(path.address, path.port, until - time.monotonic(), path.source, size)
    if not link:
        return None
    try:
        lines = Lines(link, until)
        lines.say(greeting(path.key, "echo", secrets.token_hex(4), _SEGMENTS_PER_SIZE * size))
        if lines.receive(1.0) == "ok":
            link.setblocking(False)
            link.send(bytes(_SEGMENTS_PER_SIZE * size))
            return link
    except (TalkError, OSError):
        pass
    link.close()
    return None


def _sizes_returned(links: dict[socket.socket, tuple[int, int]], until: float) -> set[int]:
    """Sizes whose bytes came back completely before `until`; `links` maps a connection to (size, bytes expected)."""
    passed: set[int] = set()
    while links and (left := until - time.monotonic()) > 0:
        for link in tcp.readable(list(links), left):
            size, missing = links.pop(link)
            try:
                came = len(link.recv(1 << 16))
            except OSError:
                came = 0
            if came >= missing:
                passed.add(size)
            elif came:
                links[link] = (size, missing - came)
    return passed

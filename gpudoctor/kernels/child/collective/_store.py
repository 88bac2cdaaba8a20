"""The store of a job: rank 0's child serves it over TCP, all others are its clients; no wait without limit.

Ranks look again and again instead of waiting in the store: a torch before 2.1 does not forget a wait that was given
up, and its late answer is taken for that to the next question.

Beside it, `listening_addresses`: where the other sockets of this process listen.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import sys
import time
from datetime import timedelta
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .._kernel import CannotRun, release

if sys.platform != "win32":
    import fcntl

_TAKES, _TAKES_BY_LIBUV = (2, 1), (2, 8)
"""Releases of torch whose store takes a socket that listens already (pytorch/pytorch 103478 and 150215)."""
_BACKLOG = 4096
_RETRY_SECONDS = 0.2
"""Seconds between two attempts to reach a store that is not there yet."""
_ANSWER_SECONDS = 10.0
"""Seconds that the store has for one answer."""
_LOOKS_PER_SECOND = 20000.0
"""A second, of all ranks together: one server answers several times as many."""
_AFTER_FAILURE_SECONDS = 4.0
"""Seconds that ranks have to come once one has failed: those that wait in vain for the same do so about as long."""
_OTHERS_SECONDS_MORE = 3.0
"""Seconds that the others wait longer than rank 0, which says who did not come."""


def listening_socket(address: str, port: int) -> socket.socket:
    """A socket bound to `port` (0: any free one) of that address, of all addresses where it is a name; else `OSError`.

    Where the installed torch will take it over it listens at once: clients that come before torch is imported here
    wait in its queue. A torch that binds the port anew, at all addresses, must not have a queue before, for whoever
    waits in it is lost.
    """
    listener, where = _socket(address, port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not where[0] and listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(where)
    with contextlib.suppress(PackageNotFoundError):
        if release(installed("torch")) >= _TAKES:
            listener.listen(_BACKLOG)
    return listener


def _socket(address: str, port: int) -> Tuple[socket.socket, Any]:
    """An unbound TCP socket, and the address to bind it to: a numeric one, else all addresses (IPv6 where possible)."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        return socket.socket(family, kind), where
    except socket.gaierror:  # none, or a name, which others may take for another address than we do
        pass
    if socket.has_ipv6:
        with contextlib.suppress(OSError):  # IPv6 may be switched off in the kernel
            return socket.socket(socket.AF_INET6, socket.SOCK_STREAM), ("", port)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("", port)


class Store:
    """A rank's client of the job's store, which `listener` makes rank 0 serve; waits end by `until` (monotonic)."""

    def __init__(
        self,
        torch: Any,
        address: str,
        port: int,
        rank: int,
        world: int,
        until: float,
        listener: Optional[socket.socket],
    ) -> None:
        self.rank = rank
        self.world = world
        self._until = until
        self._missing = 0
        self.listens = port if listener else 0
        """The port of the store, where this rank serves it."""
        self._pause = max(0.01, world / _LOOKS_PER_SECOND)
        self.torchs = _serve(torch, port, listener, until) if listener else _connect(torch, address, port, until)

    def gather(self, value: Any, seconds: float) -> List[Any]:
        """On rank 0 the value of every rank, by rank, elsewhere []; raises `CannotRun` naming the ranks that lack."""
        self.torchs.set("value-%d" % self.rank, json.dumps(value))
        self.barrier("here", seconds)
        ranks_read = range(0 if self.rank else self.world)
        return [json.loads(self.torchs.get("value-%d" % rank).decode()) for rank in ranks_read]

    def from_rank_0(self, name: str, value: Any, seconds: float) -> Any:
        """On every rank the value that rank 0 gives under that name; the others' `value` is not used.

        Raises `CannotRun` if it does not come within `seconds`.
        """
        if not self.rank:
            self.torchs.set(name, json.dumps(value))
            self.torchs.add(name + "-said", 1)
        elif not self._wait_for_count(name + "-said", 1, seconds):
            raise CannotRun("rank 0 does not go on")
        return json.loads(self.torchs.get(name).decode())

    def barrier(self, name: str, seconds: float) -> None:
        """Wait until every rank has reached the point `name`.

        Raises `CannotRun` naming those that did not within `seconds`, or where the store does not answer.
        Once any rank reported a failure, the others are waited for no longer than `_AFTER_FAILURE_SECONDS`.
        """
        try:
            self.torchs.add("%s-%d" % (name, self.rank), 1)
            self.torchs.add(name, 1)
            missing = self.from_rank_0(
                name + "-missing", self._missing_ranks(name, seconds), seconds + _OTHERS_SECONDS_MORE
            )
        except RuntimeError:
            raise CannotRun("the store of rank 0 does not answer") from None
        if missing:
            raise CannotRun("%s did not come" % ranks(missing))

    def report_failure(self, name: str) -> None:
        """Tell the ranks that wait at the point `name` that this one failed on its way there."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add(name + "-failed", 1)

    def leave(self, seconds: float) -> None:
        """Report that this rank is done; rank 0, which serves the store, waits up to `seconds` for the others."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add("done", 1)
            if not self.rank:
                self._wait_for_count("done", self.world - self._missing, seconds)

    def _wait_for_count(
        self, key: str, count: int, seconds: float, limit: Callable[[], float] = lambda: float("inf")
    ) -> bool:
        """True once the counter `key` reaches `count`; False after `seconds`, or once `limit()` (monotonic) passes."""
        end = min(self._until, time.monotonic() + seconds)
        while self.torchs.add(key, 0) < count:
            if time.monotonic() >= min(end, limit()):
                return False
            time.sleep(self._pause)
        return True

    def _failure_deadline(self, name: str) -> Callable[[], float]:
        """A function: the moment until which to wait at point `name`; infinite until a rank reports a failure."""
        first: List[float] = []

        def limit() -> float:
            """Infinity, or the fixed moment that follows the first reported failure."""
            if not first and self.torchs.add(name + "-failed", 0):
                first.append(time.monotonic() + _AFTER_FAILURE_SECONDS)
            return first[0] if first else float("inf")

        return limit

    def _missing_ranks(self, name: str, seconds: float) -> List[int]:
        """On rank 0 the ranks that did not reach the point `name` within `seconds`; at once [] on other ranks.

        Once a rank failed, for `_AFTER_FAILURE_SECONDS` at most. Their number is kept: `leave` does not wait for them.
        """
        if self.rank or self._wait_for_count(name, self.world, seconds, self._failure_deadline(name)):
            return []
        missing = [rank for rank in range(self.world) if not self.torchs.add("%s-%d" % (name, rank), 0)]
        self._missing = len(missing)
        return missing


def ranks(numbers: List[int]) -> str:
    """Rank numbers for a message: ``rank 3``, ``ranks 3, 7``; after the first eight ``and 9 more``."""
    shown = ", ".join(map(str, numbers[:8]))
    more = " and %d more" % (len(numbers) - 8) if len(numbers) > 8 else ""
    return "%s %s%s" % ("rank" if len(numbers) == 1 else "ranks", shown, more)


def _serve(torch: Any, port: int, listener: socket.socket, until: float) -> Any:
    """torch's TCPStore that serves the job from this process on `listener`."""
    limit = timedelta(seconds=max(1.0, until - time.monotonic()))
    own = listener.getsockname()[0]
    options = {"is_master": True, "wait_for_workers": False, "timeout": limit, **_listener_options(torch, listener)}
    return torch.distributed.TCPStore("127.0.0.1" if own in ("::", "0.0.0.0") else own, port, **options)


def _listener_options(torch: Any, listener: socket.socket) -> Dict[str, Any]:
    """TCPStore's arguments for taking over the socket, which now listens; {}, and it is closed, if torch cannot."""
    torchs = release(str(torch.__version__))
    if torchs < _TAKES:
        listener.close()
        return {}
    listener.listen(_BACKLOG)
    taken = {"master_listen_fd": listener.fileno()}
    return dict(taken, use_libuv=False) if (2, 4) <= torchs < _TAKES_BY_LIBUV else taken


def _connect(torch: Any, address: str, port: int, until: float) -> Any:
    """A client of rank 0's store; tries until `until` (`time.monotonic`), then raises `RuntimeError`."""
    while True:
        limit = timedelta(seconds=max(1.0, min(_ANSWER_SECONDS, until - time.monotonic())))
        try:
            store = torch.distributed.TCPStore(address, port, wait_for_workers=False, timeout=limit)
            store.add("done", 0)  # whoever waited in a queue that was closed hears of it only now
        except RuntimeError:
            if time.monotonic() + _RETRY_SECONDS >= until:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return store


# ---- At which of this host's addresses this process listens: the interfaces that Gloo or NCCL chose ----


_LISTEN = "0A"
_ADDRESS_OF = 0x8915
"""ioctl SIOCGIFADDR."""


def listening_addresses(store: int) -> List[str]:
    """``eth0 10.0.0.1`` for each address this process listens at, sorted, without wildcards and the store's port."""
    ours = _own_socket_inodes()
    names = _interface_names()
    addresses = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for fields in _socket_table(table):
            at, _, port = fields[1].partition(":")
            address = _parse_address(at, family)
            if fields[3] != _LISTEN or fields[9] not in ours or int(port, 16) == store:
                continue
            if address not in ("0.0.0.0", "::"):
                addresses.append(("%s %s" % (names.get(address, ""), address)).strip())
    return sorted(set(addresses))


def _own_socket_inodes() -> Set[str]:
    """Inode numbers, as text, of this process's sockets; empty where /proc cannot be read."""
    inodes = set()
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink("/proc/self/fd/" + name)))
            except OSError:  # the one that lists
                continue
    except OSError:
        pass
    return inodes


def _socket_table(name: str) -> List[List[str]]:
    """The rows of /proc/self/net/`name`, split into fields, without the header; [] if unreadable."""
    try:
        with open("/proc/self/net/" + name) as file:
            return [line.split() for line in file][1:]
    except OSError:
        return []


def _parse_address(text: str, family: int) -> str:
    """The kernel's hexadecimal address (32-bit words in host byte order) as text; IPv4 in IPv6 becomes IPv4."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    shown = socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))
    return shown[7:] if shown.startswith("::ffff:") else shown


def _interface_names() -> Dict[str, str]:
    """Interface names by address: the first IPv4 address of each, and all of IPv6."""
    names: Dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if sys.platform != "win32":
                with contextlib.suppress(OSError):  # it has none
                    answer = fcntl.ioctl(probe, _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
                    names[socket.inet_ntoa(answer[20:24])] = name
    try:
        with open("/proc/self/net/if_inet6") as file:
            for line in file:
                fields = line.split()
                names[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[5]
    except OSError:
        pass
    return names

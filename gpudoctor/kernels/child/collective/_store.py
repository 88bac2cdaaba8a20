"""The store of a job: rank 0's child serves it over TCP, all others are its clients; no wait without limit.

Ranks look again and again instead of waiting in the store: a torch before 2.1 does not forget a wait that was given
up, and its late answer is taken for that to the next question.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from datetime import timedelta
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any, Callable, Dict, List, Optional, Tuple

from .._kernel import CannotRun

_TAKES, _TAKES_BY_LIBUV = (2, 1), (2, 8)
"""Releases of torch whose store takes a socket that listens already (pytorch/pytorch 103478 and 150215)."""
_QUEUE = 4096
_AGAIN = 0.2
"""Seconds between two attempts to reach a store that is not there yet."""
_PATIENCE = 10.0
"""Seconds that the store has for one answer."""
_LOOKS = 20000.0
"""A second, of all ranks together: one server answers several times as many."""
_AFTER = 4.0
"""Seconds that ranks have to come once one has failed: those that wait in vain for the same do so about as long."""
_LATER = 3.0
"""Seconds that the others wait longer than rank 0, which says who did not come."""


def listening(address: str, port: int) -> socket.socket:
    """A socket at `port` of that address alone, of all addresses of this host where it is none; 0 is any free port.

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
        if _release(installed("torch")) >= _TAKES:
            listener.listen(_QUEUE)
    return listener


def _socket(address: str, port: int) -> Tuple[socket.socket, Any]:
    """Not bound yet, and where to bind it."""
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
    """The job's store, seen from one rank. Every wait ends at `until`, of `time.monotonic`, at the latest."""

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
        self._pause = max(0.01, world / _LOOKS)
        self.torchs = _served(torch, port, listener, until) if listener else _reached(torch, address, port, until)

    def gathered(self, value: Any, seconds: float) -> List[Any]:
        """To rank 0 what each gave, by rank, once all have. Raises `CannotRun` with the ranks that did not come."""
        self.torchs.set("value-%d" % self.rank, json.dumps(value))
        self.meet("here", seconds)
        heard = range(0 if self.rank else self.world)
        return [json.loads(self.torchs.get("value-%d" % rank).decode()) for rank in heard]

    def told(self, name: str, value: Any, seconds: float) -> Any:
        """What rank 0 gives under that name, to every rank."""
        if not self.rank:
            self.torchs.set(name, json.dumps(value))
            self.torchs.add(name + "-said", 1)
        elif not self._soon(name + "-said", 1, seconds):
            raise CannotRun("rank 0 does not go on")
        return json.loads(self.torchs.get(name).decode())

    def meet(self, name: str, seconds: float) -> None:
        """Wait until every rank came to the point of that name. Raises `CannotRun` with who did not, by rank 0's word.

        Once any rank told that it failed on its way there, the others are waited for no longer than `_AFTER`.
        """
        try:
            self.torchs.add("%s-%d" % (name, self.rank), 1)
            self.torchs.add(name, 1)
            missing = self.told(name + "-missing", self._absent(name, seconds), seconds + _LATER)
        except RuntimeError:
            raise CannotRun("the store of rank 0 does not answer") from None
        if missing:
            raise CannotRun("%s did not come" % ranks(missing))

    def failed(self, name: str) -> None:
        """Tell all ranks that are still there that this one failed on its way to the point of that name."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add(name + "-failed", 1)

    def leave(self, seconds: float) -> None:
        """Say that this rank is done. Rank 0 stays until all are, and no longer than that: the store goes with it."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add("done", 1)
            if not self.rank:
                self._soon("done", self.world - self._missing, seconds)

    def _soon(self, key: str, count: int, seconds: float, limit: Callable[[], float] = lambda: float("inf")) -> bool:
        """Whether that counter comes to `count` in so many seconds, or before the moment that `limit` then says."""
        end = min(self._until, time.monotonic() + seconds)
        while self.torchs.add(key, 0) < count:
            if time.monotonic() >= min(end, limit()):
                return False
            time.sleep(self._pause)
        return True

    def _hurried(self, name: str) -> Callable[[], float]:
        """The moment until which ranks are waited for, once any told of a failure."""
        first: List[float] = []

        def limit() -> float:
            if not first and self.torchs.add(name + "-failed", 0):
                first.append(time.monotonic() + _AFTER)
            return first[0] if first else float("inf")

        return limit

    def _absent(self, name: str, seconds: float) -> List[int]:
        """Rank 0 alone waits for all, and finds those that did not come."""
        if self.rank or self._soon(name, self.world, seconds, self._hurried(name)):
            return []
        found = [rank for rank in range(self.world) if not self.torchs.add("%s-%d" % (name, rank), 0)]
        self._missing = len(found)
        return found


def ranks(numbers: List[int]) -> str:
    """``rank 3``, ``ranks 3, 7 and 9 more``."""
    shown = ", ".join(map(str, numbers[:8]))
    more = " and %d more" % (len(numbers) - 8) if len(numbers) > 8 else ""
    return "%s %s%s" % ("rank" if len(numbers) == 1 else "ranks", shown, more)


def _served(torch: Any, port: int, listener: socket.socket, until: float) -> Any:
    limit = timedelta(seconds=max(1.0, until - time.monotonic()))
    own = listener.getsockname()[0]
    options = {"is_master": True, "wait_for_workers": False, "timeout": limit, **_by(torch, listener)}
    return torch.distributed.TCPStore("127.0.0.1" if own in ("::", "0.0.0.0") else own, port, **options)


def _by(torch: Any, listener: socket.socket) -> Dict[str, Any]:
    """How torch is given that socket; one that does not take it binds the port anew."""
    release = _release(str(torch.__version__))
    if release < _TAKES:
        listener.close()
        return {}
    listener.listen(_QUEUE)
    taken = {"master_listen_fd": listener.fileno()}
    return dict(taken, use_libuv=False) if (2, 4) <= release < _TAKES_BY_LIBUV else taken


def _release(version: str) -> Tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _reached(torch: Any, address: str, port: int, until: float) -> Any:
    while True:
        limit = timedelta(seconds=max(1.0, min(_PATIENCE, until - time.monotonic())))
        try:
            store = torch.distributed.TCPStore(address, port, wait_for_workers=False, timeout=limit)
            store.add("done", 0)  # whoever waited in a queue that was closed hears of it only now
        except RuntimeError:
            if time.monotonic() + _AGAIN >= until:
                raise
            time.sleep(_AGAIN)
        else:
            return store

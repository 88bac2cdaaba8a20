"""The store of a job: rank 0's child serves it over TCP, all others are its clients; no wait without limit."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from datetime import timedelta
from typing import Any, Dict, List, Optional

from .._kernel import CannotRun

_AGAIN = 0.2
"""Seconds between two attempts to reach a store that is not there yet."""
_LOOK = 1.0
"""Seconds between two looks whether a rank told of a failure."""
_AFTER = 4.0
"""Seconds that ranks have to come once one has failed: those that wait in vain for the same do so about as long."""
_LATER = 2.0
"""Seconds that the others wait longer than rank 0, which says who did not come."""
_WAITED = re.compile(r"time(?:d )?-?out", re.IGNORECASE)
_PATIENCE = 10.0
"""Seconds of one attempt."""


def listening(port: int) -> socket.socket:
    """A socket of all addresses of this host that listens at `port`, any where that is 0.

    Clients that come before torch is imported here wait in its queue.
    """
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # IPv6 may be switched off in the kernel
        family, listener = socket.AF_INET, socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", port))
    listener.listen(4096)
    return listener


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
        self.torchs = _served(torch, port, listener, until) if listener else _reached(torch, address, port, until)

    def gathered(self, value: Any, seconds: float) -> List[Any]:
        """What each rank gave, by rank, once all have. Raises `CannotRun` with the ranks that did not come."""
        self.torchs.set("here-%d" % self.rank, json.dumps(value))
        if self.rank:
            return self._taken(seconds + _PATIENCE)
        keys = ["here-%d" % rank for rank in range(self.world)]
        try:
            self.torchs.wait(keys, self._limit(seconds))
            table = {"values": [json.loads(self.torchs.get(key).decode()) for key in keys]}
        except RuntimeError:
            table = {"missing": [rank for rank, key in enumerate(keys) if not self.torchs.check([key])]}
        self.torchs.set("table", json.dumps(table))
        return self._taken(_PATIENCE)

    def told(self, name: str, value: Any, seconds: float) -> Any:
        """What rank 0 gives under that name, to every rank."""
        if not self.rank:
            self.torchs.set(name, json.dumps(value))
            return json.loads(json.dumps(value))
        self.torchs.wait([name], self._limit(seconds))
        return json.loads(self.torchs.get(name).decode())

    def leave(self, seconds: float) -> None:
        """Say that this rank is done. Rank 0 stays until all are, and no longer than that: the store goes with it."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add("done", 1)
            until = min(self._until, time.monotonic() + seconds)
            while (
                not self.rank and self.torchs.add("done", 0) < self.world - self._missing and time.monotonic() < until
            ):
                time.sleep(0.02)

    def meet(self, name: str, seconds: float) -> None:
        """Wait until every rank came to the point of that name. Raises `CannotRun` with who did not, by rank 0's word.

        Once any rank told of a failure, those that did not fail with it are waited for no longer than `_AFTER`.
        """
        self.torchs.set("%s-%d" % (name, self.rank), "")
        if self.torchs.add(name, 1) == self.world:
            self.torchs.set(name + "-over", "")
        said = self._over(name, seconds if not self.rank else seconds + _LATER)
        if said:
            raise CannotRun(said)

    def _over(self, name: str, seconds: float) -> str:
        """Why not all came; empty where all did."""
        end = min(self._until, time.monotonic() + seconds)
        hurried = False
        while time.monotonic() < end:
            try:
                self.torchs.wait([name + "-over"], timedelta(seconds=max(0.01, min(_LOOK, end - time.monotonic()))))
                return str(self.torchs.get(name + "-over").decode())
            except RuntimeError as error:
                if not _WAITED.search(str(error)):
                    return "the store of rank 0 is gone"
            if not hurried and self.torchs.add("failed", 0):
                hurried = True
                end = min(end, time.monotonic() + (_AFTER if not self.rank else _AFTER + _LATER))
        if self.rank:
            return "rank 0 does not say who came"
        missing = [rank for rank in range(self.world) if not self.torchs.check(["%s-%d" % (name, rank)])]
        self._missing = len(missing)
        self.torchs.set(name + "-over", "%s did not come" % ranks(missing) if missing else "")
        return str(self.torchs.get(name + "-over").decode())

    def failed(self) -> None:
        """Tell all ranks that are still there that something failed on this one."""
        with contextlib.suppress(RuntimeError):
            self.torchs.add("failed", 1)

    def _taken(self, seconds: float) -> List[Any]:
        try:
            self.torchs.wait(["table"], self._limit(seconds))
        except RuntimeError:
            raise CannotRun("rank 0 did not say who is there") from None
        table = json.loads(self.torchs.get("table").decode())
        if "missing" in table:
            raise CannotRun("%s did not come" % ranks(table["missing"]))
        values: List[Any] = table["values"]
        return values

    def _limit(self, seconds: float) -> timedelta:
        return timedelta(seconds=max(0.1, min(seconds, self._until - time.monotonic())))


def ranks(numbers: List[int]) -> str:
    """``rank 3``, ``ranks 3, 7 and 9 more``."""
    shown = ", ".join(map(str, numbers[:8]))
    more = " and %d more" % (len(numbers) - 8) if len(numbers) > 8 else ""
    return "%s %s%s" % ("rank" if len(numbers) == 1 else "ranks", shown, more)


def _served(torch: Any, port: int, listener: socket.socket, until: float) -> Any:
    limit = timedelta(seconds=max(1.0, until - time.monotonic()))
    options = {"is_master": True, "wait_for_workers": False, "timeout": limit, **_by(torch, listener)}
    return torch.distributed.TCPStore("127.0.0.1", port, **options)


def _by(torch: Any, listener: socket.socket) -> Dict[str, Any]:
    """How torch is given that socket: from 2.1 on it takes it, with libuv from 2.8; an older one binds anew."""
    release = tuple(map(int, re.findall(r"\d+", str(torch.__version__))[:2]))
    if release < (2, 1):
        listener.close()
        return {}
    taken = {"master_listen_fd": listener.fileno()}
    return dict(taken, use_libuv=False) if (2, 4) <= release < (2, 8) else taken


def _reached(torch: Any, address: str, port: int, until: float) -> Any:
    while True:
        left = max(1.0, until - time.monotonic())
        try:
            return torch.distributed.TCPStore(
                address, port, wait_for_workers=False, timeout=timedelta(seconds=min(left, _PATIENCE))
            )
        except RuntimeError:
            if time.monotonic() + _AGAIN >= until:
                raise
            time.sleep(_AGAIN)

"""Ranks that only say the right words: as many as wanted, in one thread, over loopback."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from gpudoctor.cluster.links.flow import Flow
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.meeting import BEAT_SECONDS, authenticate_to_coordinator
from gpudoctor.cluster.preflight.wire import GoneError, Line

SOUND = asdict(
    Flow(
        "connected",
        "",
        gbps_out=10.0,
        gbps_in=10.0,
        ms=0.1,
        retransmitted_out=0.0,
        retransmitted_in=0.0,
        segments_out=1000,
        segments_in=1000,
        mtu=1500,
        clock_offset_ms=0.0,
    )
)


@contextmanager
def beside(act: Callable[[], Any]) -> Iterator[list[Any]]:
    """What happens at the same time, and what came of it."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(act())
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield came
    finally:
        thread.join(60)


class Players:
    """Ranks 0 to `count` - 1, `each` on one machine, who play along until they hear the verdict; a context manager.

    `document` gives that of a machine by its name.
    """

    def __init__(self, port: int, job: str, count: int, each: int, document: Callable[[str], str]) -> None:
        self.verdicts: dict[int, Any] = {}
        self._lines: dict[int, Line] = {}
        self._where = ("127.0.0.1", port)
        self._job = job
        self._count = count
        self._each = each
        self._document = document
        self._beaten = time.monotonic()
        self._thread = threading.Thread(target=self._play, name="players", daemon=True)

    def __enter__(self) -> Players:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(600)

    def _play(self) -> None:
        with selectors.DefaultSelector() as messages:
            for rank in range(self._count):
                self._lines[rank] = line = self._connect(rank)
                hello = self._hello(rank)
                line.send(**hello)
                if hello["leads"]:
                    line.send(tell={"document": json.loads(self._document(hello["host"]))})
                messages.register(line.socket, selectors.EVENT_READ, rank)
                self._beat(messages)
            while messages.get_map():
                self._beat(messages)
                for key, _ in messages.select(BEAT_SECONDS):
                    if not self._hear(self._lines[key.data], key.data):
                        messages.unregister(key.fileobj)
                        self._lines[key.data].close()

    def _connect(self, rank: int) -> Line:
        """The rank's line to the coordinator; tried again, as ranks do, where it is dropped for a stranger."""
        while True:
            line = Line(socket.create_connection(self._where, 600))
            try:
                authenticate_to_coordinator(line, Place("env", rank, self._count, job=self._job), 600)
            except GoneError:
                line.close()
            else:
                return line

    def _beat(self, messages: selectors.BaseSelector) -> None:
        """Each says once a second that it lives, as ranks do."""
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            for key in messages.get_map().values():
                with suppress(OSError):  # it has told its verdict and gone
                    self._lines[key.data].send(step="playing along")

    def _hello(self, rank: int) -> dict[str, Any]:
        number, local = divmod(rank, self._each)
        listener = {"used_by": ["nccl", "gloo"], "address": f"10.0.0.{number}", "port": 4000, "interface": "eth0"}
        return {
            "rank": rank,
            "host": f"n{number}",
            "world": self._count,
            "local_rank": local,
            "leads": local == 0,
            "listeners": [listener] if local == 0 else [],
        }

    def _hear(self, line: Line, rank: int) -> bool:
        """Whether there may be more to hear."""
        try:
            messages = line.receive()
        except GoneError:
            return False
        for message in messages:
            if "verdict" in message:
                self.verdicts[rank] = message
                return False
            if message.get("task") == "reach":
                reached = {"outcome": "connected", "words": "", "ms": 0.1}
                line.send(answer=message["id"], links=[reached] * len(message["to"]))
            elif message.get("task") == "flow":
                line.send(answer=message["id"], flow=SOUND)
        return True

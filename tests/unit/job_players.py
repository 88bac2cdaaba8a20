"""Ranks that only say the right words: as many as wanted, in one thread, over loopback."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any

from gpudoctor.job.meeting import BEAT, greeting
from gpudoctor.links.flow import Flow

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


class Players:
    """Ranks 0 to `count` - 1, `each` on one machine, who play along until they hear the verdict; a context manager.

    `document` gives that of a machine by its name.
    """

    def __init__(self, port: int, job: str, count: int, each: int, document: Callable[[str], str]) -> None:
        self.verdicts: dict[int, Any] = {}
        self._rest: dict[int, bytes] = dict.fromkeys(range(count), b"")
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(240)

    def _play(self) -> None:
        with selectors.DefaultSelector() as heard:
            for rank in range(self._count):
                link = socket.create_connection(self._where, 60)
                hello = self._hello(rank)
                self._say(link, **hello)
                if hello["leads"]:
                    self._say(link, tell={"document": json.loads(self._document(hello["host"]))})
                heard.register(link, selectors.EVENT_READ, rank)
                self._beat(heard)
            while heard.get_map():
                self._beat(heard)
                for key, _ in heard.select(BEAT):
                    link = key.fileobj  # type: ignore[assignment]
                    if not self._hear(link, key.data):
                        heard.unregister(link)
                        link.close()

    def _beat(self, heard: selectors.BaseSelector) -> None:
        """Each says once a second that it lives, as ranks do."""
        if time.monotonic() - self._beaten > BEAT:
            self._beaten = time.monotonic()
            for key in heard.get_map().values():
                with suppress(OSError):  # it has told its verdict and gone
                    self._say(key.fileobj, step="playing along")  # type: ignore[arg-type]

    def _hello(self, rank: int) -> dict[str, Any]:
        number, local = divmod(rank, self._each)
        ear = {"used_by": ["nccl", "gloo"], "address": f"10.0.0.{number}", "port": 4000, "interface": "eth0"}
        return {
            "job": greeting(self._job)["job"],
            "rank": rank,
            "host": f"n{number}",
            "world": self._count,
            "local_rank": local,
            "leads": local == 0,
            "ears": [ear] if local == 0 else [],
        }

    def _hear(self, link: socket.socket, rank: int) -> bool:
        """Whether there may be more to hear."""
        got = link.recv(1 << 16)
        *lines, self._rest[rank] = (self._rest[rank] + got).split(b"\n")
        for said in map(json.loads, lines):
            if "verdict" in said:
                self.verdicts[rank] = said
                return False
            if said.get("task") == "reach":
                reached = {"outcome": "connected", "words": "", "ms": 0.1}
                self._say(link, answer=said["id"], links=[reached] * len(said["to"]))
            elif said.get("task") == "flow":
                self._say(link, answer=said["id"], flow=SOUND)
        return bool(got)

    @staticmethod
    def _say(link: socket.socket, **what: Any) -> None:
        link.sendall(json.dumps(what).encode() + b"\n")

"""A rank's job of the collective rung with a fault in it: asked for by ``{"fault": [rank, "die", "broadcast"]}``."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from gpudoctor_kernels import collective  # type: ignore[import-not-found]


def rank(me: Any) -> Any:
    """Dies, hangs, raises, or gets one wrong bit, when it comes to that step."""
    guilty, what, when = me.ask["fault"]
    said = me.step

    def step(words: str) -> None:
        said(words)
        if me.rank == guilty and words.startswith(when):
            _do(what)

    me.step = step
    return collective.rank(me)


def _do(what: str) -> None:
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(60)
    if what == "raise":
        raise RuntimeError("bad link")
    if what == "flip":
        _flip_broadcast()


def _flip_broadcast() -> None:
    """The lowest bit of the eighth value that this rank gets, the other way round."""
    right = collective.OPERATIONS["broadcast"]

    def buffers(group: Any, numbers: Any) -> Any:
        made = right.buffers(group, numbers)

        def call() -> None:
            made.call()
            made.got.view(group.torch.int32)[7] ^= 1

        return made._replace(call=call)

    collective.OPERATIONS["broadcast"] = right._replace(buffers=buffers)

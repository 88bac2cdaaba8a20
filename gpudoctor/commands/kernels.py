"""The micro-kernels: ``bench``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import BROKEN, INTERRUPTED, SOUND, UNKNOWN
from gpudoctor.commands.sharing import shared

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.measurement import Measurements

    Tell = Callable[[Measurements], None]

_CODES = {"sound": SOUND, "impaired": SOUND, "broken": BROKEN, "unknown": UNKNOWN}


def bench(options: argparse.Namespace) -> int:
    from gpudoctor.doctor import benching
    from gpudoctor.views import bench
    from gpudoctor.views._terminal import style_of
    from gpudoctor.views.progress import measuring_on

    if options.list:
        from gpudoctor.kernels import specs

        print(bench.listed([one.kernel for one in specs.chosen(options.kernel)]))
        return SOUND
    with measuring_on(sys.stderr) as tell, _stopped_by_ctrl_c(tell) as (hear, stop):
        made = benching.bench(options.kernel, options.device, options.python, hear, stop)
    made = shared(made, options)
    print(bench.document(made) if options.json else bench.render(made, style_of(sys.stdout)))
    return INTERRUPTED if stop.is_set() else _CODES[made.verdict]


@contextmanager
def _stopped_by_ctrl_c(tell: Tell) -> Iterator[tuple[Tell, threading.Event]]:
    """Once something is measured, the first Ctrl-C sets the event, so that the rest can be shown; else it ends us."""
    from gpudoctor.commands.stopping import stopping

    begun, stop = threading.Event(), threading.Event()

    def hear(found: Measurements) -> None:
        begun.set()
        tell(found)

    with stopping(stop, lambda: not begun.is_set()):
        yield hear, stop

"""Watching a command while it runs, in a thread that costs next to nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoctor.app.beside.hanging import Used
from gpudoctor.core.fact import Fact, Known, Rows, Unread, number_of
from gpudoctor.target import child

if sys.platform != "win32":
    from gpudoctor.target.beside.command import is_within

if TYPE_CHECKING and sys.platform != "win32":
    from gpudoctor.app.beside.gpus import GPUUse
    from gpudoctor.app.beside.ranks import Ranks
    from gpudoctor.core.sample import Sample
    from gpudoctor.probes._job.around import Around
    from gpudoctor.probes._job.processes import Tree

assert sys.platform != "win32"  # what follows is POSIX's alone

_FIRST, _PAUSE = 0.1, 1.0
"""Seconds between the first looks, doubled from one to the next, and between all later ones."""
_PRICE = 300
"""How many times as long as a look took at least passes until the next: a job of thousands is looked at less often."""
_GPU_PAUSE = 1.0
_GPU_AFTER = 1.0
"""Seconds after which the GPUs are watched: a command that is over by then used them for nothing."""
_LAST = 1.0
"""Seconds for the last look; where it takes longer (a hung file system), it is left out."""


class Watch:
    """Watches one command from its start to `stop`; nothing here may raise into whoever waits for the command."""

    def __init__(
        self, pid: int, ranks: Ranks | None = None, on_sample: Callable[[Sample], None] = lambda _: None
    ) -> None:
        self._pid = pid
        self._ranks = ranks
        self._samples_gpus = not ranks or ranks.samples_gpus
        self._on_sample = on_sample
        self._stop = threading.Event()
        self._tree: Tree | None = None
        self._around: Around | None = None
        self._gpus: GPUUse | None = None
        self._end_gpus: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="beside", daemon=True)

    def start(self) -> None:
        """Begin; where no thread may be started, nothing is seen."""
        try:
            self._thread.start()
        except RuntimeError:
            self._stop.set()

    def stop(self) -> None:
        """Look for the last time, and end."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join(_LAST)
        self._end_gpus()

    @property
    def used(self) -> Used:
        """What the processes that live have used."""
        return Used(*(self._tree.living if self._tree else (0.0, frozenset())))

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts ``run.*`` that were seen."""
        facts: dict[str, Fact] = dict(self._around.facts()) if self._around else {}
        if self._tree and self._tree.most:
            facts["run.memory_peak_mib"] = Known(self._tree.peak >> 20, "/proc, while it ran")
            facts["run.processes"] = Known(self._tree.most, "/proc, while it ran")
            facts.update(self._tree.loading.facts())
            own, processors = self._tree.loading.processors, number_of(facts.get("run.processors"))
            if own and (processors is None or own < processors):
                facts["run.processors"] = Known(float(own), "sched_getaffinity of a DataLoader worker")
        if self._gpus and self._samples_gpus:
            facts.update(self._gpus.facts(self._tree.pids if self._tree else ()))
        return facts

    @property
    def groups(self) -> dict[str, Rows]:
        """The rows of its processes and GPUs."""
        groups: dict[str, Rows] = {}
        if self._tree:
            groups["run_process"] = self._tree.rows()
        if not self._samples_gpus:
            groups["run_gpu"] = Unread("another rank of this host watches the GPUs")
        elif self._gpus:
            groups["run_gpu"] = self._gpus.rows(self._tree.pids if self._tree else ())
        return groups

    @property
    def alarming(self) -> bool:
        """Whether the counters gained what a sound run does not gain."""
        facts = self.facts
        kills = facts.get("run.oom_kills")
        killed = isinstance(kills, Known) and bool(kills.value)
        return killed or bool(self._gpus and self._gpus.gained_errors)

    def _run(self) -> None:
        """Look again and again; the thread's own processor time sets how often."""
        from gpudoctor.probes._job.around import Around
        from gpudoctor.probes._job.processes import Tree
        from gpudoctor.target.local import Local

        began = time.monotonic()
        self._tree = tree = Tree(self._pid, without=child.begun)
        tree.look()
        self._around = around = Around.here(Local("quick"), os.getcwd())  # noqa: PTH109 - as text
        pause = _FIRST
        while True:
            cost = time.thread_time()
            over = self._stop.is_set()
            tree.look()
            around.look()
            cost = time.thread_time() - cost
            if over:
                return
            if self._gpus is None and time.monotonic() - began > _GPU_AFTER:
                self._watch_gpus()
            self._stop.wait(max(pause, cost * _PRICE))
            pause = min(_PAUSE, pause * 2)

    def _watch_gpus(self) -> None:
        """Have NVML sampled by a child, where there is a GPU."""
        from gpudoctor.app import live
        from gpudoctor.app.beside.gpus import GPUUse

        ranks = self._ranks
        use = GPUUse(lambda pid: is_within(pid, ranks.pids())) if ranks else GPUUse()
        self._gpus = use

        def on_sample(sample: Sample) -> None:
            """Take in one sample, and pass it on."""
            use.add(sample)
            self._on_sample(sample)

        if self._samples_gpus and live.has_gpus():
            self._end_gpus = live.watch(on_sample, interval=_GPU_PAUSE)

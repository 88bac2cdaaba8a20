"""A small engine that keeps the contract of `Apply` and `Undo`: it runs real commands and keeps a real journal."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.core import run as runs
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Began, Ended, Event, Judged, Printed, Run, State, Stop

Tell = Callable[[Run], None]
Wanted = Callable[[], Stop]


@dataclass
class Engine:
    """Runs steps and writes ``RUN.json`` into `folder`. `found` tells whether a rule still finds something."""

    folder: Path
    found: Callable[[str], bool] = lambda _: False
    backwards: Callable[[Run], Plan] | None = None
    """The plan that takes a run back."""
    begun: list[str] = field(default_factory=list)

    def apply(self, plan: Plan, tell: Tell, wanted: Wanted) -> Run:
        """By the contract."""
        return self._run(Run.of(plan, f"run-{len(self.begun) + 1}", "2026-11-21T03:12:00Z"), tell, wanted)

    def undo(self, run: Run, tell: Tell, wanted: Wanted) -> Run:
        """By the contract."""
        assert self.backwards
        back = Run.of(self.backwards(run), f"run-{len(self.begun) + 1}", "2026-11-21T03:20:00Z", undoes=run.id)
        return self._run(back, tell, wanted)

    def journal(self, name: str) -> Run:
        """What is on disk of that run."""
        return runs.from_json(json.loads((self.folder / f"{name}.json").read_text("utf-8")))

    def _run(self, run: Run, tell: Tell, wanted: Wanted) -> Run:
        self.begun.append(run.id)

        def now(event: Event, write: bool = False) -> None:
            nonlocal run
            run = run.after(event)
            if write:
                self._write(run)
            tell(run)

        for step in run.plan.chosen:
            if wanted() != "go on":
                break
            now(Began(step.id), write=True)
            state = self._judge(step, now) if step.verify else self._command(step, now, wanted)
            if state != "done":
                break
        run = run.ended()
        self._write(run)
        tell(run)
        return run

    def _write(self, run: Run) -> None:
        part = self.folder / f"{run.id}.part"
        part.write_text(json.dumps(run.to_json()), "utf-8")
        part.replace(self.folder / f"{run.id}.json")

    def _judge(self, step: PlanStep, now: Callable[..., None]) -> State:
        found = self.found(step.verify)
        now(Judged(step.id, step.verify, found))
        state: State = "failed" if found else "done"
        now(Ended(step.id, state, 0.0), write=True)
        return state

    def _command(self, step: PlanStep, now: Callable[..., None], wanted: Wanted) -> State:
        began = time.monotonic()
        child = subprocess.Popen(step.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        ended: list[bool] = []

        def watch() -> None:
            while child.poll() is None:
                if wanted() == "now":
                    ended.append(True)
                    child.kill()
                time.sleep(0.02)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert child.stdout
        with child.stdout as pipe:
            while piece := pipe.read(4096):
                now(Printed(step.id, piece.decode("utf-8", "replace")))
        status = child.wait()
        watcher.join()
        state: State = "stopped" if ended else "failed" if status else "done"
        changed = () if status else tuple(f"{item.name} {item.before} → {item.after}" for item in step.changes)
        now(Ended(step.id, state, time.monotonic() - began, status, changed), write=True)
        return state

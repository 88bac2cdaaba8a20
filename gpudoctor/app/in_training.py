"""From within a training script: ``gpudoctor.preflight()`` before the process group is made, ``gpudoctor.watch()``."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from gpudoctor.app import pipeline
from gpudoctor.cluster.preflight import JobOptions
from gpudoctor.cluster.preflight.run import Checked, run
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.views import job, text
from gpudoctor.views._terminal import style_of

if sys.platform != "win32":
    import resource

    from gpudoctor.app.monitoring.ranks import Ranks
    from gpudoctor.app.monitoring.run_diagnosis import Seen, conclude, record_own_end
    from gpudoctor.app.monitoring.watching import Watch, resources_before
    from gpudoctor.target.passthrough.command import Ended


class NoGoError(DoctorError):
    """Raised if the job must not start. `checked` has the verdict and, on one rank, the whole diagnosis."""

    def __init__(self, checked: Checked) -> None:
        findings = checked.diagnosis.findings if checked.diagnosis else ()
        why = findings[0].title if findings else checked.words or "the reason is in the report of the first rank"
        super().__init__(f"{checked.verdict}: {why}")
        self.checked = checked


def preflight(
    level: str = "quick",
    network: bool = False,
    budget: float | None = None,
    rules: Sequence[Path] = (),
    raises: bool = True,
    expect: str | None = None,
) -> Checked:
    """Check this rank's job together with all other ranks, which must call it, too; a single process checks itself.

    Ranks and addresses are those that torchrun, srun or mpirun set, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    Call it before ``init_process_group``, on every rank, with the same arguments. `network` leaves the machines' own
    checks out. `expect` is a profile that each machine is held to. `budget` is the most seconds that it takes; a
    process that hangs beyond it is ended with code 3. Unless the verdict is go, every rank raises `NoGoError`, and one
    of them writes the report to standard error; with `raises` false the caller reads `Checked.verdict`: go, no-go or
    unknown. Raises `UsageError` for an environment that contradicts itself.
    """
    checked = run(JobOptions(level, sys.executable, rules, budget, network, expect), pipeline.of_rank, _environ())
    if checked.ended:
        raise checked.ended
    if checked.verdict != "go" and raises:
        if checked.diagnosis:
            print(text.render(checked.diagnosis, style_of(sys.stderr)), file=sys.stderr)
        raise NoGoError(checked)
    return checked


def _environ() -> Mapping[str, str] | None:
    """The environment with TORCHELASTIC_USE_AGENT_STORE=True if the process group exists already, as in Ray Train's
    workers, where MASTER_PORT is taken by its store; None (use ours) if it does not.
    """
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "True"}


# ---- Watching a training from within ----


class Watching:
    """What ``gpudoctor run`` does beside a command, for the time of a ``with`` block: see `watch`."""

    def __init__(self, rules: Sequence[Path] = ()) -> None:
        self._rules = rules
        self._began: tuple[float, float] | None = None
        self.diagnosis: Diagnosis | None = None
        """What was found, once it has ended."""

    def __enter__(self) -> Watching:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def start(self) -> None:
        """Begin to watch this process; nothing where it is watched already, or on Windows.

        Unless `stop` is called, the account comes at the interpreter's end, which hides the code of ``sys.exit``.
        """
        if sys.platform != "win32" and not self._began:
            self._began, self.diagnosis = (time.time(), _processor_seconds()), None
            self._ranks = Ranks.here()
            self._watch = Watch(os.getpid(), resources_before(), self._ranks)
            self._watch.start()
            if self._ranks:
                self._ranks.begin(os.getpid())
            atexit.register(self._at_exit)

    def stop(self, error: BaseException | None = None) -> Diagnosis | None:
        """End, judge, and write the account to standard error; `error` is the exception that ended the training.

        Returns the diagnosis; None where it did not watch. Whatever fails here is printed in a line, and raises nothing
        into the training.
        """
        if isinstance(error, SystemExit):
            return self._conclude(error, error.code if isinstance(error.code, int) else int(error.code is not None))
        return self._conclude(error, 1 if error else 0)

    def _conclude(self, error: BaseException | None, code: int | None) -> Diagnosis | None:
        """As `stop`; `code` is the exit code of this process, None where it is not known."""
        if sys.platform != "win32" and self._began:
            (began, used), self._began = self._began, None
            atexit.unregister(self._at_exit)
            try:
                self._watch.stop()
                ended = _end_of(code, began, used)
                kept = "".join(traceback.format_exception(error)).encode() if error and ended.failed else b""
                seen = Seen(sys.orig_argv, self._watch, kept, frozenset({"exception"}))
                own = record_own_end(ended, self._ranks)
                self.diagnosis = conclude(ended, seen, self._ranks, own, _write, self._rules)
                if self._ranks:
                    self._ranks.leave()
            except Exception as trouble:
                print(f"gpudoctor: the training could not be judged: {trouble}"[:300], file=sys.stderr)
            return self.diagnosis
        return None

    def _repr_html_(self) -> str | None:
        """What was found, with its GPUs, as HTML for a notebook; None while it watches."""
        from gpudoctor.app.commands.reports import html_of

        return html_of(self.diagnosis, cell=True) if self.diagnosis else None

    def _at_exit(self) -> None:
        """Call `stop` at the interpreter's end, with the exception that nobody handled, if any."""
        error = getattr(sys, "last_value", None)
        self._conclude(error, 1 if error else None)


def watch(rules: Sequence[Path] = ()) -> Watching:
    """Watch this process while it trains: ``with gpudoctor.watch():`` around the training.

    As ``gpudoctor run`` does it from outside: processes and their memory, cgroup, /dev/shm, disk, the kernel's log and
    the GPUs; at the end an account on standard error, one for all ranks, with the cause of an exception where it is
    known, or advice. `Watching.diagnosis` has it. A process that is killed gives no account: ``gpudoctor run`` does.
    """
    return Watching(rules)


def callback(framework: Literal["transformers", "lightning"], rules: Sequence[Path] = ()) -> Any:
    """A callback that watches a training as `watch` does, for ``Trainer(callbacks=[...])`` of that framework.

    Raises `UsageError` for another framework, `ImportError` where it is not installed.
    """
    watching = Watching(rules)
    if framework == "transformers":
        base = import_module("transformers").TrainerCallback

        class OnTransformers(base):  # type: ignore[misc,valid-type] # of a package that need not be here
            """Begins and ends with the training."""

            def on_train_begin(self, *_: object, **__: object) -> None:
                """Begin to watch the training."""
                watching.start()

            def on_train_end(self, *_: object, **__: object) -> None:
                """End the watch of the training, judge, and write its account to standard error."""
                watching.stop()

        return OnTransformers()
    if framework == "lightning":
        base = import_module("lightning.pytorch").Callback

        class OnLightning(base):  # type: ignore[misc,valid-type] # of a package that need not be here
            """Begins and ends with fit."""

            def on_fit_start(self, *_: object) -> None:
                """Begin to watch the training."""
                watching.start()

            def on_fit_end(self, *_: object) -> None:
                """End the watch of the training, judge, and write its account to standard error."""
                watching.stop()

            def on_exception(self, _trainer: object, _module: object, exception: BaseException) -> None:
                """End the watch of the training, judge it by this exception, and write its account to stderr."""
                watching.stop(exception)

        return OnLightning()
    raise UsageError(f"{framework}: transformers or lightning; with Accelerate: with gpudoctor.watch():")


if sys.platform != "win32":

    def _processor_seconds() -> float:
        """Processor time of this process and of the children that it waited for."""
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def _end_of(code: int | None, began: float, used: float) -> Ended:
        """The end of a training as that of a command with that exit code; `began` is its start by the Unix clock,
        `used` the processor seconds of this process until then.
        """
        seconds, peak = time.time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return Ended(os.getpid(), code, None, False, began, seconds, _processor_seconds() - used, peak, ())


def _write(diagnosis: Diagnosis) -> None:
    """Write the account of the diagnosis to standard error."""
    print(job.render_account(diagnosis, style_of(sys.stderr)), file=sys.stderr, flush=True)

"""The check from within a training script: ``gpudoctor.preflight()`` before the process group is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.cluster.job.options import JobOptions
from gpudoctor.cluster.job.run import Checked, run
from gpudoctor.core.errors import DoctorError
from gpudoctor.views import text


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
            print(text.render(checked.diagnosis, text.style_of(sys.stderr)), file=sys.stderr)
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

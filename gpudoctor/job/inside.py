"""The check from within a training script: ``gpudoctor.preflight()`` before the process group is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.job.run import Checked, run
from gpudoctor.job.wanted import Wanted
from gpudoctor.model.errors import DoctorError


class NoGoError(DoctorError):
    """The job is not to be started. `checked` has the verdict, and on one rank of the job the whole diagnosis."""

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
    """Check this rank's job with all its other ranks, which must call it, too; or this machine, where it is alone.

    Ranks and addresses are those that torchrun, srun or mpirun set, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    To be called before ``init_process_group``, on every rank, with the same arguments. `network` leaves the machines'
    own checks out. `expect` is a profile that each machine is held to. `budget` is the most seconds that it takes; a
    process that hangs beyond it is ended with code 3. Unless it is a go, every rank raises `NoGoError`, and one of them
    writes the report to standard error; with `raises` false it is for the caller to read `Checked.verdict`: go, no-go
    or unknown. Raises `UsageError` for an environment that contradicts itself.
    """
    checked = run(Wanted(level, sys.executable, rules, budget, network, expect), _environ())
    if checked.ended:
        raise checked.ended
    if checked.verdict != "go" and raises:
        if checked.diagnosis:
            from gpudoctor.views import text

            print(text.render(checked.diagnosis, text.style_of(sys.stderr)), file=sys.stderr)
        raise NoGoError(checked)
    return checked


def _environ() -> Mapping[str, str] | None:
    """Our own environment; it says that MASTER_PORT is held by the job's store where the process group is made already,
    as in the workers of Ray Train.
    """
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "True"}

"""``gpudoctor run`` under a real Slurm: the rank that failed first, a time limit and scancel are told apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.shipped import own_command
from tests.cluster.launchers.hosts import HEAD
from tests.cluster.launchers.slurm import Slurm

pytestmark = pytest.mark.full

_ONE_FAILS = "sleep 1; [ $SLURM_PROCID = 2 ] && exit 7; exec sleep 20"


@pytest.fixture(scope="module")
def _cluster() -> Iterator[Slurm]:
    """With the time that Slurm gives by default, and more, between SIGTERM and SIGKILL."""
    with Slurm("KillWait=120") as slurm:
        yield slurm


def _beside(out: Path, *command: str) -> list[str]:
    """The command under ``gpudoctor run``, which writes its document there."""
    return [*own_command(), "run", "-o", str(out), "--", *command]


def _titles(out: Path) -> dict[str, str]:
    document: Any = json.loads(out.read_text())
    return {finding["id"]: finding["title"] for finding in document["findings"]}


def test_the_first_of_a_step_is_named_by_itself(slurm: Slurm) -> None:
    out = slurm.folder / "first.json"
    words = ["--kill-on-bad-exit=1", "-N2", "-n4", *_beside(out, "sh", "-c", _ONE_FAILS)]
    ran = slurm.srun(*words, timeout=300)
    accounts = [line for line in ran.err.splitlines() if line.startswith("gpudoctor: rank ")]
    assert accounts[0].startswith("gpudoctor: rank 2 of 4 on node"), ran.err
    document: Any = json.loads(out.read_text())
    facts = document["facts"]
    assert facts["run.host"]["value"].startswith("node")
    assert facts["run.world_size"]["value"] == 4


def test_the_first_of_a_step_is_named_in_front_of_it(slurm: Slurm) -> None:
    out = slurm.folder / "outer.json"
    step = ["srun", "--kill-on-bad-exit=1", "-N2", "-n4", "sh", "-c", _ONE_FAILS]
    assert slurm.run(HEAD, _beside(out, *step), timeout=300).code
    assert _titles(out)["workload.rank-failed"] == "Rank 2 failed first, as srun tells: exit code 7"


def test_a_job_that_is_cancelled(slurm: Slurm) -> None:
    out = slurm.folder / "cancelled.json"
    mark = slurm.folder / "mark"
    wait = ["sh", "-c", f"touch {mark}; exec sleep 600"]
    with slurm.start(HEAD, ["srun", "-N1", "--time=5", *_beside(out, *wait)]) as step:
        slurm.wait_for(mark.exists, "the command")
        slurm.run(HEAD, ["scancel", "--user=root"])
        _, err = step.communicate(timeout=300)
    slurm.wait_for(out.exists, "the document")
    title = _titles(out)["workload.slurm-ended"]
    assert title.startswith("Slurm ended the job before its time limit, by scancel or for another job, "), err
    assert "SIGTERM from slurmstepd" in title


def test_a_time_limit(slurm: Slurm) -> None:
    """Of a job and of a step at once: Slurm counts limits in minutes, and looks at them each half a minute."""
    outs = [slurm.folder / f"limit-{of}.json" for of in ("job", "step")]
    limited = [["srun", "-N1", "--time=1", *_beside(out, "sleep", "600")] for out in outs]
    with slurm.start(HEAD, limited[0]) as job, slurm.start(HEAD, ["salloc", "-N1", "--time=10", *limited[1]]) as step:
        for out, ended in zip(outs, (job, step), strict=True):
            _, err = ended.communicate(timeout=600)
            slurm.wait_for(out.exists, "the document")
            title = _titles(out)["workload.slurm-ended"]
            assert title.startswith("Slurm ended the job at its time limit, "), err

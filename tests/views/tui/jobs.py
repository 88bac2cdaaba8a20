"""Real jobs of four ranks as their screen gets them: recorded, or followed while they run.

``python -m tests.views.tui.jobs --write`` starts each of them, with torch and Gloo, and records what is seen of it.
"""

import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpudoctor.app.interactive import work_on
from gpudoctor.cluster.running_job import job_diagnosis
from gpudoctor.cluster.running_job.following import Following, Look
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Row
from gpudoctor.core.sample import Sample
from gpudoctor.core.snapshot import from_json
from gpudoctor.probes._job.members import Job, read_job
from gpudoctor.views.tui.work import JobLook, JobWatch, Work
from tests.cluster.hang import jobs

HOME = Path(__file__).parent / "recorded_jobs"
KINDS = ("data", "stop", "die", "other", "sound")
NAME = "job of process 4711"


class Watched:
    """A job whose looks the test gives, and what was asked of it."""

    def __init__(self, look: JobLook | None = None) -> None:
        self._look = look
        self.tell: Callable[[JobLook], None] = lambda _: None
        self.asked: list[str] = []
        self.entries: Sequence[tuple[str, Sequence[str]]] = ()

    def follow(self, on_look: Callable[[JobLook], None]) -> JobWatch:
        """As `Work.job`."""
        self.tell = on_look
        if self._look:
            on_look(self._look)
        return JobWatch(
            lambda: self.asked.append("read"),
            lambda: self.asked.append("turn"),
            lambda rests: self.asked.append("rest" if rests else "go on"),
            self._stacks,
            lambda: self.asked.append("stop"),
        )

    def _stacks(self, row: Row) -> Sequence[tuple[str, Sequence[str]]]:
        self.asked.append("stacks")
        return self.entries


def recorded(kind: str) -> Diagnosis:
    """What is known of a recorded job, judged now."""
    raw = json.loads(gzip.decompress((HOME / f"{kind}.json.gz").read_bytes()))
    return job_diagnosis.judge(from_json(raw))


def look_at(kind: str) -> JobLook:
    """The same as its screen gets it, its stacks having been read right now."""
    return JobLook(recorded(kind), read_at=time.time())


def work_of(look: JobLook) -> tuple[Work, Watched]:
    """The interface's work on such a look, and what gives the next ones."""
    watched = Watched(look)
    diagnosis = look.diagnosis
    assert diagnosis
    return replace(work_on(NAME, lambda _: iter([diagnosis])), job=watched.follow, first="job"), watched


def following(job: jobs.Job) -> Following:
    """What follows a job that runs; all ranks are named, for what this process has started is else not part of it."""
    pids = [rank.pid for rank in job.ranks]
    found = read_job(pids)
    assert isinstance(found, Job)
    return Following(f"job of process {job.pid}", found, lambda known: read_job([*pids, *known]))


def until(follow: Following, holds: Callable[[Look], bool], sample: Sample | None = None) -> Look:
    """The first look of which that holds."""
    deadline = time.monotonic() + 600
    read = True
    while True:
        look = follow.look(sample, read)
        read = not look.reading
        if holds(look):
            return look
        assert time.monotonic() < deadline, look.diagnosis.snapshot.to_json()
        time.sleep(0.5)


def _record(kind: str) -> None:
    """Start that job, and record it once its finding is there; of one that is sound, once its stacks were read."""
    with tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as folder:
        place = Path(folder)
        if kind == "data":
            os.mkfifo(place / "sample")
        with jobs.running(kind, place) as job:
            look = until(
                following(job), lambda look: bool(look.read_at and (look.diagnosis.findings or kind == "sound"))
            )
    snapshot = look.diagnosis.snapshot
    raw = replace_name(snapshot.to_json())
    (HOME / f"{kind}.json.gz").write_bytes(gzip.compress(json.dumps(raw).encode(), mtime=0))


def replace_name(raw: Mapping[str, object]) -> dict[str, object]:
    """The document under the name that all recordings have."""
    target = raw["target"]
    assert isinstance(target, dict)
    return {**raw, "target": {**target, "name": NAME}}


if __name__ == "__main__":
    if "--write" not in sys.argv:
        sys.exit("python -m tests.views.tui.jobs --write")
    os.environ["SLURMD_NODENAME"] = "node3"
    HOME.mkdir(exist_ok=True)
    for each in KINDS:
        _record(each)

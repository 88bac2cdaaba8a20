"""A running job on many machines: each is asked for its own ranks, over ssh or by srun; their rows are put together.

A machine that gives no answer costs its ranks alone: they are named as not seen, and never as gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpudoctor.cluster.fleet import remote
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.fleet.remote import Nodes, Question
from gpudoctor.cluster.running_job.job_diagnosis import found_there, numbers_of
from gpudoctor.cluster.running_job.recorded import dumps_in
from gpudoctor.core import diagnosis
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Known, Row, listed, number_of, value_of
from gpudoctor.readers.tools.flight_recorder import compared


@dataclass(slots=True)
class Asked:
    """Collected answers of all machines: the ranks' rows, their records, and why some machines gave no answer."""

    rows: list[Row] = field(default_factory=list)
    records: dict[str, Fact] = field(default_factory=dict)
    hosts: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    silent: dict[str, str] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    """What machines found of their kernels' logs and GPUs: about those of each they alone can judge."""

    def add(self, reply: Reply) -> None:
        """Add one machine's reply: rows, records, findings; without a readable document its reason goes to `silent`."""
        try:
            answer = diagnosis.from_json(json.loads(reply.text[reply.text.index("{") :]))
        except (DocumentError, ValueError):
            self.silent[reply.host] = reply.because or "its answer is no document"
            return
        self._take(answer)
        self.found += found_there(answer, reply.host)

    def _take(self, answer: Diagnosis) -> None:
        """Add one machine's ranks, its network row, and those records of the job that no other machine had."""
        snapshot = answer.snapshot
        rows = listed(snapshot.rows("rank"))
        by_dumps = dict(compared(dumps_in(rows)))
        for row in rows:
            self.rows.append({name: fact for name, fact in row.items() if name != "awaited"})  # by one machine's alone
        self.hosts += listed(snapshot.rows("job_host"))
        for name, fact in snapshot.facts.items():
            recorded = name.startswith("nccl.") or name in ("job.ras", "job.records")
            if name in by_dumps and value_of(fact) == value_of(by_dumps[name]):
                continue  # of the dumps of one machine: all are compared anew
            if recorded and not isinstance(self.records.get(name), Known):
                self.records[name] = fact
        self.seconds = max(self.seconds, snapshot.number("job.looked_s") or 0.0)

    def with_missing(self) -> tuple[Row, ...]:
        """All ranks' rows, sorted; if every machine answered, with one of state ``gone`` for each rank that none
        has.
        """
        worlds = {number for row in self.rows if (number := number_of(row.get("world"))) is not None}
        seen = numbers_of(self.rows)
        missing = set(range(int(worlds.pop()))) - seen if len(worlds) == 1 and seen and not self.silent else set()
        nobody = Absent("it has no process on any machine of the job")
        gone: list[Row] = [
            {
                "rank": Known(number, "the job's size"),
                "state": Known("gone", "no machine of the job has it"),
                "still": Known(True, "no machine of the job has it"),
                **dict.fromkeys(("pid", "gpu", "host", "unseen"), nobody),
            }
            for number in sorted(missing)
        ]
        return tuple(sorted([*self.rows, *gone], key=lambda row: number_of(row.get("rank")) or 0))


def job_arguments(match: Mapping[str, str], look: float) -> tuple[str, ...]:
    """Arguments for gpudoctor on each machine: ``job``, how to match its processes, `look` (seconds to observe)."""
    pairs = (word for name, value in match.items() for word in ("--match", f"{name}={value}"))
    return ("job", *pairs, "--look", f"{look:g}", "--json")


def ask_by_ssh(names: Sequence[str], question: Question, options: str) -> Asked:
    """Collected answers of these hosts about their ranks of a job, over ssh; `options` are ssh options."""
    asked = Asked()
    remote.ask_by_ssh(names, question, asked.add, options)
    return asked


def ask_by_slurm(nodes: Nodes, question: Question) -> Asked:
    """Collected answers of a Slurm job's nodes about its ranks, by an extra step (srun --overlap) of that job."""
    asked = Asked()
    remote.ask_by_slurm(nodes, question, asked.add)
    return asked

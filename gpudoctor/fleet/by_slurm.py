"""The nodes of a Slurm job or partition: one task a node by srun, each answer packed into short labelled lines."""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpudoctor.fleet.names import folded, ordered
from gpudoctor.fleet.reading import Reply
from gpudoctor.fleet.remote import Hear, Question, because
from gpudoctor.model.errors import UsageError
from gpudoctor.target import Answer
from gpudoctor.target.child import run_child

LIMIT = 1 << 30
"""Bytes that all nodes together may answer; packed, a node's document has about 20,000."""
_WITHIN = 10
"""Seconds that Slurm's own commands may take, and that a node of a partition is waited for."""
_LATER = 5.0
"""Seconds after its nodes that srun itself is ended: what runs on them has been ended there by then."""
_PACKED = """\
echo "node ${{SLURMD_NODENAME:-$(hostname)}}"
{{ {{ {command}; echo "status $?" >&3; }} | gzip -c | base64 -w 800 | sed 's/^/= /'; }} 3>&1
"""
"""What runs on a node. srun labels lines of up to 1024 bytes: a document is one line of a hundred times that."""
_LABELLED = re.compile(r" *(\d+): (.*)")
_USABLE = ("idle", "allocated", "mixed", "completing")


@dataclass(frozen=True, slots=True)
class Nodes:
    """Whom to ask, and those of whom Slurm itself says that they cannot be asked, and why."""

    names: tuple[str, ...]
    out: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False
    """Whether they are of a job that we run in."""


def nodes(partition: str = "") -> Nodes:
    """Of that partition, else of the job that we are in; raises `UsageError` where there is neither."""
    if partition:
        return _partition(partition)
    told = os.environ.get("SLURM_JOB_NODELIST", "")
    if not told:
        raise UsageError("--slurm: not inside a Slurm job; run it in one (salloc, sbatch), or name a --partition")
    return Nodes(tuple(ordered(_expanded(told))), ours=True)


def switches() -> dict[str, str]:
    """The leaf switch of each node, where Slurm's topology plugin knows; else empty."""
    found: dict[str, str] = {}
    with_leafs = re.compile(r"SwitchName=(\S+) Level=0 .*Nodes=(\S+)")
    for switch, told in with_leafs.findall(_ran("scontrol", "show", "topology").out):
        found.update(dict.fromkeys(_expanded(told), switch))
    return found


def ask(whom: Nodes, question: Question, hear: Hear) -> None:
    """Ask them all; every node gives one reply.

    The nodes of our own job are asked by one srun. Those of a partition by one each, so that a node that cannot be had
    delays no other.
    """
    for name, why in whom.out.items():
        hear(Reply("", host=name, because=why))
    until = time.monotonic() + question.budget
    lock, over = threading.Lock(), threading.Event()

    def told(reply: Reply) -> None:
        with lock:
            hear(reply)

    def one(names: Sequence[str]) -> None:
        if not over.is_set():
            _step(names, whom.ours, question, until, told, over)

    steps: Iterable[Sequence[str]] = [whom.names] if whom.ours else [(name,) for name in whom.names]
    with ThreadPoolExecutor(min(question.fanout, max(1, len(whom.names)))) as pool:
        try:
            for _ in pool.map(one, steps):
                pass
        except BaseException:
            over.set()  # Ctrl-C, or the scheduler's SIGTERM: end what is on its way
            raise


def _step(
    names: Sequence[str], ours: bool, question: Question, until: float, hear: Hear, over: threading.Event
) -> None:
    seconds = min(question.seconds, until - time.monotonic() - _LATER)
    if seconds <= 0:
        for name in names:
            hear(Reply("", host=name, because=f"was not asked any more after {question.budget:g} s"))
        return
    how = ["--overlap"] if ours else [f"--immediate={_WITHIN}", "--oversubscribe"]
    count = str(len(names))
    argv = ["srun", "--label", "--kill-on-bad-exit=0", "--ntasks-per-node=1", "-N", count, "-n", count, *how]
    argv += ["-w", folded(names), "--job-name=gpudoctor", "sh", "-c", _PACKED.format(command=question.limited(seconds))]
    answer = run_child(argv, seconds + _LATER, os.environ, limit=LIMIT, watch=lambda _: not over.is_set())
    said = _by_node(answer.out)
    complaints = _complaints(answer)
    for name in names:
        part = said.get(name)
        if part is None:
            why = because(answer.status, complaints.get(-1, ""), question) or "srun started no task on it"
            hear(Reply("", host=name, because=why))
        else:
            why = because(part.status, complaints.get(part.task, ""), question)
            hear(Reply(part.text, host=name, because=why))


@dataclass(slots=True)
class _Part:
    """What one task said."""

    task: int
    packed: list[str] = field(default_factory=list)
    status: int | None = None

    @property
    def text(self) -> str:
        """Unpacked; where the end is missing, as far as it goes."""
        unzipped = zlib.decompressobj(wbits=31)
        try:
            return unzipped.decompress(base64.b64decode("".join(self.packed))).decode("utf-8", "replace")
        except (binascii.Error, zlib.error):
            return ""


def _by_node(out: str) -> dict[str, _Part]:
    """The lines of each task, which tells its node in the first."""
    parts: dict[int, _Part] = {}
    names: dict[int, str] = {}
    for task, line in _labelled(out):
        part = parts.setdefault(task, _Part(task))
        word, _, rest = line.partition(" ")
        if word == "=":
            part.packed.append(rest)
        elif word == "node":
            names[task] = rest
        elif word == "status" and rest.isdecimal():
            part.status = int(rest)
    return {names[task]: part for task, part in parts.items() if task in names}


def _complaints(answer: Answer) -> dict[int, str]:
    """What each task printed on standard error; -1 is srun itself."""
    said: dict[int, list[str]] = {-1: []}
    for line in answer.err.splitlines():
        match = _LABELLED.fullmatch(line)
        said.setdefault(int(match[1]) if match else -1, []).append(match[2] if match else line)
    return {task: "\n".join(lines) for task, lines in said.items()}


def _labelled(out: str) -> Iterable[tuple[int, str]]:
    for line in out.splitlines():
        if match := _LABELLED.fullmatch(line):
            yield int(match[1]), match[2]


def _partition(name: str) -> Nodes:
    answer = _ran("sinfo", "--noheader", "--Node", "--partition", name, "--format", "%N %T")
    states = dict(line.split(maxsplit=1) for line in answer.out.splitlines() if " " in line)
    if not states:
        raise UsageError(f"--partition {name}: Slurm knows no nodes of it ({answer.how}); sinfo lists the partitions")
    usable = {node: state.startswith(_USABLE) and "*" not in state for node, state in states.items()}
    out = {node: f"Slurm calls it {state.strip()}" for node, state in states.items() if not usable[node]}
    return Nodes(tuple(ordered(node for node in states if usable[node])), out)


def _expanded(told: str) -> list[str]:
    answer = _ran("scontrol", "show", "hostnames", told)
    if answer.status != 0:
        raise UsageError(f"scontrol cannot tell the nodes in {told[:80]} ({answer.how})")
    return answer.out.split()


def _ran(*argv: str) -> Answer:
    try:
        return run_child(argv, _WITHIN, os.environ)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}; Slurm's commands are needed on this machine") from error

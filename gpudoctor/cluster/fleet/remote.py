"""Many hosts asked at once: over ssh by ClusterShell, or by srun on the nodes of a Slurm job or partition.

The command that they are sent prints their document, and ends when nobody listens any more.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.cluster.fleet.reading import Reply, node_set, ordered
from gpudoctor.core.errors import ExtraError, UsageError
from gpudoctor.core.language import ENGLISH, say
from gpudoctor.target import Answer
from gpudoctor.target.child import run_child

OnReply = Callable[[Reply], None]
"""Told of each reply as it comes; that of a host which will not answer any more is one, too."""
NO_PROGRAM, NOT_RUNNABLE, NO_SSH = 127, 126, 255
OUT_OF_TIME = (None, 124, 137)
"""Exit statuses of what was ended because its time was up: by us, and by timeout(1)."""
_LONGEST_QUOTE = 200

_UNTIL_HANGUP = """\
exec 3<&0
setsid {command} </dev/null &
child=$!
{{ while read -r _ <&3; do :; done; kill -- -$child; sleep 2; kill -9 -- -$child; }} >/dev/null 2>&1 &
listener=$!
wait $child
status=$?
kill $listener 2>/dev/null
exit $status
"""
"""A shell that ends the command when its standard input is closed, as sshd does when the connection is gone.

The command is the first of a process group of its own (`setsid`), so that all of it can be ended.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """The command that every host runs, and its limits: `seconds` per host, `budget` seconds for all."""

    level: str = "quick"
    program: str = "gpudoctor"
    """Its path on the hosts."""
    seconds: float = 60.0
    budget: float = 120.0
    fanout: int = 64
    """Hosts that are asked at the same time."""
    language: str = ENGLISH
    """That of the sentences in their documents."""
    words: tuple[str, ...] = ()
    """What gpudoctor is asked there; by default for a check."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Command line that is run on a host, as words; by default ``gpudoctor check --json --level LEVEL``."""
        lang_option = ("--lang", self.language) if self.language != ENGLISH else ()
        words = self.words or ("check", "--json", "--level", self.level)
        return (*shlex.split(self.program), *words, *lang_option)

    def time_limited_command(self, seconds: float) -> str:
        """Shell command that ends itself after `seconds` by timeout(1), whether or not the connection still exists."""
        return shlex.join(["timeout", "-k", "2", f"{max(1.0, seconds):.0f}", *self.argv])

    @property
    def ssh_command(self) -> str:
        """Shell command for any login shell that runs the question, and ends it at timeout or when the connection
        closes.
        """
        return f"exec sh -c {shlex.quote(_UNTIL_HANGUP.format(command=self.time_limited_command(self.seconds)))}"


def why_no_answer(status: int | None, stderr: str, question: Question) -> str:
    """Why there is no answer, or a failed one; ``""`` for exit status 0, 1 or 3 (those of a diagnosis) with empty
    standard error. A status of None means out of time.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_QUOTE] if lines else ""
    if status in OUT_OF_TIME:
        return say("no answer within {seconds} s", seconds=f"{question.seconds:g}")
    if status == NO_SSH:
        return f"ssh: {last or say('no connection')}"
    if status in (NO_PROGRAM, NOT_RUNNABLE):
        why = last or say("no such program")
        return say("{program} cannot be run there: {why}", program=question.argv[0], why=why)
    if status in (0, 1, 3) and not last:
        return ""
    return say("it ended with {status}: {why}" if last else "it ended with {status}", status=status, why=last)


# ---- Over ssh, by ClusterShell: node sets, fan-out, and its tree of gateways where one is configured ----

_MOST_SSH_BYTES = 32 << 20
"""Bytes of an answer; more is not kept, and its document is cut off."""


def _cluster_shell() -> tuple[Any, Any]:
    """ClusterShell's modules of node sets and of tasks; raises `ExtraError` where it is not installed."""
    try:
        from ClusterShell import NodeSet, Task
    except ModuleNotFoundError as error:
        raise ExtraError(say("--hosts needs ClusterShell"), "fleet") from error
    return NodeSet, Task


def ssh_hosts(nodes: str) -> list[str]:
    """Host names of a node set such as ``node[01-08]``, sorted.
    Raises `UsageError` for an invalid or empty set or without ssh, `ExtraError` without ClusterShell.
    """
    node_sets, _ = _cluster_shell()
    try:
        found = ordered(map(str, node_sets.NodeSet(nodes)))
    except node_sets.NodeSetException as error:
        raise UsageError(
            say(
                "--hosts {nodes}: {error}; a node set is written node[01-08],login1 or @group", nodes=nodes, error=error
            )
        ) from error
    if not found or any(name.startswith("-") for name in found):  # ssh would take it for an option
        raise UsageError(
            say(
                "--hosts {nodes}: {what}",
                nodes=nodes,
                what=say("no host in it" if not found else "no host is called so"),
            )
        )
    if not shutil.which("ssh"):
        raise UsageError(say("--hosts needs ssh on this machine: install OpenSSH's client"))
    return found


def ask_by_ssh(names: Sequence[str], question: Question, on_reply: OnReply, options: str = "") -> None:
    """Run the question on all hosts by ClusterShell; `on_reply` is called exactly once per host. `options` are ssh's
    (``-F FILE -l USER``). After `question.budget` seconds the remaining ssh processes are killed.
    """
    _, tasks = _cluster_shell()
    task = tasks.task_self()
    task.set_info("fanout", question.fanout)
    task.set_info("connect_timeout", max(1, round(min(question.seconds, question.budget) / 3)))
    if options:
        task.set_info("ssh_options", options)
    for kept in ("stdout_msgtree", "stderr_msgtree"):
        task.set_default(kept, False)
    replies = _SSHReplies(names, question, on_reply)
    seconds = min(question.seconds, question.budget)
    task.shell(question.ssh_command, nodes=",".join(names), handler=replies, timeout=seconds, stderr=True)
    started = time.monotonic()
    try:
        with suppress(tasks.TimeoutError):
            task.resume(question.budget)
    finally:
        task.abort(kill=True)
        replies.report_missing(time.monotonic() - started)


class _SSHReplies:
    """ClusterShell event handler: collects each host's output and reports one Reply when the host ends or times out."""

    def __init__(self, names: Sequence[str], question: Question, on_reply: OnReply) -> None:
        """Expect one reply of each host in `names`; `on_reply` is called with each."""
        self._question = question
        self._on_reply = on_reply
        self._open: dict[str, tuple[list[bytes], list[bytes]]] = {name: ([], []) for name in names}
        self._sizes = dict.fromkeys(names, 0)
        self._started: dict[str, float] = {}

    def ev_start(self, _worker: Any) -> None:
        """ClusterShell's event for the start of all; nothing to do."""

    def ev_pickup(self, _worker: Any, node: str) -> None:
        """Record when the ssh process of a host was started."""
        self._started[node] = time.monotonic()

    def ev_read(self, _worker: Any, node: str, stream: str, line: bytes) -> None:
        """Keep a line of a host's standard output or error, up to `_MOST_SSH_BYTES` bytes."""
        lines = self._open.get(node)
        if lines and self._sizes[node] < _MOST_SSH_BYTES:
            self._sizes[node] += len(line)
            lines[stream == "stderr"].append(line)

    def ev_hup(self, _worker: Any, node: str, status: int) -> None:
        """Report a host whose ssh process has ended with `status`."""
        self._finish(node, status)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """Report the hosts whose time ran out, if ClusterShell ended them for that."""
        for node in worker.iter_keys_timeout() if timedout else ():
            self._finish(str(node), None)

    def report_missing(self, seconds: float) -> None:
        """Report every host without a reply yet, with the reason that time ran out after `seconds`, asked or not."""
        for node in list(self._open):
            asked = node in self._started
            still = "was still being asked when all had taken {seconds} s"
            words = still if asked else "was not asked any more when all had taken {seconds} s"
            self._finish(node, None, say(words, seconds=f"{seconds:.0f}"))

    def _finish(self, node: str, status: int | None, why: str = "") -> None:
        """Report a host's Reply, once; later calls for the same host do nothing."""
        lines = self._open.pop(node, None)
        if lines is not None:
            out, err = (b"\n".join(part).decode("utf-8", "replace") for part in lines)
            self._on_reply(Reply(out, host=node, because=why or why_no_answer(status, err, self._question)))


# ---- By Slurm: one task a node by srun, each answer packed into short labelled lines ----

_MOST_SLURM_BYTES = 1 << 30
"""Bytes that all nodes together may answer; packed, a node's document has about 20,000."""
_SLURM_SECONDS = 10
"""Seconds that Slurm's own commands may take, and that a node of a partition is waited for."""
_SRUN_GRACE_SECONDS = 5.0
"""Seconds after its nodes that srun itself is ended: what runs on them has been ended there by then."""
_PACKED = """\
echo "node ${{SLURMD_NODENAME:-$(hostname)}}"
{{ {{ {command}; echo "status $?" >&3; }} | gzip -c | base64 -w 800 | sed 's/^/= /'; }} 3>&1
"""
"""What runs on a node. srun labels lines of up to 1024 bytes: a document is one line of a hundred times that."""
_LABELLED = re.compile(r" *(\d+): (.*)")
_USABLE = ("idle", "allocated", "mixed", "completing")
_AWAY = frozenset("*~#!%^")
"""What follows the state of a node that does not respond, is powered off, up or down, or reboots (sinfo(1), NODE STATE
CODES). A step for one that is powered off would have Slurm start it, and take it for down where that fails (22.05).
"""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Node names to ask, and in `out` the nodes that Slurm reports as unusable, with the reason."""

    names: tuple[str, ...]
    out: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False
    """Whether they are of a job that we run in, or may run in: `job`."""
    job: str = ""


def slurm_nodes(partition: str = "") -> Nodes:
    """Nodes of a partition, usable or not, or of the current Slurm job if `partition` is ``""``. `UsageError` outside a
    job, without Slurm's commands, or for an unknown partition.
    """
    if partition:
        return _partition_nodes(partition)
    nodelist = os.environ.get("SLURM_JOB_NODELIST", "")
    if not nodelist:
        raise UsageError(say("--slurm: not inside a Slurm job; run it in one (salloc, sbatch), or name a --partition"))
    return Nodes(tuple(ordered(_expanded_nodelist(nodelist))), ours=True)


def slurm_job_nodes(job: str) -> Nodes:
    """Nodes of a running Slurm job, by squeue; `UsageError` if there is no such job, or it does not run."""
    answer = _run_slurm("squeue", "--noheader", "--jobs", job, "--states", "RUNNING,SUSPENDED", "--format", "%N")
    nodelist = answer.out.split()
    why = answer.complaint or answer.how
    if not answer.ok and "Invalid job id" not in why:
        raise UsageError(
            say(
                "--slurm {job}: squeue does not answer here ({why}); run this where Slurm's commands work",
                job=job,
                why=why,
            )
        )
    if not nodelist:
        raise UsageError(say("--slurm {job}: Slurm has no such job that runs ({why})", job=job, why=why))
    return Nodes(tuple(ordered(_expanded_nodelist(nodelist[0]))), ours=True, job=job)


def slurm_switches() -> dict[str, str]:
    """Leaf switch by node, from ``scontrol show topology``; empty without a topology plugin. May raise `UsageError`."""
    found: dict[str, str] = {}
    with_leafs = re.compile(r"SwitchName=(\S+) Level=0 .*Nodes=(\S+)")
    for switch, nodelist in with_leafs.findall(_run_slurm("scontrol", "show", "topology").out):
        found.update(dict.fromkeys(_expanded_nodelist(nodelist), switch))
    return found


def ask_by_slurm(nodes: Nodes, question: Question, reply_to: OnReply) -> None:
    """Run the question on all nodes by srun; `reply_to` is called exactly once per node, never in parallel, for
    unusable ones (`nodes.out`) with the reason. One srun for the nodes of our own job; one per node of a partition, so
    that an unavailable node delays no other.
    """
    for name, why in nodes.out.items():
        reply_to(Reply("", host=name, because=why))
    until = time.monotonic() + question.budget
    lock, over = threading.Lock(), threading.Event()

    def on_reply(reply: Reply) -> None:
        """Pass the reply to `reply_to`; threads do so one at a time."""
        with lock:
            reply_to(reply)

    def run_step(names: Sequence[str]) -> None:
        """Run the question on these nodes by one srun, unless the whole query was interrupted."""
        if not over.is_set():
            _run_step(names, nodes, question, until, on_reply, over)

    steps: Iterable[Sequence[str]] = [nodes.names] if nodes.ours else [(name,) for name in nodes.names]
    with ThreadPoolExecutor(min(question.fanout, max(1, len(nodes.names)))) as pool:
        try:
            for _ in pool.map(run_step, steps):
                pass
        except BaseException:
            over.set()  # Ctrl-C, or the scheduler's SIGTERM: end what is on its way
            raise


def _run_step(
    names: Sequence[str], nodes: Nodes, question: Question, until: float, on_reply: OnReply, cancelled: threading.Event
) -> None:
    """Run the question on these nodes by one srun, which `cancelled` ends, and call `on_reply` once for each; once
    `until` (monotonic) is near, they are not asked.
    """
    seconds = min(question.seconds, until - time.monotonic() - _SRUN_GRACE_SECONDS)
    if seconds <= 0:
        why = say("was not asked any more after {seconds} s", seconds=f"{question.budget:g}")
        for name in names:
            on_reply(Reply("", host=name, because=why))
        return
    how = ["--overlap"] if nodes.ours else [f"--immediate={_SLURM_SECONDS}", "--oversubscribe"]
    how += [f"--jobid={nodes.job}"] if nodes.job else []
    count = str(len(names))
    argv = ["srun", "--label", "--kill-on-bad-exit=0", "--ntasks-per-node=1", "-N", count, "-n", count, *how]
    argv += [
        "-w",
        node_set(names),
        "--job-name=gpudoctor",
        "sh",
        "-c",
        _PACKED.format(command=question.time_limited_command(seconds)),
    ]
    answer = run_child(
        argv, seconds + _SRUN_GRACE_SECONDS, os.environ, limit=_MOST_SLURM_BYTES, watch=lambda _: not cancelled.is_set()
    )
    by_node = _outputs_by_node(answer.out)
    complaints = _stderr_by_task(answer)
    for name in names:
        part = by_node.get(name)
        if part is None:
            why = why_no_answer(answer.status, complaints.get(-1, ""), question) or say("srun started no task on it")
            on_reply(Reply("", host=name, because=why))
        else:
            why = why_no_answer(part.status, complaints.get(part.task, ""), question)
            on_reply(Reply(part.text, host=name, because=why))


@dataclass(slots=True)
class _TaskOutput:
    """Output of one srun task: base64 lines of gzip data, and the exit status of its command."""

    task: int
    packed: list[str] = field(default_factory=list)
    status: int | None = None

    @property
    def text(self) -> str:
        """Unpacked output; a truncated one as far as it goes, ``""`` if it cannot be unpacked."""
        unzipped = zlib.decompressobj(wbits=31)
        try:
            return unzipped.decompress(base64.b64decode("".join(self.packed))).decode("utf-8", "replace")
        except (binascii.Error, zlib.error):
            return ""


def _outputs_by_node(out: str) -> dict[str, _TaskOutput]:
    """Each srun task's output by node name, from srun's labelled lines; without tasks that did not name their node."""
    parts: dict[int, _TaskOutput] = {}
    names: dict[int, str] = {}
    for match in filter(None, map(_LABELLED.fullmatch, out.splitlines())):
        task = int(match[1])
        part = parts.setdefault(task, _TaskOutput(task))
        word, _, rest = match[2].partition(" ")
        if word == "=":
            part.packed.append(rest)
        elif word == "node":
            names[task] = rest
        elif word == "status" and rest.isdecimal():
            part.status = int(rest)
    return {names[task]: part for task, part in parts.items() if task in names}


def _stderr_by_task(answer: Answer) -> dict[int, str]:
    """Lines of standard error by srun task number; -1 is srun itself."""
    lines_of: dict[int, list[str]] = {-1: []}
    for line in answer.err.splitlines():
        match = _LABELLED.fullmatch(line)
        lines_of.setdefault(int(match[1]) if match else -1, []).append(match[2] if match else line)
    return {task: "\n".join(lines) for task, lines in lines_of.items()}


def _partition_nodes(name: str) -> Nodes:
    """Nodes of a partition, from sinfo: those usable, and the others with their state as the reason. An unknown
    partition raises `UsageError`.
    """
    answer = _run_slurm("sinfo", "--noheader", "--Node", "--partition", name, "--format", "%N %T")
    states = dict(line.split(maxsplit=1) for line in answer.out.splitlines() if " " in line)
    if not states:
        raise UsageError(
            say(
                "--partition {name}: Slurm knows no nodes of it ({how}); sinfo lists the partitions",
                name=name,
                how=answer.how,
            )
        )
    usable = {node: state.startswith(_USABLE) and _AWAY.isdisjoint(state) for node, state in states.items()}
    out = {
        node: say("Slurm calls it {state}", state=state.strip()) for node, state in states.items() if not usable[node]
    }
    return Nodes(tuple(ordered(node for node in states if usable[node])), out)


def _expanded_nodelist(nodelist: str) -> list[str]:
    """Node names in a Slurm node list (``n[1-3]``), by ``scontrol show hostnames``; failure raises `UsageError`."""
    answer = _run_slurm("scontrol", "show", "hostnames", nodelist)
    if answer.status != 0:
        raise UsageError(
            say("scontrol cannot tell the nodes in {nodelist} ({how})", nodelist=nodelist[:80], how=answer.how)
        )
    return answer.out.split()


def _run_slurm(*argv: str) -> Answer:
    """Output of a Slurm command, which may take 10 s; raises `UsageError` if it cannot be started, not if it fails."""
    try:
        return run_child(argv, _SLURM_SECONDS, os.environ)
    except OSError as error:
        raise UsageError(
            say("{name}: {why}; Slurm's commands are needed on this machine", name=argv[0], why=error.strerror)
        ) from error

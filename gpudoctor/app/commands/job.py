"""``job``: what a running job does, and for whom its ranks wait."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from gpudoctor.app import live_gpus, output
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import exit_code
from gpudoctor.cluster.fleet import remote
from gpudoctor.cluster.running_job import hosts, job_diagnosis
from gpudoctor.cluster.running_job.looking import look
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Unread
from gpudoctor.core.language import phrase, say
from gpudoctor.core.sample import Sample
from gpudoctor.core.system import is_root
from gpudoctor.probes._job.members import Job, find_job, find_jobs, key_of, read_job
from gpudoctor.probes._job.waiting import on_gpu
from gpudoctor.target import proc
from gpudoctor.views import job as view
from gpudoctor.views._terminal import one_line, style_of

_MOST_JOBS = 8
"""Jobs that are listed where none is given."""
_SLACK_SECONDS = 30.0
"""Seconds that a machine may take beyond the look: to start Python, and for what does not answer there."""


def job(options: argparse.Namespace) -> int:
    """``gpudoctor job``: look at the job's ranks, and print the report or show it with --tui; the verdict's exit code.
    Where nothing says which job, and nothing asks for a document, list this machine's.

    Raises `UsageError` where there is no such job, for options that do not go together, and anywhere but on Linux. The
    document of ``--json`` has no ranks then: a machine of the job may have none of them.
    """
    if sys.platform != "linux":
        raise UsageError(say("job reads /proc, which only Linux has"))
    if not (options.pids or options.slurm or options.match or options.hosts or options.format or options.tui):
        output.put(_listed(), options.out)
        return 0
    match = _match(options)
    if options.tui:
        from gpudoctor.app import interactive, live_job
        from gpudoctor.app.commands.interface import demand_interface, run_interface

        demand_interface()
        if options.out or options.format:
            raise UsageError(say("--tui shows the interface; --format, --json and -o are for reports"))
        samples = live_gpus.Shared()
        if options.slurm or options.hosts:
            source: live_job.Source = live_job.OfManyMachines(lambda: _of_many(options, match))
            name = f"Slurm job {options.slurm}" if options.slurm else f"job on {options.hosts}"
        else:
            name = f"job of process {options.pids[0]}" if options.pids else "job"
            find = partial(_find_again, options.pids, match)
            source = live_job.OfThisMachine(find, options.rules, samples.watch)
        return run_interface(interactive.of_job(name, source, options.rules, samples), options)
    output.check(options.out)
    diagnosis = _of_many(options, match) if options.slurm or options.hosts else _of_this_machine(options, match)
    snapshot = diagnosis.snapshot
    if not (snapshot.number("job.ranks") or snapshot.texts("job.unseen") or options.format == "json"):
        raise UsageError(f"job: {_no_process(options, match)}")
    report = shared(diagnosis, options)
    if options.format in (None, "text"):
        output.put(view.render(report, style_of(stream_of(options.out))), options.out)
    else:
        output.put(rendered(report, options.format, stream_of(options.out), options.strict), options.out)
    return exit_code(diagnosis, options.strict)


def _find_again(pids: Sequence[int], match: dict[str, str], known: Sequence[int]) -> Job | Unread:
    """The job as it is now: with `match`, of the processes with these variables, without members if there are none;
    otherwise of the given and the known process ids, Unread if none of them is a process.
    """
    return find_job(match) if match else read_job([*pids, *known])


def _match(options: argparse.Namespace) -> dict[str, str]:
    """The variables of ``--match``; raises `UsageError` for options that do not go together."""
    if options.slurm and options.hosts:
        raise UsageError(say("job: give one of --slurm JOBID and --hosts NODESET"))
    if options.pids and (options.slurm or options.match):
        raise UsageError(say("job: a PID is of this machine; leave it out beside --slurm and --match"))
    if not (options.pids or options.slurm or options.match):
        raise UsageError(say("job: give a process id of a job (gpudoctor job lists them), --match, or --slurm JOBID"))
    found = {}
    for word in options.match:
        name, mark, value = word.partition("=")
        if not mark or not name:
            raise UsageError(say("--match {word}: a variable is written NAME=VALUE: MASTER_PORT=29500", word=word))
        found[name] = value
    return found


def _no_process(options: argparse.Namespace, match: dict[str, str]) -> str:
    """That no process is of the job that the options name, and what may be amiss."""
    if options.slurm:
        return f"no process of Slurm job {options.slurm} is seen on its nodes; its state: squeue -j {options.slurm}"
    pairs = " ".join(f"{name}={value}" for name, value in match.items()) or "what marks the job of that process"
    where = f"on {options.hosts}" if options.hosts else "of this machine"
    others = "" if is_root() else "; those of other users only root sees"
    return f"no process {where} was started with {pairs}{others}"


def _listed() -> str:
    """At most 8 jobs of this machine, each as the command to type for it; what else can be given if there are none.

    A job is what a launcher has numbered as ranks, or a Python program that has a GPU's device file open.
    """
    jobs = find_jobs([pid for name in proc.names("/proc") if name.isdigit() and on_gpu(pid := int(name))])
    if not jobs:
        others = "" if is_root() else say(" Only root sees those of other users.")
        none = say("No job is seen on this machine: no ranks of a launcher, no Python program on a GPU.")
        return f"{none}{others}\n{say('A job elsewhere: gpudoctor job --slurm JOBID, or PID --hosts NODESET')}"
    lines = [say("Jobs of this machine, and what to type for each:")]
    for job in jobs[:_MOST_JOBS]:
        first = job.ranks[0]
        sentence = "{count} rank" if len(job.ranks) == 1 else "{count} ranks"
        ranks = "" if first.rank is None else f"{say(sentence, count=len(job.ranks))}{say(': ')}"
        folder = proc.link(f"/proc/{first.member.pid}/cwd")
        place = say(", in {folder}", folder=folder) if folder else ""
        parent = say(", started by process {pid}", pid=launcher) if (launcher := job.launcher) else ""
        lines.append(f"  gpudoctor job {job.root}    {ranks}{one_line(first.member.title + place + parent)}")
    if len(jobs) > _MOST_JOBS:
        lines.append(f"  {say('and {count} more', count=len(jobs) - _MOST_JOBS)}")
    return "\n".join(lines)


def _of_this_machine(options: argparse.Namespace, match: dict[str, str]) -> Diagnosis:
    """The diagnosis of the job's ranks on this machine, which are watched for up to ``--look`` seconds.

    Raises `UsageError` where there is no such job.
    """
    found = _found(options, match)
    samples: list[Sample] = []
    end = live_gpus.watch(samples.append, interval=1.0) if live_gpus.has_gpus() else (lambda: None)
    try:
        looked = look(found, options.look, samples)
    finally:
        end()
    name = f"job of process {found.root}" if found.root else "job"
    return job_diagnosis.diagnose(
        name, looked.rows, looked.seconds, looked.records, [looked.host], options.rules, events=looked.groups
    )


def _found(options: argparse.Namespace, match: dict[str, str]) -> Job:
    """The job that the process ids or `match` name on this machine; raises `UsageError` where there is none."""
    found = _find_again(options.pids, match, ())
    if isinstance(found, Unread):
        raise UsageError(say("job: {why}", why=phrase(found.why)))
    return found


def _of_many(options: argparse.Namespace, match: dict[str, str]) -> Diagnosis:
    """The diagnosis of the job's ranks on many machines, asked by Slurm or ssh.

    Raises `UsageError` where these cannot be asked, or nothing tells the job's processes from others.
    """
    match = match or ({"SLURM_JOB_ID": options.slurm} if options.slurm else key_of(_found(options, match)))
    if not match:
        raise UsageError(say("job: no launcher gave that process what the job's other processes have; use --match"))
    seconds = options.look + _SLACK_SECONDS
    question = remote.Question(
        program=options.program,
        seconds=seconds,
        budget=seconds + _SLACK_SECONDS,
        words=hosts.job_arguments(match, options.look),
    )
    if options.slurm:
        asked = hosts.ask_by_slurm(remote.slurm_job_nodes(options.slurm), question)
        name = f"Slurm job {options.slurm}"
    else:
        asked = hosts.ask_by_ssh(remote.ssh_hosts(options.hosts), question, options.ssh_options)
        name = f"job on {options.hosts}"
    rows = asked.with_missing()
    return job_diagnosis.diagnose(
        name, rows, asked.seconds, asked.records, asked.hosts, options.rules, asked.silent, found=asked.found
    )

"""The path as one short function each: `check` asks this machine and has the facts judged.

`look` stops at the facts, `diagnose` begins there; `bench` judges what kernels measure. For texts: `reading`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import probes
from gpudoctor.core.diagnosis import Diagnosis, verdict_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import phrase, say
from gpudoctor.core.measurement import Bench, bench_verdict
from gpudoctor.core.snapshot import Event, Progress, Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.history import Shelf, of_this_machine
from gpudoctor.diagnosis.history.best_rates import with_best
from gpudoctor.diagnosis.history.changes_since import keep_with_changes
from gpudoctor.probes import Collection, collect
from gpudoctor.target import Target, rights
from gpudoctor.target.local import Local

if TYPE_CHECKING:
    from gpudoctor.cluster.preflight import JobOptions
    from gpudoctor.core.diagnosis import Finding
    from gpudoctor.core.measurement import Measurements
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.fixes.permissions import RunContext


def check(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
    wait: float | None = None,
) -> Diagnosis:
    """Diagnose this machine, or `target` in its place.

    `python` is the interpreter whose torch is meant, `rules` folders of a site's own pages, `expect` a profile of what
    the machine must be: a file, or the name of one that ships; `wait` the most seconds that GPUs may take to wake. Of
    this machine the result has what changed since it last worked, and is kept in the history. Raises `DoctorError` for
    a broken page or profile, or an interpreter that is none; a sick machine raises nothing.
    """
    profile = expected(expect)
    collection = ask(target, level, python, progress, wait)
    book = rulebook.load(rules)
    if collection.running:  # children are waited for: what judging loads and compiles is there when they are done
        diagnose(collection.so_far(), book, profile=profile)
    diagnosis = diagnose(deepened(collection, progress), book, profile=profile)
    return diagnosis if target else _with_history(diagnosis)


def of_rank(wanted: JobOptions) -> Diagnosis:
    """Check this machine as one rank of a job, as `wanted`."""
    return check(wanted.level, wanted.python, wanted.rules, expect=wanted.expect)


def expected(expect: str | Profile | None) -> Profile | None:
    """The profile of that file or shipped name; None and a profile are returned as they are. Raises `UsageError`."""
    if not isinstance(expect, str):
        return expect
    from gpudoctor.diagnosis.expect import load

    return load(expect)


def _with_history(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with what changed since this machine last worked, by its kept runs; stores this run, too.

    Unchanged where history is off or cannot be read or written.
    """
    try:
        if shelf := of_this_machine():
            return keep_with_changes(diagnosis, shelf)
    except Exception:  # a full disk, a home that is not ours, files that are none: no matter of the check
        pass
    return diagnosis


def run_context(level: str = "standard", python: str | None = None, rules: Sequence[Path] = ()) -> RunContext:
    """The place where plans are run on this machine: the Python that may be changed, and a function that judges again.

    Raises `DoctorError` for an interpreter that is none.
    """
    from gpudoctor.fixes.permissions import RunContext, journals_folder

    patient = Local(level, python)
    patient.verify()
    own = patient.python if patient.python and not rights.is_foreign(patient.python) else None

    def judge(environment: str | None) -> Diagnosis:
        """Check this machine anew, with the Python of that environment or else that of the run."""
        return check(level, environment or python, rules)

    return RunContext(journals_folder(), own, judge, rights.trusted_environ(os.environ))


def watch(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
    wait: float | None = None,
) -> Iterator[Diagnosis]:
    """Diagnose as `check` does, yielding a diagnosis whenever a probe has answered; the last is complete.

    Raises what `check` raises, when the first or the next diagnosis is asked for.
    """
    import queue  # loads a library: a check that shows nothing before its end needs none

    profile = expected(expect)
    more: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()

    def on_event(event: Event) -> None:
        """Pass the event on, and wake the loop when a probe has ended."""
        progress(event)
        if event.state not in {"started", "working"}:
            more.put(None)

    collection = ask(target, level, python, on_event, wait)
    book = rulebook.load(rules)
    ended: list[Snapshot | Exception] = []

    def collecting() -> None:
        """Collect all facts, in a thread, and hand over the complete snapshot, or what kept it from coming."""
        try:
            ended.append(deepened(collection, progress, more.put, stop))
        except Exception as error:
            ended.append(error)
        more.put(None)

    stop = threading.Event()
    threading.Thread(target=collecting, name="collect", daemon=True).start()
    try:
        while not ended:
            latest = more.get()
            while not more.empty():  # several at once are judged once
                latest = more.get() or latest
            if not ended:
                yield diagnose(latest or collection.so_far(), book, profile=profile)
        if isinstance(ended[0], Exception):
            raise ended[0]
        last = diagnose(ended[0], book, profile=profile)
        yield last if target else _with_history(last)
    finally:
        stop.set()  # who hears no more wants nothing measured


# ---- The facts of this machine, or of a stand-in for it ----
# What the probes of its level say and, at level deep, what the kernels measure.

_SLOWEST = ("nvml", "libcuda", "torch_live", "driver_kernels", "windows")
"""Probes that wait for a child: started first, their children work while the rest is imported and asked."""


def ask(
    target: Target | None, level: str, python: str | None, progress: Progress, wait: float | None = None
) -> Collection:
    """Start the probes of that level, which go on side by side; raises `DoctorError` for an interpreter that is none.

    Without a `target` this machine is asked, with `python` as the interpreter and `wait` as the most seconds that GPUs
    may take to wake; with one, they and `level` are not used.
    """
    patient = target or Local(level, python, wait=wait)
    collection = Collection(patient, probes.declared(first=_SLOWEST), progress)
    if isinstance(patient, Local):
        patient.verify()
    return collection


def deepened(
    collection: Collection,
    progress: Progress = lambda _: None,
    on_snapshot: Callable[[Snapshot], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Snapshot:
    """Wait for the probes' snapshot and, at level deep, run every kernel; whenever a run ends, `on_snapshot` gets the
    snapshot so far.

    On this machine the rates are compared with the best kept ones, and better ones kept; `stop` ends the kernels early.
    """
    snapshot = collection.snapshot()
    if collection.target.level != "deep":
        return snapshot
    from gpudoctor.app.bench import deepened as with_measurements

    whole = with_measurements(collection.target, snapshot, progress, on_snapshot, stop)
    return with_best(whole, of_this_machine()) if type(collection.target) is Local else whole


def look(
    level: str = "standard",
    python: str | None = None,
    progress: Progress = lambda _: None,
    target: Target | None = None,
    wait: float | None = None,
) -> Snapshot:
    """The facts of this machine, not judged; raises `DoctorError` for an interpreter that is none."""
    return deepened(ask(target, level, python, progress, wait), progress)


def looked_at(patient: Target) -> Snapshot:
    """The facts of level quick, and CUDA's devices, which that level leaves out; asked before kernels run."""
    if isinstance(patient, Local):
        patient.verify()
    return collect(patient, (probe for probe in probes.declared() if probe.level == "quick"))


# ---- Facts judged by the rules: the last steps of the path ----


def diagnose(snapshot: Snapshot, book: rulebook.Rulebook, today: str = "", profile: Profile | None = None) -> Diagnosis:
    """Judge the facts, add derived facts and fixes, and hold the result to the profile, if any.

    `today` (2026-11-21; by default the clock's) is the date from which the age of the tables is counted.
    """
    from gpudoctor.diagnosis.diagnose import (
        diagnosis_of,  # while it is imported, the children of the probes are at work
    )

    diagnosis = _with_manifest_fixes(_with_cures(diagnosis_of(snapshot, book, today)))
    if profile is None:
        return diagnosis
    from gpudoctor.diagnosis.expect import held_to

    return held_to(diagnosis, profile, book)


def judging(rules: Sequence[Path] = ()) -> Callable[[Snapshot], Diagnosis]:
    """A function that judges a complete snapshot by every rule; used to foresee what a plan would change."""
    from gpudoctor.diagnosis.judge import judge

    book = rulebook.load(rules)
    return lambda snapshot: _with_cures(judge(snapshot, book))


def _with_manifest_fixes(diagnosis: Diagnosis) -> Diagnosis:
    """For a manifest: package cures replaced by lines to change in its file, and notes on what was not judged.

    Any other diagnosis is unchanged.
    """
    if not diagnosis.snapshot.known("manifest.kind"):
        return diagnosis
    from gpudoctor.fixes.manifests import adapt_to_manifest  # with the solver

    return adapt_to_manifest(diagnosis)


def _with_cures(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with fixes that need the solver (``setup``) worked out; unchanged where there are none."""
    if not any(fix.setup for finding in diagnosis.findings for fix in finding.fixes):
        return diagnosis
    from gpudoctor.fixes.solver.cure import with_cures  # the solver is imported where a finding needs it

    return with_cures(diagnosis)


# ---- Kernels run, and what they measured judged by the rules that read it ----


def bench(
    names: Sequence[str] = (),
    device: str = "",
    python: str | None = None,
    on_results: Callable[[Measurements], None] = lambda _: None,
    stop: threading.Event | None = None,
    target: Target | None = None,
) -> Bench:
    """Run kernels (all but those of soak, or those named) and judge what they measured, by the rules that read it.

    `device` is ``cpu``, ``cuda:N`` or empty: every idle GPU; `on_results` gets the measurements so far. Rates of this
    machine's GPUs are compared with the best kept ones, and better ones kept. Raises `UsageError` for an unknown kernel
    or device, and `DoctorError` for an interpreter that is none.
    """
    from gpudoctor.app.bench import Plan, run

    patient = target or Local("standard", python)
    plan = Plan(names, device)
    snapshot = looked_at(patient)
    shelf = None if target or device == "cpu" else of_this_machine()
    return benched(snapshot, run(patient, snapshot, plan, on_results, stop), shelf)


def soak(
    seconds: float,
    device: str = "",
    python: str | None = None,
    rules: Sequence[Path] = (),
    on_results: Callable[[Measurements], None] = lambda _: None,
    stop: threading.Event | None = None,
    ended_by: Callable[[], str] = str,
    target: Target | None = None,
) -> Diagnosis:
    """Work this machine hard for `seconds`, as `app.soak.run` does, and judge it with what was measured.

    Setting `stop` ends it; `ended_by` then names what did. Rates are compared with the best that were measured here
    before, and kept. On the CPU (`device` ``cpu``), where no GPU is tested, only what the soak itself found counts.
    Raises what `bench` raises, and for a broken page.
    """
    from gpudoctor.app.soak import run
    from gpudoctor.kernels.facts import measured

    book = rulebook.load(rules)
    patient = target or Local("standard", python)
    before = looked_at(patient)
    soaked = run(patient, before, seconds, device, on_results, stop)
    after = before if stop and stop.is_set() else looked_at(patient)  # counters and the kernel's log have gone on
    after = replace(after, facts={**after.facts, **soaked.facts(ended_by())})
    now = measured(after, soaked.measurements)
    shelf = None if target or device == "cpu" else of_this_machine()
    diagnosis = diagnose(with_best(now, shelf) if shelf else now, book)
    findings = diagnosis.findings
    if device == "cpu":
        findings = new_findings(diagnosis, diagnose(before, book), book)
    known_enough = soaked.whole and (device == "cpu" or diagnosis.verdict != "unknown")
    return replace(diagnosis, findings=findings, verdict=verdict_of(findings, known_enough))


def benched(snapshot: Snapshot, measurements: Measurements, shelf: Shelf | None = None) -> Bench:
    """The measurements with their verdict, and the findings that appear only with them as facts.

    With a `shelf` the rates are compared with the best that it holds, and kept there.
    """
    from gpudoctor.kernels.facts import measured

    book = rulebook.load()
    now = measured(snapshot, measurements)
    diagnosis = diagnose(with_best(now, shelf) if shelf else now, book)
    findings = new_findings(diagnosis, diagnose(snapshot, book), book)
    because = "" if measurements.devices else _why_no_gpu(diagnosis)
    return Bench(measurements, bench_verdict(measurements, findings), findings, because)


def new_findings(now: Diagnosis, before: Diagnosis, book: rulebook.Rulebook) -> tuple[Finding, ...]:
    """The findings that were not there before, by id and title; none of rules that say that all is well."""
    known = {(finding.id, finding.title) for finding in before.findings}
    sound = {rule.id for rule in book.rules if rule.sound}
    return tuple(one for one in now.findings if (one.id, one.title) not in known and one.id not in sound)


def _why_no_gpu(diagnosis: Diagnosis) -> str:
    """Sentence that says why CUDA lists no GPU, and the first error found."""
    rows = diagnosis.snapshot.rows("cuda_device")
    why = "" if isinstance(rows, tuple) else f"{say(': ')}{phrase(rows.why)}"
    cause = next((finding for finding in diagnosis.findings if finding.severity == "error"), None)
    found = f"{say('; ')}gpudoctor explain {cause.id}{say(': ')}{cause.title}" if cause else ""
    return f"{say('no GPU that CUDA lists')}{why}{found}"

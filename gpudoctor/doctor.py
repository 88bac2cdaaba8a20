"""The path as one short function each: facts of this machine or of a pasted report, judged."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.collect import Collection, Event, Progress, collect
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.target import Target

if TYPE_CHECKING:
    from gpudoctor.model.bench import Bench
    from gpudoctor.model.diagnosis import Finding
    from gpudoctor.model.measurement import Measurements


def check(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
) -> Diagnosis:
    """Diagnose this machine. `python` is the interpreter whose torch is meant, `rules` folders of a site's own pages.

    Raises `DoctorError` for a broken page or an interpreter that is none; a sick machine raises nothing.
    """
    asked = _ask(target, level, python, progress)
    book = rulebook.load(rules)
    return diagnose(_deepened(asked, progress), book)


def watch(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
) -> Iterator[Diagnosis]:
    """As `check`, but a diagnosis whenever a source of facts has answered; the last one is that of `check`."""
    more: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()

    def hear(event: Event) -> None:
        progress(event)
        if event[1] != "started":
            more.put(None)

    asked = _ask(target, level, python, hear)
    book = rulebook.load(rules)
    whole: list[Snapshot] = []

    def wait() -> None:
        whole.append(_deepened(asked, progress, more.put, stop))
        more.put(None)

    stop = threading.Event()
    threading.Thread(target=wait, name="collect", daemon=True).start()
    try:
        while not whole:
            latest = more.get()
            while not more.empty():  # several at once are judged once
                latest = more.get() or latest
            if not whole:
                yield diagnose(latest or asked.so_far(), book)
        yield diagnose(whole[0], book)
    finally:
        stop.set()  # who hears no more wants nothing measured


def look(
    level: str = "standard",
    python: str | None = None,
    progress: Progress = lambda _: None,
    target: Target | None = None,
) -> Snapshot:
    """The facts of this machine, not judged yet; raises `DoctorError` for an interpreter that is none."""
    return _deepened(_ask(target, level, python, progress), progress)


def _deepened(
    asked: Collection,
    progress: Progress = lambda _: None,
    tell: Callable[[Snapshot], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Snapshot:
    """What the probes said and, at level deep, what every kernel measured after them; `tell` hears when one is over."""
    snapshot = asked.snapshot()
    if asked.target.level != "deep":
        return snapshot
    from gpudoctor import bench

    return bench.deepened(asked.target, snapshot, progress, tell, stop)


def bench(
    names: Sequence[str] = (),
    device: str = "",
    python: str | None = None,
    tell: Callable[[Measurements], None] = lambda _: None,
    stop: threading.Event | None = None,
    target: Target | None = None,
) -> Bench:
    """Run kernels (all of them, or those of these names) and judge what they measured, by the rules that read it.

    Raises `UsageError` for a kernel, a device or an interpreter that is none.
    """
    from gpudoctor import bench
    from gpudoctor.target.local import Local

    patient = target or Local("standard", python)
    plan = bench.Plan(names, device)
    snapshot = _looked_at(patient)
    found = bench.run(patient, snapshot, plan, tell, stop)
    return benched(snapshot, found)


def benched(snapshot: Snapshot, found: Measurements) -> Bench:
    """What the rules say of these measurements: what they find with them as facts and do not find without."""
    from gpudoctor import bench
    from gpudoctor.model.bench import Bench, verdict

    book = rulebook.load()
    before = {_told(finding) for finding in diagnose(snapshot, book).findings}
    diagnosis = diagnose(bench.measured(snapshot, found), book)
    before |= {_told(one) for one in diagnosis.findings if (rule := book.find(one.id)) and rule.sound}
    findings = tuple(one for one in diagnosis.findings if _told(one) not in before)
    because = "" if found.devices else _no_gpu(diagnosis)
    return Bench(found, verdict(found, findings), findings, because)


def _told(finding: Finding) -> tuple[str, str]:
    return finding.id, finding.title


def _no_gpu(diagnosis: Diagnosis) -> str:
    rows = diagnosis.snapshot.rows("cuda_device")
    why = "" if isinstance(rows, tuple) else f": {rows.why}"
    cause = next((one for one in diagnosis.findings if one.severity == "error"), None)
    return f"no GPU that CUDA lists{why}" + (f"; gpudoctor explain {cause.id}: {cause.title}" if cause else "")


def _looked_at(patient: Target) -> Snapshot:
    """What level quick asks, and CUDA's devices, which it lists from level standard on."""
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.target.local import Local

    if isinstance(patient, Local):
        patient.verify()
    return collect(patient, (module for module in modules_of(probes) if not hasattr(module, "LEVEL")))


_SLOWEST = ("nvml", "libcuda", "torch_live", "driver_kernels")
"""Probes that wait for a child: started first, their children work while the rest is imported and asked."""


def _ask(target: Target | None, level: str, python: str | None, progress: Progress) -> Collection:
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.target.local import Local

    patient = target or Local(level, python)
    asked = Collection(patient, modules_of(probes, first=_SLOWEST), progress)
    if isinstance(patient, Local):
        patient.verify()
    return asked


def read(text: str, name: str = "report", rules: Sequence[Path] = ()) -> Diagnosis:
    """Diagnose a pasted report, a log, a saved snapshot or a record; raises `DoctorError` for what is none of these."""
    return judged(text, name, rulebook.load(rules))


def judged(text: str, name: str, book: rulebook.Rulebook) -> Diagnosis:
    """As `read`, by a rulebook that is loaded. The document of a fleet is taken as it is: its facts are not all that
    it rests on, for each of its hosts was judged by itself.
    """
    return _fleet_in(text, name) or diagnose(snapshot_of(text, name), book)


def _fleet_in(text: str, name: str) -> Diagnosis | None:
    from gpudoctor.model.diagnosis import from_json
    from gpudoctor.model.fleet import SCHEMA
    from gpudoctor.model.parsing import parsed

    if not text.lstrip("\ufeff \t\r\n").startswith("{") or f'"{SCHEMA}"' not in text:
        return None
    try:
        diagnosis = from_json(parsed(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    return diagnosis if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet" else None


def snapshot_of(text: str, name: str = "report") -> Snapshot:
    """The facts in a pasted report or a saved file; those of a recorded machine are asked anew."""
    from gpudoctor.target import record_json

    if record_json.is_record(text):
        return _replayed(text, name)
    from gpudoctor.catalog import catalog
    from gpudoctor.readers import read_text

    snapshot = read_text(text, name)
    if snapshot.target.kind in {"snapshot", "fleet"}:  # what a reader made of a paste is of its kind already
        for misfit in catalog().misfits(snapshot):
            raise DocumentError(f"{name}: {misfit}; save it again with gpudoctor snapshot")
    return snapshot


def _replayed(text: str, name: str) -> Snapshot:
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.target import record_json
    from gpudoctor.target.recorded import Recorded

    try:
        replay = Recorded(record_json.parse(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    with replay as target:
        snapshot = _deepened(Collection(target, modules_of(probes)))
    return replace(snapshot, target=replace(snapshot.target, kind="snapshot"))


def diagnose(snapshot: Snapshot, book: rulebook.Rulebook, today: str = "") -> Diagnosis:
    """Judge the facts there are, and those that follow from them by the tables.

    `today` (2026-11-21; by default the clock's) tells how old the tables are.
    """
    from gpudoctor.judge import judge
    from gpudoctor.judge.notes import noted
    from gpudoctor.knowledge import complete

    return noted(judge(complete(snapshot), book), book, today or time.strftime("%Y-%m-%d", time.gmtime()))

"""The path as one short function each: facts of this machine or of a pasted report, judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.collect import Collection, Event, Progress, collect
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DocumentError, UsageError
from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import replace
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.target import Target

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.model.bench import Bench
    from gpudoctor.model.diagnosis import Finding
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.remedy.site import Site


def check(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
) -> Diagnosis:
    """Diagnose this machine. `python` is the interpreter whose torch is meant, `rules` folders of a site's own pages,
    `expect` a profile of what the machine must be: a file, or the name of one that ships.

    Raises `DoctorError` for a broken page or profile, or an interpreter that is none; a sick machine raises nothing.
    """
    profile = expected(expect)
    asked = _ask(target, level, python, progress)
    book = rulebook.load(rules)
    diagnosis = diagnose(_deepened(asked, progress), book, profile=profile)
    return diagnosis if target else _kept(diagnosis)


def expected(expect: str | Profile | None) -> Profile | None:
    """The profile of that file or name; raises `UsageError` for what is none."""
    if not isinstance(expect, str):
        return expect
    from gpudoctor.expect import load

    return load(expect)


def _kept(diagnosis: Diagnosis) -> Diagnosis:
    """With what changed since this machine worked, by the runs of it that are kept; and this one is kept, too."""
    try:
        from gpudoctor import history

        if shelf := history.of_this_machine():
            return history.kept(diagnosis, shelf)
    except Exception:  # a full disk, a home that is not ours, files that are none: no matter of the check
        pass
    return diagnosis


def site(level: str = "standard", python: str | None = None, rules: Sequence[Path] = ()) -> Site:
    """This machine as a place where plans are run: the environment that may be changed, and who judges it again."""
    from gpudoctor.remedy.site import Site, state_folder
    from gpudoctor.target.local import Local

    patient = Local(level, python)
    patient.verify()
    return Site(state_folder(), patient.python, lambda: check(level, python, rules))


def watch(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
) -> Iterator[Diagnosis]:
    """As `check`, but a diagnosis whenever a source of facts has answered; the last one is that of `check`."""
    import queue

    profile = expected(expect)
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
                yield diagnose(latest or asked.so_far(), book, profile=profile)
        last = diagnose(whole[0], book, profile=profile)
        yield last if target else _kept(last)
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


def read(text: str, name: str = "report", rules: Sequence[Path] = (), expect: str | Profile | None = None) -> Diagnosis:
    """Diagnose a pasted report, a log, a saved snapshot or a record; raises `DoctorError` for what is none of these."""
    return judged(text, name, rulebook.load(rules), profile=expected(expect))


def judged(
    text: str,
    name: str,
    book: rulebook.Rulebook,
    machine: Snapshot | None = None,
    profile: Profile | None = None,
) -> Diagnosis:
    """As `read`, by a rulebook that is loaded, and for the machine that a manifest is meant for.

    The document of a fleet is taken as it is: its facts are not all that it rests on, for each of its hosts was judged
    by itself.
    """
    return _fleet_in(text, name) or diagnose(on_machine(snapshot_of(text, name), machine), book, profile=profile)


_OF_THE_IMAGE = ("host.distribution", "host.distribution_version", "host.glibc", "host.os", "host.package_manager")
"""What a container has from its image, whatever the machine under it has."""


def on_machine(manifest: Snapshot, machine: Snapshot | None) -> Snapshot:
    """The facts of both: what a manifest brings along (its Python, its system) counts before the machine's own.

    Raises `UsageError` for a file that is no manifest: what a report says is of a machine already.
    """
    if machine is None:
        return manifest
    from gpudoctor.readers import together

    name = manifest.target.name
    if not isinstance(manifest.get("manifest.kind"), Known):
        raise UsageError(
            f"{name} does not say what is to be installed: --for does not go with it; it goes with requirements*.txt,"
            " pyproject.toml, a lock, environment.yml, a Dockerfile, compose.yaml or a pod's manifest"
        )
    from gpudoctor.knowledge.manifests import with_images

    if isinstance(manifest.rows("service"), tuple):
        hidden = (*_OF_THE_IMAGE, *(["python.version"] if machine.target.kind == "local" else []))
        facts = {name: fact for name, fact in machine.facts.items() if name not in hidden}
        machine = replace(machine, facts=facts)
    target = replace(manifest.target, name=f"{name} on {machine.target.name}")
    return replace(together([machine, with_images(manifest)]), target=target)


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


def judging(rules: Sequence[Path] = ()) -> Callable[[Snapshot], Diagnosis]:
    """What every rule says of a snapshot that is complete: whoever plans a cure asks it what would come of that."""
    from gpudoctor.judge import judge

    book = rulebook.load(rules)
    return lambda snapshot: judge(snapshot, book)


def diagnose(snapshot: Snapshot, book: rulebook.Rulebook, today: str = "", profile: Profile | None = None) -> Diagnosis:
    """Judge the facts there are, and those that follow from them by the tables; then what a profile expects of them.

    `today` (2026-11-21; by default the clock's) tells how old the tables are.
    """
    from gpudoctor.history.since import dated
    from gpudoctor.judge import judge
    from gpudoctor.judge.manifests import for_file
    from gpudoctor.judge.notes import noted
    from gpudoctor.knowledge import complete

    day = today or time.strftime("%Y-%m-%d", time.gmtime())
    diagnosis = dated(noted(for_file(judge(complete(snapshot), book)), book, day))
    if profile is None:
        return diagnosis
    from gpudoctor.expect import held_to

    return held_to(diagnosis, profile, book)

"""The path as one short function each: `check` asks this machine, `read` a text, and both have the facts judged."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.collect import Collection
from gpudoctor.doctor.asking import ask, deepened, look
from gpudoctor.doctor.diagnosing import diagnose, judging
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DocumentError, UsageError
from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import replace
from gpudoctor.model.snapshot import Event, Progress, Snapshot
from gpudoctor.target import Target

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.remedy.site import Site

__all__ = [
    "check",
    "diagnose",
    "expected",
    "judged",
    "judging",
    "look",
    "on_machine",
    "read",
    "site",
    "snapshot_of",
    "watch",
]


def check(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
    wait: float | None = None,
) -> Diagnosis:
    """Diagnose this machine. `python` is the interpreter whose torch is meant, `rules` folders of a site's own pages,
    `expect` a profile of what the machine must be: a file, or the name of one that ships; `wait` the most seconds that
    GPUs may take to wake.

    Raises `DoctorError` for a broken page or profile, or an interpreter that is none; a sick machine raises nothing.
    """
    profile = expected(expect)
    asked = ask(target, level, python, progress, wait)
    book = rulebook.load(rules)
    diagnosis = diagnose(deepened(asked, progress), book, profile=profile)
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
    from gpudoctor.target import rights
    from gpudoctor.target.local import Local

    patient = Local(level, python)
    patient.verify()
    own = patient.python if patient.python and not rights.foreign(patient.python) else None
    return Site(state_folder(), own, lambda: check(level, python, rules), rights.closed(os.environ))


def watch(
    level: str = "standard",
    python: str | None = None,
    rules: Sequence[Path] = (),
    progress: Progress = lambda _: None,
    target: Target | None = None,
    expect: str | Profile | None = None,
    wait: float | None = None,
) -> Iterator[Diagnosis]:
    """As `check`, but a diagnosis whenever a source of facts has answered; the last one is that of `check`."""
    import queue

    profile = expected(expect)
    more: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()

    def hear(event: Event) -> None:
        progress(event)
        if event.state not in {"started", "working"}:
            more.put(None)

    asked = ask(target, level, python, hear, wait)
    book = rulebook.load(rules)
    whole: list[Snapshot] = []

    def collecting() -> None:
        whole.append(deepened(asked, progress, more.put, stop))
        more.put(None)

    stop = threading.Event()
    threading.Thread(target=collecting, name="collect", daemon=True).start()
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
    return fleet_in(text, name) or diagnose(on_machine(snapshot_of(text, name), machine), book, profile=profile)


# ---- The facts in a text ----
# A pasted report, a saved snapshot, a recorded machine, a manifest and where it is to run.

_OF_THE_IMAGE = ("host.distribution", "host.distribution_version", "host.glibc", "host.os", "host.package_manager")
"""What a container has from its image, whatever the machine under it has."""


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
        snapshot = deepened(Collection(target, modules_of(probes)))
    return replace(snapshot, target=replace(snapshot.target, kind="snapshot"))


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


def fleet_in(text: str, name: str) -> Diagnosis | None:
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

"""A text instead of a machine: a pasted report, a log, a saved snapshot, a record or a manifest, read and diagnosed.

`snapshot_of` stops at the facts; `on_machine` joins those of a manifest with those of the machine that it is meant for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import probes
from gpudoctor.app import pipeline
from gpudoctor.core.diagnosis import Diagnosis, from_json
from gpudoctor.core.document import parse_json
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.core.fleet import SCHEMA
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.probes import Collection
from gpudoctor.readers import merge_snapshots, read_file, read_text
from gpudoctor.target import record

if TYPE_CHECKING:
    from gpudoctor.diagnosis.expect import Profile


def read(text: str, name: str = "report", rules: Sequence[Path] = (), expect: str | Profile | None = None) -> Diagnosis:
    """Diagnose a pasted report, a log, a saved snapshot, a record or a manifest; a text in which nothing is recognised
    has the verdict unknown.

    Raises `DocumentError` for a broken document, `UsageError` or `RuleError` for a broken profile or page.
    """
    return diagnose_text(text, name, rulebook.load(rules), profile=pipeline.expected(expect))


def diagnose_text(
    text: str,
    name: str,
    book: rulebook.Rulebook,
    machine: Snapshot | None = None,
    profile: Profile | None = None,
) -> Diagnosis:
    """Diagnose a text as `read` does, with a loaded rulebook, and for the `machine` that a manifest is meant for.

    The document of a fleet is returned as it is: each of its hosts was judged by itself already.
    """
    return fleet_in(text, name) or pipeline.diagnose(
        on_machine(snapshot_of(text, name), machine), book, profile=profile
    )


def diagnose_files(
    names: Sequence[str],
    book: rulebook.Rulebook,
    machine: Snapshot | None = None,
    profile: Profile | None = None,
) -> Diagnosis:
    """Diagnose files that are of one machine, together; raises `DoctorError` for what cannot be read."""
    texts = [(read_file(name), name) for name in names]
    if len(texts) == 1:
        return diagnose_text(*texts[0], book, machine, profile)
    whole = merge_snapshots([snapshot_of(text, name) for text, name in texts])
    return pipeline.diagnose(on_machine(whole, machine), book, profile=profile)


# ---- The facts in a text ----
# A pasted report, a saved snapshot, a recorded machine, a manifest and where it is to run.

_FROM_IMAGE = ("host.distribution", "host.distribution_version", "host.glibc", "host.os", "host.package_manager")
"""What a container has from its image, whatever the machine under it has."""


def snapshot_of(text: str, name: str = "report") -> Snapshot:
    """The facts in a pasted report or saved file; a record of a machine is probed again.

    Raises `DocumentError` for a document that is broken or does not fit the catalogue of facts.
    """
    if record.is_record(text):
        return _snapshot_of_record(text, name)
    snapshot = read_text(text, name)
    if snapshot.target.kind in {"snapshot", "fleet"}:  # what a reader made of a paste is of its kind already
        for misfit in catalog().misfits(snapshot):
            raise DocumentError(
                say("{name}: {misfit}; save it again with gpudoctor snapshot", name=name, misfit=misfit)
            )
    return snapshot


def _snapshot_of_record(text: str, name: str) -> Snapshot:
    """Run the probes on a recorded machine; the snapshot they give. Raises `DocumentError` for a broken record."""
    from gpudoctor.target.recorded import Recorded  # with tempfile: a pasted report has none

    try:
        replay = Recorded(record.parse(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    with replay as target:
        snapshot = pipeline.deepened(Collection(target, probes.declared()))
    return replace(snapshot, target=replace(snapshot.target, kind="snapshot"))


def on_machine(manifest: Snapshot, machine: Snapshot | None) -> Snapshot:
    """Facts of manifest and machine together; the manifest's own (its Python, its system) win.

    With `machine` None the manifest is returned unchanged. Raises `UsageError` for a file that is no manifest: what a
    report says is of a machine already.
    """
    if machine is None:
        return manifest
    name = manifest.target.name
    if not manifest.known("manifest.kind"):
        raise UsageError(
            say(
                "{name} does not say what is to be installed: --for does not go with it; it goes with"
                " requirements*.txt, pyproject.toml, a lock, environment.yml, a Dockerfile,"
                " compose.yaml or a pod's manifest",
                name=name,
            )
        )
    from gpudoctor.diagnosis.knowledge.manifests import with_images  # much, and for manifests alone

    if isinstance(manifest.rows("service"), tuple):
        hidden = (*_FROM_IMAGE, *(["python.version"] if machine.target.kind == "local" else []))
        facts = {name: fact for name, fact in machine.facts.items() if name not in hidden}
        machine = replace(machine, facts=facts)
    target = replace(manifest.target, name=f"{name} on {machine.target.name}")
    return replace(merge_snapshots([machine, with_images(manifest)]), target=target)


def fleet_in(text: str, name: str) -> Diagnosis | None:
    """The diagnosis in a fleet's document, None for any other text; raises `DocumentError` if it is broken."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{") or f'"{SCHEMA}"' not in text:
        return None
    try:
        diagnosis = from_json(parse_json(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    return diagnosis if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet" else None

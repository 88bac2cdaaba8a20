"""The facts in a text: a pasted report, a saved snapshot, a recorded machine, a manifest and where it is to run."""

from __future__ import annotations

from gpudoctor.collect import Collection
from gpudoctor.doctor.asking import deepened
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DocumentError, UsageError
from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import replace
from gpudoctor.model.snapshot import Snapshot

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

"""What a diagnosis of a manifest says otherwise than that of a machine: its cures are lines to change, not commands.

Cures that change an environment give way to the lines that fit; those of driver, engine and variables stay, for the
machine that the manifest is meant for needs them all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.knowledge._tables import table
from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Finding, Note
from gpudoctor.model.fact import Known, Unread
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Fix
from gpudoctor.model.snapshot import Snapshot

_INSTALLED = ("torch", "ext", "cuda", "cudnn", "frameworks")
"""Layers whose cures install packages."""
_ASK = "To judge it for a machine: gpudoctor read {name} --for 'gpu=RTX 5090,driver=570,python=3.12', or --for here."


def for_file(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis as it is, or of a manifest with cures for a file and what could not be told of it."""
    snapshot = diagnosis.snapshot
    kind = snapshot.get("manifest.kind")
    if not isinstance(kind, Known):
        return diagnosis
    from gpudoctor.setup.in_file import in_file  # the solver is imported for nothing else

    cure = in_file(snapshot, str(kind.value)) if any(_installs(finding) for finding in diagnosis.findings) else None
    findings = tuple(_for_file(finding, cure) for finding in diagnosis.findings)
    return replace(diagnosis, findings=findings, notes=(*_notes(snapshot), *diagnosis.notes))


def _installs(finding: Finding) -> bool:
    return finding.layer in _INSTALLED and any(_in_environment(fix) for fix in finding.fixes)


def _in_environment(fix: Fix) -> bool:
    return any(step.touches == "environment" for step in fix.steps)


def _for_file(finding: Finding, cure: Fix | None) -> Finding:
    if cure is None or finding.layer not in _INSTALLED:
        return finding
    kept = tuple(fix for fix in finding.fixes if not _in_environment(fix))
    return replace(finding, fixes=(cure, *kept) if _installs(finding) else kept, confirm="")


def _notes(snapshot: Snapshot) -> Iterator[Note]:
    elsewhere, unsure = snapshot.get("manifest.elsewhere"), snapshot.get("manifest.open")
    if isinstance(elsewhere, Known) and isinstance(elsewhere.value, tuple):
        names = ", ".join(map(str, elsewhere.value))
        says = "Not read: {names}. Files that belong together are read together: gpudoctor read --together."
        yield Note(("manifest.elsewhere",), say(says, names=names))
    said = list(map(str, unsure.value)) if isinstance(unsure, Known) and isinstance(unsure.value, tuple) else []
    torch, archs = snapshot.get("torch.version"), snapshot.get("torch.archs")
    if isinstance(torch, Known) and isinstance(archs, Unread) and isinstance(snapshot.get("torch.cuda"), Known):
        said.append(f"which GPUs torch {torch.value} has code for: its wheel is not in the tables")
    said += [
        f"what {name} is: no table has a GPU of that name; gpudoctor explain gpus lists them"
        for name in _unheard_of(snapshot)
    ]
    untold = "whether {name} goes with that torch: the tables have no such release of it"
    said += [untold.format(name=name) for name in _untold(snapshot)]
    if said:
        yield Note(("manifest.open",), say("Not told: {what}.", what="; ".join(said)))
    if isinstance(snapshot.rows("gpu"), Unread) and isinstance(snapshot.get("driver.version"), Unread):
        yield Note((), say(_ASK, name=snapshot.target.name))


def _unheard_of(snapshot: Snapshot) -> list[str]:
    """The names of GPUs from which no table tells the compute capability."""
    rows = snapshot.rows("gpu")
    named = [row for row in rows if isinstance(row.get("name"), Known)] if isinstance(rows, tuple) else []
    bare = [row["name"] for row in named if not isinstance(row.get("compute_capability"), Known)]
    return list(dict.fromkeys(str(name.value) for name in bare if isinstance(name, Known)))


def _untold(snapshot: Snapshot) -> list[str]:
    """Of packages that are built for one torch those whose release no table has: ``vllm 0.10.1``."""
    rows = snapshot.rows("package")
    told = table("companions")
    found = []
    for row in rows if isinstance(rows, tuple) else ():
        name, version = row.get("name"), row.get("version")
        if isinstance(name, Known) and isinstance(version, Known):
            releases = told.get(str(name.value).replace("-", "_"))
            known = [one.get("version") for one in releases if "torch" in one] if isinstance(releases, list) else []
            if any(known) and str(version.value).partition("+")[0] not in known:
                found.append(f"{name.value} {version.value}")
    return found

"""What a diagnosis of a manifest says otherwise than that of a machine: its cures are lines to change, not commands.

Cures that change an environment give way to the lines that fit; those of driver, engine and variables stay, for the
machine that the manifest is meant for needs them all the same.
"""

from __future__ import annotations

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Fix

_INSTALLED = ("torch", "ext", "cuda", "cudnn", "frameworks")
"""Layers whose cures install packages."""


def for_file(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis as it is, or of a manifest with cures for a file and what could not be told of it."""
    snapshot = diagnosis.snapshot
    kind = snapshot.get("manifest.kind")
    if not isinstance(kind, Known):
        return diagnosis
    from gpudoctor.judge.file_notes import notes
    from gpudoctor.setup.in_file import in_file  # the solver is imported for nothing else

    cure = in_file(snapshot, str(kind.value)) if any(_installs(finding) for finding in diagnosis.findings) else None
    findings = tuple(_for_file(finding, cure) for finding in diagnosis.findings)
    return replace(diagnosis, findings=findings, notes=(*notes(snapshot), *diagnosis.notes))


def _installs(finding: Finding) -> bool:
    return finding.layer in _INSTALLED and any(_in_environment(fix) for fix in finding.fixes)


def _in_environment(fix: Fix) -> bool:
    return any(step.touches == "environment" for step in fix.steps)


def _for_file(finding: Finding, cure: Fix | None) -> Finding:
    if cure is None or finding.layer not in _INSTALLED:
        return finding
    kept = tuple(fix for fix in finding.fixes if not _in_environment(fix))
    return replace(finding, fixes=(cure, *kept) if _installs(finding) else kept, confirm="")

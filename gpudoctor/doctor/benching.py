"""Kernels run, and what they measured judged by the rules that read it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.doctor.asking import looked_at
from gpudoctor.doctor.diagnosing import diagnose
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.target import Target

if TYPE_CHECKING:
    from gpudoctor.model.bench import Bench
    from gpudoctor.model.diagnosis import Diagnosis, Finding
    from gpudoctor.model.measurement import Measurements


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
    snapshot = looked_at(patient)
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

"""Kernels that were run, and what the rules that read their results say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from gpudoctor.model.diagnosis import Finding, Verdict
from gpudoctor.model.fact import Json
from gpudoctor.model.measurement import Measurements


@dataclass(frozen=True, slots=True)
class Bench:
    """`because` says why nothing could be measured, where that is so."""

    found: Measurements
    verdict: Verdict
    findings: tuple[Finding, ...]
    because: str = ""

    def to_json(self) -> dict[str, Json]:
        """The document of the measurements, with verdict and findings as a diagnosis has them."""
        more: dict[str, object] = {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            **({"because": self.because} if self.because else {}),
        }
        return {**self.found.to_json(), **cast("dict[str, Json]", more)}


def verdict(found: Measurements, findings: Sequence[Finding]) -> Verdict:
    """Broken where a value is wrong, a kernel failed or an error was found; unknown where nothing ran, or one of them
    was given up.
    """
    states = {found.state(run) for run in found.runs}
    if states & {"wrong", "failed"} or any(finding.severity == "error" for finding in findings):
        return "broken"
    given_up = any(run.status == "not-run" and run.details.get("unfinished") for run in found.runs)
    if given_up or not any(run.status == "ran" for run in found.runs):
        return "unknown"
    return "impaired" if any(finding.severity == "warning" for finding in findings) else "sound"

"""The verdict as metrics for node_exporter's textfile collector: what to alert on, and what was found on which GPU.

Names follow https://prometheus.io/docs/practices/naming/ (2026-11): base units, ``_info`` for what is but a label. The
number of series is bounded: by the rules, the GPUs of a machine and `MOST_FINDINGS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from gpudoctor.model.diagnosis import Diagnosis, Finding, Verdict
from gpudoctor.model.fact import Known
from gpudoctor.model.fleet import Fleet
from gpudoctor.views._terminal import one_line

MOST_FINDINGS = 1000
"""Series of findings that are written, the first of the diagnosis: its root causes are among them."""
_LONGEST = 120
_INFO = {
    "driver": "driver.version",
    "cuda": "driver.cuda_version",
    "torch": "torch.version",
    "python": "python.version",
}
"""Labels of `gpudoctor_info`, and the facts they are of; empty where that is not known."""

Labels = Mapping[str, str]
Series = Iterable[tuple[Labels, float]]


def render(diagnosis: Diagnosis, at: float | None = None, seconds: float | None = None) -> str:
    """All metrics in the text format, in ASCII, ending without a newline.

    `at` is when it was checked, in seconds of the Unix clock, and `seconds` how long that took.
    """
    return "\n".join(line for metric in _metrics(diagnosis, at, seconds) for line in _written(*metric))


def _metrics(diagnosis: Diagnosis, at: float | None, seconds: float | None) -> Iterator[tuple[str, str, Series]]:
    """Name, help and series of each."""
    rules = {
        "found": len({finding.id for finding in diagnosis.findings}),
        "unjudged": len(diagnosis.unjudged),
        "passed": len(diagnosis.passed),
    }
    yield "info", "What was checked, and by which version of gpudoctor.", [(_info(diagnosis), 1)]
    yield (
        "verdict",
        "1 for the verdict: sound, impaired (warnings), broken (errors) or unknown (too little could be read).",
        [({"verdict": word}, word == diagnosis.verdict) for word in get_args(Verdict)],
    )
    yield (
        "finding",
        f"What was found, how many times; gpu is empty where it is about the machine. The first {MOST_FINDINGS}.",
        _findings(diagnosis),
    )
    yield "rules", "Rules by what came of them.", [({"state": state}, count) for state, count in rules.items()]
    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        yield "hosts", "Hosts of the fleet by what became of them.", _hosts(diagnosis.fleet)
    if at is not None:
        yield "check_timestamp_seconds", "When the check was over, in seconds since 1970.", [({}, round(at, 3))]
    if seconds is not None:
        yield "check_duration_seconds", "How long the check took.", [({}, round(seconds, 3))]


def _info(diagnosis: Diagnosis) -> Labels:
    known = {label: diagnosis.snapshot.get(fact) for label, fact in _INFO.items()}
    return {
        "version": diagnosis.tool_version,
        "level": diagnosis.snapshot.target.level,
        **{label: str(state.value) if isinstance(state, Known) else "" for label, state in known.items()},
    }


def _findings(diagnosis: Diagnosis) -> Series:
    """Findings that have the same labels are one series, whose value is how many they are."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for finding in diagnosis.findings:
        for gpu, uuid in _gpus(finding):
            key = (finding.id, finding.severity, gpu, uuid)
            if key in counts or len(counts) < MOST_FINDINGS:
                counts[key] = counts.get(key, 0) + 1
    names = ("id", "severity", "gpu", "uuid")
    return [(dict(zip(names, key, strict=True)), count) for key, count in counts.items()]


def _gpus(finding: Finding) -> list[tuple[str, str]]:
    """The number and the UUID of each GPU that it is about; empty where it is about none, or where it has none."""
    gpus = [subject for subject in finding.subjects if isinstance(subject.get("gpu"), int)]
    return [(str(gpu["gpu"]), str(gpu.get("uuid") or "")) for gpu in gpus] or [("", "")]


def _hosts(fleet: Fleet) -> Series:
    silent = sum(not host.answered for host in fleet.hosts)
    counts = {"sound": len(fleet.sound), "to_drain": len(fleet.drained), "silent": silent, "all": len(fleet.hosts)}
    return [({"state": state}, count) for state, count in counts.items()]


def _written(name: str, about: str, series: Series) -> Iterator[str]:
    yield f"# HELP gpudoctor_{name} {about}"
    yield f"# TYPE gpudoctor_{name} gauge"
    for labels, value in series:
        said = ",".join(f'{label}="{_label(word)}"' for label, word in labels.items())
        yield f"gpudoctor_{name}{f'{{{said}}}' if said else ''} {float(value):.15g}"


def _label(word: str) -> str:
    """Foreign text between quotes: short, on one line, and in ASCII, whatever encoding the file is read in."""
    plain = one_line(word)[:_LONGEST].encode("ascii", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"')

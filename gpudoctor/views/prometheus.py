"""The verdict as metrics for node_exporter's textfile collector: what to alert on, and what was found on which GPU.

Names follow https://prometheus.io/docs/practices/naming/ (2026-11): base units, ``_info`` for what is but a label. The
number of series is bounded: by the rules, the GPUs of a machine and `MOST_FINDINGS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from gpudoctor.core.diagnosis import Diagnosis, Verdict
from gpudoctor.core.fleet import Fleet
from gpudoctor.views._terminal import one_line

MOST_FINDINGS = 1000
"""Series of findings that are written, the first of the diagnosis: its root causes are among them."""
_LONGEST_LABEL = 120
_FACT_BY_LABEL = {
    "driver": "driver.version",
    "cuda": "driver.cuda_version",
    "torch": "torch.version",
    "python": "python.version",
}
"""Labels of `gpudoctor_info`, and the facts they are of; empty where that is not known."""

Labels = Mapping[str, str]
Series = Iterable[tuple[Labels, float]]


def render(diagnosis: Diagnosis, at: float | None = None, seconds: float | None = None) -> str:
    """All metrics of the diagnosis in Prometheus' text format, in ASCII, ending without a newline.

    `at` is when it was checked, in seconds of the Unix clock, and `seconds` how long that took.
    """
    return "\n".join(line for metric in _metrics(diagnosis, at, seconds) for line in _metric_lines(*metric))


def _metrics(diagnosis: Diagnosis, at: float | None, seconds: float | None) -> Iterator[tuple[str, str, Series]]:
    """(name without prefix, help text, series) of each metric; time and duration of the check only if given."""
    rule_counts = {
        "found": len({finding.id for finding in diagnosis.findings}),
        "unjudged": len(diagnosis.unjudged),
        "passed": len(diagnosis.passed),
    }
    yield "info", "What was checked, and by which version of gpudoctor.", [(_info_labels(diagnosis), 1)]
    yield (
        "verdict",
        "1 for the verdict: sound, impaired (warnings), broken (errors) or unknown (too little could be read).",
        [({"verdict": word}, word == diagnosis.verdict) for word in get_args(Verdict)],
    )
    yield (
        "finding",
        f"What was found, how many times; gpu is empty where it is about the machine. The first {MOST_FINDINGS}.",
        _finding_series(diagnosis),
    )
    yield "rules", "Rules by what came of them.", [({"state": state}, count) for state, count in rule_counts.items()]
    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        yield "hosts", "Hosts of the fleet by what became of them.", _host_series(diagnosis.fleet)
    if at is not None:
        yield "check_timestamp_seconds", "When the check was over, in seconds since 1970.", [({}, round(at, 3))]
    if seconds is not None:
        yield "check_duration_seconds", "How long the check took.", [({}, round(seconds, 3))]


def _info_labels(diagnosis: Diagnosis) -> Labels:
    """Labels of the metric `gpudoctor_info`: versions and level; unknown versions are empty."""
    return {
        "version": diagnosis.tool_version,
        "level": diagnosis.snapshot.target.level,
        **{label: diagnosis.snapshot.text(fact) for label, fact in _FACT_BY_LABEL.items()},
    }


def _finding_series(diagnosis: Diagnosis) -> Series:
    """(labels, number of findings) for each rule id, severity and GPU, for the first `MOST_FINDINGS` combinations."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for finding in diagnosis.findings:
        gpus = [subject for subject in finding.subjects if isinstance(subject.get("gpu"), int)]
        for gpu, uuid in [(str(one["gpu"]), str(one.get("uuid") or "")) for one in gpus] or [("", "")]:
            key = (finding.id, finding.severity, gpu, uuid)
            if key in counts or len(counts) < MOST_FINDINGS:
                counts[key] = counts.get(key, 0) + 1
    names = ("id", "severity", "gpu", "uuid")
    return [(dict(zip(names, key, strict=True)), count) for key, count in counts.items()]


def _host_series(fleet: Fleet) -> Series:
    """(labels, count) of the fleet's hosts by state: sound, to drain, silent, and all."""
    silent = sum(not host.answered for host in fleet.hosts)
    counts = {"sound": len(fleet.sound), "to_drain": len(fleet.drained), "silent": silent, "all": len(fleet.hosts)}
    return [({"state": state}, count) for state, count in counts.items()]


def _metric_lines(name: str, help_text: str, series: Series) -> Iterator[str]:
    """HELP and TYPE lines, even without samples, and the samples of one metric, which is a gauge."""
    yield f"# HELP gpudoctor_{name} {help_text}"
    yield f"# TYPE gpudoctor_{name} gauge"
    for labels, value in series:
        label_text = ",".join(f'{label}="{_escaped_label(label_value)}"' for label, label_value in labels.items())
        yield f"gpudoctor_{name}{f'{{{label_text}}}' if label_text else ''} {float(value):.15g}"


def _escaped_label(text: str) -> str:
    """Foreign text as a label's value: at most `_LONGEST_LABEL` characters, one line, ASCII, escaped."""
    plain = one_line(text)[:_LONGEST_LABEL].encode("ascii", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"')

"""Summaries as tables: the groups of facts that pages read, and hosts by checks for the cluster screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gpudoctor.cluster.fleet.findings import FOLDED
from gpudoctor.cluster.fleet.names import names_phrase
from gpudoctor.cluster.fleet.outliers import FEWEST, Outlier, Split
from gpudoctor.cluster.fleet.summary import Summary
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.fleet import FACTS, OK, Check, Host, Outcome, Result
from gpudoctor.core.rule import LAYERS, SEVERITIES

_DOCUMENTS = "the hosts' documents"
_MOST_REASONS = 20
"""Reasons of silence that are told apart; what more there are stand together."""


def facts_of(hosts: Sequence[Summary]) -> dict[str, Fact]:
    """Facts about the fleet: number of hosts asked and answered, and the names of those without an answer."""
    silent = tuple(host.host for host in hosts if not host.answered)
    return {
        "fleet.hosts": Known(len(hosts), _DOCUMENTS),
        "fleet.answered": Known(len(hosts) - len(silent), _DOCUMENTS),
        "fleet.silent": Known(silent, _DOCUMENTS),
    }


def job_facts_unread() -> tuple[dict[str, Fact], dict[str, Rows]]:
    """Facts and groups that only a job check (preflight) provides, all as Unread."""
    why = Unread("each host was asked alone; gpudoctor preflight asks the ranks of a job together")
    theirs = [spec for spec in FACTS if not spec.name.startswith(FOLDED)]
    return (
        {spec.name: why for spec in theirs if not spec.group},
        {spec.name.rpartition(".")[0]: why for spec in theirs if spec.group},
    )


def groups_of(hosts: Sequence[Summary], outliers: Sequence[Outlier], splits: Sequence[Split]) -> dict[str, Rows]:
    """Groups of the fleet snapshot: ``machine``, ``silence``, ``outlier`` and ``split``, one row per item.
    Outliers and splits are Unread if fewer than `FEWEST` hosts answered.
    """
    few = sum(host.answered for host in hosts) < FEWEST
    nothing = Unread(f"fewer than {FEWEST} hosts answered")
    return {
        "machine": tuple(map(_machine_row, hosts)),
        "silence": tuple(_silence_rows(hosts)),
        "outlier": nothing if few else tuple(map(_outlier_row, outliers)),
        "split": nothing if few else tuple(map(_split_row, splits)),
    }


def _machine_row(host: Summary) -> Row:
    """Row of the group ``machine``; all but its name and switch is Unread if the host did not answer."""
    silence = Unread(host.because)
    errors, warnings = (
        tuple(finding.id for finding in host.findings if finding.severity == severity)
        for severity in ("error", "warning")
    )
    columns: dict[str, Fact] = {
        "verdict": Known(host.verdict, "its diagnosis"),
        "errors": Known(errors, "its diagnosis"),
        "warnings": Known(warnings, "its diagnosis"),
        "gpus": Known(host.gpus, "its diagnosis"),
        "gpu": _known_or_absent(host.gpu, "no GPU"),
        "image": _known_or_absent(host.values.get("host.os", ""), "not told"),
    }
    return {
        "name": Known(host.host, _DOCUMENTS),
        "answered": Known(host.answered, _DOCUMENTS),
        "because": Absent("it answered") if host.answered else Known(host.because, _DOCUMENTS),
        "switch": _known_or_absent(host.switch, "nobody told"),
        **(columns if host.answered else dict.fromkeys(columns, silence)),
    }


def _silence_rows(hosts: Sequence[Summary]) -> list[Row]:
    """Rows of the group ``silence``: hosts without an answer by reason, largest first; beyond 20 reasons merged into
    one.
    """
    reasons: dict[str, list[str]] = {}
    for host in hosts:
        if not host.answered:
            reasons.setdefault(host.because, []).append(host.host)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    if rest := ordered[_MOST_REASONS:]:
        ordered = [*ordered[:_MOST_REASONS], ("various reasons", [name for _, names in rest for name in names])]
    return [
        _known_row(
            {
                "because": why,
                "hosts": tuple(names),
                "names": names_phrase(names),
                "first": names[0],
                "count": len(names),
            }
        )
        for why, names in ordered
    ]


def _outlier_row(outlier: Outlier) -> Row:
    """Row of the group ``outlier``: fact, value, usual value and hosts; kind and share are Absent where not set."""
    return {
        **_known_row(
            {
                "fact": outlier.fact,
                "about": outlier.about,
                "value": outlier.value,
                "usual": outlier.usual,
                "hosts": outlier.hosts,
                "names": names_phrase(outlier.hosts),
                "count": len(outlier.hosts),
                "of": outlier.of,
                "matters": outlier.matters,
            }
        ),
        "kind": _known_or_absent(outlier.kind, "compared among all"),
        "share": Absent("no rate") if outlier.share is None else Known(outlier.share, _DOCUMENTS),
    }


def _split_row(split: Split) -> Row:
    """Row of the group ``split``: a fact without a usual value, and each value with its number of hosts."""
    values = tuple(f"{value} ({count} hosts)" for value, count in split.values)
    return _known_row(
        {"fact": split.fact, "about": split.about, "values": values, "of": split.of, "matters": split.matters}
    )


def _known_row(values: Mapping[str, str | int | bool | tuple[str, ...]]) -> Row:
    """Values as Known facts, by column."""
    return {name: Known(value, _DOCUMENTS) for name, value in values.items()}


def _known_or_absent(value: str, otherwise: str) -> Fact:
    """Known text; an empty one is Absent for the reason `otherwise`."""
    return Known(value, _DOCUMENTS) if value else Absent(otherwise)


# ---- Hosts by checks ----
# A column for each layer of rules, and one for what differs from the other hosts.

ALIKE = Check("alike", "like the other hosts", "like")
_TITLES: Mapping[str, tuple[str, str]] = {
    "host": ("operating system and hardware", "host"),
    "driver": ("driver and its modules", "drv"),
    "gpu": ("GPUs", "gpu"),
    "env": ("environment variables", "env"),
    "container": ("container", "ctr"),
    "wsl": ("WSL", "wsl"),
    "torch": ("torch", "trch"),
    "cuda": ("CUDA toolkit", "cuda"),
    "cudnn": ("cuDNN", "dnn"),
    "nccl": ("NCCL and network", "nccl"),
    "ext": ("extensions of torch", "ext"),
    "frameworks": ("other frameworks", "frm"),
    "workload": ("the program", "prog"),
    "expect": ("as the profile expects", "exp"),
}


def board_host(host: Summary) -> Host:
    """Host entry of the cluster screen: name, switch, number and name of GPUs, reason for no answer."""
    return Host(host.host, host.switch, host.gpus, host.gpu.removeprefix("NVIDIA "), host.because)


def board_checks(hosts: Sequence[Summary]) -> tuple[Check, ...]:
    """Columns of the cluster screen: the layers that any host has results of, and `ALIKE`.
    The layer ``wsl`` is shown only if it has findings.
    """
    found = {item.layer for node in hosts for item in node.findings}
    layers = found | {layer for node in hosts for layer in node.passed if layer != "wsl"}
    return (*(Check(layer, *_TITLES[layer]) for layer in LAYERS if layer in layers), ALIKE)


def board_results(hosts: Iterable[Summary], outliers: Iterable[Outlier]) -> dict[str, dict[str, Result]]:
    """Results by host and check id, for the hosts that answered."""
    differs: dict[str, list[Outlier]] = {}
    for outlier in outliers:
        for name in outlier.hosts:
            differs.setdefault(name, []).append(outlier)
    return {node.host: _board_row(node, differs.get(node.host, ())) for node in hosts if node.answered}


def _board_row(node: Summary, differs: Sequence[Outlier]) -> dict[str, Result]:
    """Results of one host by check id; within a layer the most severe finding is shown."""
    row = {layer: _passed_result(node.unjudged.get(layer, 0)) for layer in node.passed}
    row.update({layer: _unjudged_result(count) for layer, count in node.unjudged.items() if layer not in row})
    for found in sorted(node.findings, key=lambda item: -SEVERITIES.index(item.severity)):
        if found.severity != "info":
            row[found.layer] = Result(found.severity, found.title, found.id)
        elif found.layer not in node.passed:
            row[found.layer] = Result("ok", found.title, found.id)
    row[ALIKE.id] = _alike_result(differs)
    return row


@lru_cache(maxsize=256)
def _passed_result(unjudged: int) -> Result:
    """``ok`` result that mentions how many rules were not judged."""
    return Result("ok", f"{unjudged} not judged") if unjudged else OK


@lru_cache(maxsize=256)
def _unjudged_result(count: int) -> Result:
    """``unjudged`` result that states how many rules were not judged."""
    return Result("unjudged", f"{count} not judged")


def _alike_result(differs: Sequence[Outlier]) -> Result:
    """Result of the check ``alike``: OK if the host is no outlier, else a warning or info that lists the first four."""
    if not differs:
        return OK
    rates = [node.share for node in differs if node.share is not None]
    outcome: Outcome = "warning" if any(node.matters for node in differs) else "info"
    words = "; ".join(f"{node.about} {node.value}, mostly {node.usual}" for node in differs[:4])
    return Result(outcome, words, "fleet.slow-host" if rates else "fleet.differs", min(rates, default=None))

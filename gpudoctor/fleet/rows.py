"""Summaries as facts: the groups ``machine``, ``silence``, ``outlier`` and ``split`` that pages read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoctor.cluster import FACTS
from gpudoctor.fleet.findings import FOLDED
from gpudoctor.fleet.names import listed
from gpudoctor.fleet.outliers import FEWEST, Outlier, Split
from gpudoctor.fleet.summary import Summary
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread

_DOCUMENTS = "the hosts' documents"
_MOST_REASONS = 20
"""Reasons of silence that are told apart; what more there are stand together."""


def facts_of(hosts: Sequence[Summary]) -> dict[str, Fact]:
    """How many were asked, answered, and are silent."""
    silent = tuple(one.host for one in hosts if not one.answered)
    return {
        "fleet.hosts": Known(len(hosts), _DOCUMENTS),
        "fleet.answered": Known(len(hosts) - len(silent), _DOCUMENTS),
        "fleet.silent": Known(silent, _DOCUMENTS),
    }


def unasked() -> tuple[dict[str, Fact], dict[str, Rows]]:
    """What only a job tells: nobody asked for it where hosts were asked one by one."""
    why = Unread("each host was asked alone; gpudoctor preflight asks the ranks of a job together")
    theirs = [spec for spec in FACTS if not spec.name.startswith(FOLDED)]
    return (
        {spec.name: why for spec in theirs if not spec.group},
        {spec.name.rpartition(".")[0]: why for spec in theirs if spec.group},
    )


def groups_of(hosts: Sequence[Summary], outliers: Sequence[Outlier], splits: Sequence[Split]) -> dict[str, Rows]:
    """A row for each host, each reason of silence, each outlier and each split."""
    few = sum(one.answered for one in hosts) < FEWEST
    nothing = Unread(f"fewer than {FEWEST} hosts answered")
    return {
        "machine": tuple(map(_node, hosts)),
        "silence": tuple(_silences(hosts)),
        "outlier": nothing if few else tuple(map(_outlier, outliers)),
        "split": nothing if few else tuple(map(_split, splits)),
    }


def _node(one: Summary) -> Row:
    silence = Unread(one.because)
    ids = {severity: tuple(found.id for found in one.findings if found.severity == severity) for severity in _SEVERE}
    told: dict[str, Fact] = {
        "verdict": Known(one.verdict, "its diagnosis"),
        "errors": Known(ids["error"], "its diagnosis"),
        "warnings": Known(ids["warning"], "its diagnosis"),
        "gpus": Known(one.gpus, "its diagnosis"),
        "gpu": _text(one.gpu, "no GPU"),
        "image": _text(one.values.get("host.os", ""), "not told"),
    }
    return {
        "name": Known(one.host, _DOCUMENTS),
        "answered": Known(one.answered, _DOCUMENTS),
        "because": Absent("it answered") if one.answered else Known(one.because, _DOCUMENTS),
        "switch": _text(one.switch, "nobody told"),
        **(told if one.answered else dict.fromkeys(told, silence)),
    }


_SEVERE = ("error", "warning")


def _silences(hosts: Sequence[Summary]) -> list[Row]:
    """Hosts that are silent for the same reason together, the most first."""
    reasons: dict[str, list[str]] = {}
    for one in hosts:
        if not one.answered:
            reasons.setdefault(one.because, []).append(one.host)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    if rest := ordered[_MOST_REASONS:]:
        ordered = [*ordered[:_MOST_REASONS], ("various reasons", [name for _, names in rest for name in names])]
    return [
        _row(
            {
                "because": why,
                "hosts": tuple(names),
                "names": listed(names),
                "first": names[0],
                "count": len(names),
            }
        )
        for why, names in ordered
    ]


def _outlier(one: Outlier) -> Row:
    return {
        **_row(
            {
                "fact": one.fact,
                "about": one.about,
                "value": one.value,
                "usual": one.usual,
                "hosts": one.hosts,
                "names": listed(one.hosts),
                "count": len(one.hosts),
                "of": one.of,
                "matters": one.matters,
            }
        ),
        "kind": _text(one.kind, "compared among all"),
        "share": Absent("no rate") if one.share is None else Known(one.share, _DOCUMENTS),
    }


def _split(one: Split) -> Row:
    values = tuple(f"{value} ({count} hosts)" for value, count in one.values)
    return _row({"fact": one.fact, "about": one.about, "values": values, "of": one.of, "matters": one.matters})


def _row(values: Mapping[str, str | int | bool | tuple[str, ...]]) -> Row:
    return {name: Known(value, _DOCUMENTS) for name, value in values.items()}


def _text(value: str, otherwise: str) -> Fact:
    return Known(value, _DOCUMENTS) if value else Absent(otherwise)

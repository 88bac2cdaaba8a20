"""Hosts × checks: a column for each layer of rules, and one for what differs from the other hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gpudoctor.fleet.outliers import Outlier
from gpudoctor.fleet.summary import Summary
from gpudoctor.model.fleet import OK, Check, Host, Outcome, Result
from gpudoctor.model.rule import LAYERS, SEVERITIES

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


def host(one: Summary) -> Host:
    """As the cluster screen lists it."""
    return Host(one.host, one.switch, one.gpus, one.gpu.removeprefix("NVIDIA "), one.because)


def checks(hosts: Sequence[Summary]) -> tuple[Check, ...]:
    """The layers of which any host tells something but that nothing could be judged, and `ALIKE`.

    Windows is worth a column only where something of it was found.
    """
    found = {item.layer for one in hosts for item in one.findings}
    told = found | {layer for one in hosts for layer in one.passed if layer != "wsl"}
    return (*(Check(layer, *_TITLES[layer]) for layer in LAYERS if layer in told), ALIKE)


def results(hosts: Iterable[Summary], outliers: Iterable[Outlier]) -> dict[str, dict[str, Result]]:
    """Of each host that answered what each check says of it."""
    differs: dict[str, list[Outlier]] = {}
    for outlier in outliers:
        for name in outlier.hosts:
            differs.setdefault(name, []).append(outlier)
    return {one.host: _row(one, differs.get(one.host, ())) for one in hosts if one.answered}


def _row(one: Summary, differs: Sequence[Outlier]) -> dict[str, Result]:
    row = {layer: _judged(one.unjudged.get(layer, 0)) for layer in one.passed}
    row.update({layer: _unjudged(count) for layer, count in one.unjudged.items() if layer not in row})
    for found in sorted(one.findings, key=lambda item: -SEVERITIES.index(item.severity)):
        if found.severity != "info":
            row[found.layer] = Result(found.severity, found.title, found.id)
        elif found.layer not in one.passed:
            row[found.layer] = Result("ok", found.title, found.id)
    row[ALIKE.id] = _alike(differs)
    return row


@lru_cache(maxsize=256)
def _judged(unjudged: int) -> Result:
    return Result("ok", f"{unjudged} not judged") if unjudged else OK


@lru_cache(maxsize=256)
def _unjudged(count: int) -> Result:
    return Result("unjudged", f"{count} not judged")


def _alike(differs: Sequence[Outlier]) -> Result:
    if not differs:
        return OK
    rates = [one.share for one in differs if one.share is not None]
    outcome: Outcome = "warning" if any(one.matters for one in differs) else "info"
    words = "; ".join(f"{one.about} {one.value}, mostly {one.usual}" for one in differs[:4])
    return Result(outcome, words, "fleet.slow-host" if rates else "fleet.differs", min(rates, default=None))

"""What the check of many hosts says: which answered, what each check found, who is suspect, who is sound."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, cast

from gpudoctor.model.document import Entry, brief, opened
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pairwise import Pairwise
from gpudoctor.model.pairwise import read as pairwise_read
from gpudoctor.model.rule import Confidence, Severity

SCHEMA = "gpudoctor-fleet/1"
MOST_HOSTS = 1 << 14

Verdict = Literal["go", "no-go", "unknown"]
Outcome = Literal["ok", "error", "warning", "info", "unjudged"]
Kind = Literal["host", "gpu", "link", "switch"]


@frozen
class Host:
    """One machine; `because` says why it did not answer."""

    name: str
    switch: str = ""
    """The leaf switch or rack it hangs on."""
    gpus: int = 0
    gpu: str = ""
    because: str = ""

    @property
    def answered(self) -> bool:
        """Whether anything is known of it."""
        return not self.because


@frozen
class Check:
    """A column: ``nccl``. `short` heads it where room is dear."""

    id: str
    title: str
    short: str


@frozen
class Result:
    """What a check says of a host; `ratio` is measured over expected, where it measures."""

    outcome: Outcome
    words: str = ""
    finding: str = ""
    """The id of the finding."""
    ratio: float | None = None


OK = Result("ok")


@frozen
class Suspect:
    """Who is to blame, by the evidence. `names` are one host or GPU, the two ends of a link, or a switch."""

    kind: Kind
    names: tuple[str, ...]
    severity: Severity
    confidence: Confidence
    title: str
    evidence: tuple[str, ...] = ()
    id: str = ""
    do: str = ""


@frozen
class Drain:
    """Hosts to take out for the same reason; `argv` does it in the scheduler's own words, empty without a scheduler."""

    hosts: tuple[str, ...]
    reason: str
    argv: tuple[str, ...] = ()


@frozen(slots=False)
class Fleet:
    """The whole check. A result that is missing was not judged."""

    name: str
    hosts: tuple[Host, ...]
    checks: tuple[Check, ...]
    results: Mapping[str, Mapping[str, Result]]
    """By host, then by check."""
    verdict: Verdict
    pairwise: Pairwise | None = None
    suspects: tuple[Suspect, ...] = ()
    """The likeliest first."""
    drain: tuple[Drain, ...] = ()
    at: str = ""
    """When, as ISO 8601."""
    seconds: float = 0.0

    def result(self, host: str, check: str) -> Result:
        """What that check says of that host; not judged where nothing does."""
        return self.results.get(host, {}).get(check) or Result("unjudged", self._because.get(host) or "not asked")

    @cached_property
    def _because(self) -> dict[str, str]:
        return {host.name: host.because for host in self.hosts}

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        """Cells of each outcome."""
        counts: dict[Outcome, int] = {"ok": 0, "error": 0, "warning": 0, "info": 0, "unjudged": 0}
        for host in self.hosts:
            for check in self.checks:
                counts[self.result(host.name, check.id).outcome] += 1
        return counts

    @property
    def drained(self) -> frozenset[str]:
        """Hosts to take out."""
        return frozenset(host for drain in self.drain for host in drain.hosts)

    @property
    def sound(self) -> list[str]:
        """Hosts that may train: they answered, nothing takes them out, and no check of them is an error."""
        return [
            host.name
            for host in self.hosts
            if host.answered
            and host.name not in self.drained
            and all(self.result(host.name, check.id).outcome != "error" for check in self.checks)
        ]

    def to_json(self) -> dict[str, Json]:
        """A document that `from_json` takes back."""
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "at": self.at,
            "seconds": self.seconds,
            "verdict": self.verdict,
            "hosts": [
                brief({"name": h.name, "switch": h.switch, "gpus": h.gpus, "gpu": h.gpu, "because": h.because})
                for h in self.hosts
            ],
            "checks": [{"id": check.id, "title": check.title, "short": check.short} for check in self.checks],
            "results": {
                host: {check: _result_to_json(result) for check, result in row.items()}
                for host, row in self.results.items()
            },
            "pairwise": None if self.pairwise is None else self.pairwise.to_json(),
            "suspects": [
                {
                    "kind": s.kind,
                    "names": list(s.names),
                    "severity": s.severity,
                    "confidence": s.confidence,
                    "title": s.title,
                    "evidence": list(s.evidence),
                    "id": s.id,
                    "do": s.do,
                }
                for s in self.suspects
            ],
            "drain": [{"hosts": list(d.hosts), "reason": d.reason, "argv": list(d.argv)} for d in self.drain],
        }
        return cast("dict[str, Json]", document)


def from_json(raw: object) -> Fleet:
    """The inverse of `Fleet.to_json`; raises `DocumentError`."""
    document = opened(raw, SCHEMA)
    pairwise = document.entry("pairwise")
    hosts = tuple(map(_host, document.entries("hosts")))
    if len(hosts) > MOST_HOSTS:
        raise DocumentError(f"{len(hosts)} hosts; at most {MOST_HOSTS} are shown")
    return Fleet(
        name=document.text("name", ""),
        at=document.text("at", ""),
        seconds=document.number("seconds", 0.0),
        verdict=cast(Verdict, document.choice("verdict", Verdict)),
        hosts=hosts,
        checks=tuple(
            Check(item.text("id"), item.text("title"), item.text("short")) for item in document.entries("checks")
        ),
        results=_results(document),
        pairwise=pairwise_read(pairwise) if pairwise else None,
        suspects=tuple(map(_suspect, document.entries("suspects"))),
        drain=tuple(
            Drain(item.texts("hosts"), item.text("reason", ""), item.texts("argv"))
            for item in document.entries("drain")
        ),
    )


def _host(item: Entry) -> Host:
    return Host(
        item.text("name"),
        item.text("switch", ""),
        item.whole("gpus", 0),
        item.text("gpu", ""),
        item.text("because", ""),
    )


def _result_to_json(result: Result) -> object:
    """``"ok"`` where there is no more to say."""
    if result == Result(result.outcome):
        return result.outcome
    return brief({"outcome": result.outcome, "words": result.words, "finding": result.finding, "ratio": result.ratio})


def _results(document: Entry) -> dict[str, dict[str, Result]]:
    out: dict[str, dict[str, Result]] = {}
    results = document.entry("results")
    for host in results.raw if results else ():
        row = results.entry(host) if results else None
        if row is not None:
            out[host] = {check: _result(row, check) for check in row.raw}
    return out


def _result(row: Entry, check: str) -> Result:
    if isinstance(row.raw[check], str):
        outcome = row.choice(check, Outcome)
        return OK if outcome == "ok" else Result(cast(Outcome, outcome))
    item = row.entry(check)
    if item is None:
        return Result("unjudged")
    return Result(
        cast(Outcome, item.choice("outcome", Outcome)),
        item.text("words", ""),
        item.text("finding", ""),
        item.maybe("ratio"),
    )


def _suspect(item: Entry) -> Suspect:
    return Suspect(
        kind=cast(Kind, item.choice("kind", Kind)),
        names=item.texts("names"),
        severity=cast(Severity, item.choice("severity", Severity)),
        confidence=cast(Confidence, item.choice("confidence", Confidence)),
        title=item.text("title"),
        evidence=item.texts("evidence"),
        id=item.text("id", ""),
        do=item.text("do", ""),
    )

"""Many machines: what they were asked and answered, bandwidth between every two, and the facts folded from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, cast

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.document import Entry, is_number, open_document, without_empty
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.rule import Confidence, Severity

# ---- Bandwidth between every two hosts or GPUs ----


@frozen
class Pair:
    """One measured direction from `source` to `target`; `measured` is None where it was not, `words` say why."""

    source: str
    target: str
    measured: float | None
    expected: float
    wrong: bool = False
    words: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over expected; None where either is missing."""
        return None if self.measured is None or self.expected <= 0 else self.measured / self.expected


@frozen(slots=False)
class Pairwise:
    """Bandwidth between all of `names`, a row for each sender, in `unit`."""

    title: str
    unit: str
    expected: float
    names: tuple[str, ...]
    measured: tuple[tuple[float | None, ...], ...]
    wrong: frozenset[tuple[str, str]] = frozenset()
    """Ways on which what arrived is not what was sent."""
    words: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why a way was not measured, or what is wrong with it."""

    @cached_property
    def _at(self) -> dict[str, int]:
        """Index of each name."""
        return {name: at for at, name in enumerate(self.names)}

    def pair(self, source: str, target: str) -> Pair:
        """The measurement from `source` to `target`."""
        value = self.measured[self._at[source]][self._at[target]]
        way = (source, target)
        return Pair(source, target, value, self.expected, way in self.wrong, self.words.get(way, ""))

    def to_json(self) -> dict[str, object]:
        """The object that `read` takes back."""
        return {
            "title": self.title,
            "unit": self.unit,
            "expected": self.expected,
            "names": list(self.names),
            "measured": [list(row) for row in self.measured],
            "wrong": sorted([source, target] for source, target in self.wrong),
            "words": [[source, target, words] for (source, target), words in self.words.items()],
        }


def pairwise_from_json(item: Entry) -> Pairwise:
    """The inverse of `Pairwise.to_json`; raises `DocumentError`."""
    names = item.texts("names")
    measured, words = item.raw.get("measured"), item.raw.get("words", ())
    if not _is_square(measured, len(names)):
        raise DocumentError(f"{item.where}measured is no square of {len(names)} numbers or nulls")
    return Pairwise(
        title=item.text("title", "Pairwise bandwidth"),
        unit=item.text("unit"),
        expected=item.number("expected"),
        names=names,
        measured=tuple(tuple(row) for row in cast("Sequence[Sequence[float | None]]", measured)),
        wrong=frozenset((way[0], way[1]) for way in _text_lists(item, "wrong", item.raw.get("wrong", ()), 2)),
        words={(way[0], way[1]): way[2] for way in _text_lists(item, "words", words, 3)},
    )


def _is_square(rows: object, size: int) -> bool:
    """Whether it is a list of `size` rows of `size` numbers or nulls."""
    return (
        isinstance(rows, list)
        and len(rows) == size
        and all(isinstance(row, list) and len(row) == size for row in rows)
        and all(value is None or is_number(value) for row in rows for value in row)
    )


def _text_lists(item: Entry, name: str, raw: object, size: int) -> list[list[str]]:
    """The value as lists of `size` texts each; raises `DocumentError`."""
    fits = isinstance(raw, (list, tuple)) and all(
        isinstance(way, list) and len(way) == size and all(isinstance(part, str) for part in way) for way in raw
    )
    if not fits:
        raise DocumentError(f"{item.where}{name} is no list of {size} texts each")
    return cast("list[list[str]]", raw)


# ---- What many machines were asked and answered ----

SCHEMA = "gpudoctor-fleet/1"
MOST_HOSTS = 1 << 14

Verdict = Literal["go", "no-go", "unknown"]
Outcome = Literal["ok", "error", "warning", "info", "unjudged"]
Kind = Literal["host", "gpu", "link", "switch"]


@frozen
class Host:
    """One machine; `because` says why it did not answer, else empty."""

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
    """One column of the table: id ``nccl``, title, and a short heading."""

    id: str
    title: str
    short: str


@frozen
class Result:
    """The result of one check on one host; `ratio` is measured over expected, None where nothing is measured."""

    outcome: Outcome
    words: str = ""
    finding: str = ""
    """The id of the finding."""
    ratio: float | None = None


OK = Result("ok")


@frozen
class Suspect:
    """A likely culprit: one host or GPU, the two ends of a link, or a switch (`names`), with the evidence."""

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
        """The check's result on that host; unjudged where there is none."""
        return self.results.get(host, {}).get(check) or Result("unjudged", self._because.get(host) or "not asked")

    @cached_property
    def _because(self) -> dict[str, str]:
        """Why each host did not answer, by name; empty text where it did."""
        return {host.name: host.because for host in self.hosts}

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        """Number of results of each outcome."""
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
        """Names of hosts fit for use: they answered, are not to be drained, and no check is an error."""
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
                without_empty({"name": h.name, "switch": h.switch, "gpus": h.gpus, "gpu": h.gpu, "because": h.because})
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
    document = open_document(raw, SCHEMA)
    pairwise = document.entry("pairwise")
    hosts = tuple(map(_host_from_json, document.entries("hosts")))
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
        results=_results_from_json(document),
        pairwise=pairwise_from_json(pairwise) if pairwise else None,
        suspects=tuple(map(_suspect_from_json, document.entries("suspects"))),
        drain=tuple(
            Drain(item.texts("hosts"), item.text("reason", ""), item.texts("argv"))
            for item in document.entries("drain")
        ),
    )


def _host_from_json(item: Entry) -> Host:
    """A host of a document; raises `DocumentError`."""
    return Host(
        item.text("name"),
        item.text("switch", ""),
        item.whole("gpus", 0),
        item.text("gpu", ""),
        item.text("because", ""),
    )


def _result_to_json(result: Result) -> object:
    """The result as an object; only its outcome as text where there is no more."""
    if result == Result(result.outcome):
        return result.outcome
    return without_empty(
        {"outcome": result.outcome, "words": result.words, "finding": result.finding, "ratio": result.ratio}
    )


def _results_from_json(document: Entry) -> dict[str, dict[str, Result]]:
    """Results by host and check; raises `DocumentError`."""
    out: dict[str, dict[str, Result]] = {}
    results = document.entry("results")
    for host in results.raw if results else ():
        row = results.entry(host) if results else None
        if row is not None:
            out[host] = {check: _result_from_json(row, check) for check in row.raw}
    return out


def _result_from_json(row: Entry, check: str) -> Result:
    """The result of that check; raises `DocumentError`."""
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


def _suspect_from_json(item: Entry) -> Suspect:
    """A suspect of a document; raises `DocumentError`."""
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


# ---- Facts of many machines ----
# Pages of scope ``cluster`` read them; `gpudoctor.cluster` fills them.

FACTS = (
    fact("fleet.hosts", "int", "machines that were asked"),
    fact("fleet.answered", "int", "machines of which a document came"),
    fact("fleet.silent", "list", "machines of which none came"),
    column("machine.name", "text", "machine by its host name"),
    column("machine.switch", "text", "leaf switch or rack that it hangs on"),
    column("machine.image", "text", "operating system image that it runs"),
    column("machine.answered", "bool", "whether a document came of it"),
    column("machine.because", "text", "why none came"),
    column("machine.verdict", "text", "what its own check said: sound, impaired, broken or unknown"),
    column("machine.errors", "list", "ids of its findings of severity error"),
    column("machine.warnings", "list", "ids of its findings of severity warning"),
    column("machine.gpus", "int", "its GPUs"),
    column("machine.gpu", "text", "their model"),
    column("silence.because", "text", "why machines gave no answer"),
    column("silence.hosts", "list", "the machines of which that is told"),
    column("silence.names", "text", "these in a sentence: n1 and n9"),
    column("silence.first", "text", "the first of them"),
    column("silence.count", "int", "how many they are"),
    column("outlier.fact", "text", "fact in which a few machines differ from the others"),
    column("outlier.value", "text", "what these few say"),
    column("outlier.usual", "text", "what the others say"),
    column("outlier.hosts", "list", "the few, by host name"),
    column("outlier.names", "text", "the few in a sentence: n1 and n9"),
    column("outlier.count", "int", "how many they are"),
    column("outlier.of", "int", "how many machines said anything"),
    column("outlier.share", "float", "their value over the usual one, where it is a rate"),
    column("outlier.about", "text", "what that fact is, in words, such as driver"),
    column("outlier.kind", "text", "GPUs of the machines that were compared; absent where all were, whatever theirs"),
    column("outlier.matters", "bool", "whether jobs over machines that differ in it fail, or wait for the worse one"),
    column("split.fact", "text", "fact that has no usual value: about half of the machines differ from the others"),
    column("split.about", "text", "what that fact is, in words, such as driver"),
    column("split.values", "list", "its values, each with how many say so, such as 570.124.06 (4 hosts)"),
    column("split.of", "int", "how many machines said anything"),
    column("split.matters", "bool", "whether jobs over machines that differ in it fail, or wait for the worse one"),
    fact("job.launcher", "text", "what started the ranks: srun, torchrun, mpirun, or by hand"),
    fact("job.world", "int", "ranks of the job"),
    fact("job.came", "int", "ranks that came to the meeting"),
    fact("job.hosts", "list", "its machines, by host name"),
    fact("job.master", "text", "machine of rank 0, by the name that the other ranks were given"),
    fact("job.port", "int", "port of rank 0 on which the job's ranks meet"),
    fact("job.port_taken", "text", "who else holds that port; absent where it is free"),
    fact("job.nccl_versions", "list", "NCCL versions of the ranks' environments, each once"),
    fact("job.worlds", "list", "sizes of the job that its ranks were told, each once"),
    fact("job.clock_skew_ms", "float", "largest difference between two machines' clocks", "ms"),
    fact("job.clock_host", "text", "machine whose clock is furthest from the others'"),
    fact("job.backend", "text", "what the job's ranks would talk by: nccl where they have GPUs, else gloo"),
    fact("job.checked", "bool", "whether its machines were asked for their own checks, too"),
    fact("job.cut", "text", "why the check came to no end; absent where it did"),
    fact("job.seconds", "float", "time that the check took", "s"),
    column("rank.rank", "int", "its number, from 0"),
    column("rank.host", "text", "machine that it runs on, by host name; absent where the launcher does not tell"),
    column("rank.hosts", "list", "that machine, as a list"),
    column("rank.local_rank", "int", "its number on that machine, from 0"),
    column(
        "rank.state",
        "text",
        "in a job's check: here, awaited, missing (never came), silent (came, stopped answering), ended, failed or"
        " twice (of two ranks); of a running job: waits (for others), loads, sleeps, locked, reads, listens, computes,"
        " moves, idles, stopped, frozen, gone or unseen",
    ),
    column("rank.step", "text", "the last step that it told"),
    column("rank.because", "text", "why it failed or cannot be judged"),
    column("rank.world", "int", "size of the job that it was told"),
    column("rank.nccl", "version", "NCCL version of its environment"),
    column("rank.seconds", "float", "time since it was last heard", "s"),
    column("link.source", "text", "machine that connects, by host name"),
    column("link.target", "text", "machine that is connected to, by host name"),
    column("link.kind", "text", "rendezvous (the job's own port) or peer (any other port)"),
    column("link.used_by", "text", "who would use that address: rendezvous, nccl, gloo, or several"),
    column("link.address", "text", "address that the target announces"),
    column("link.port", "int", "port that was tried"),
    column("link.interface", "text", "the target's interface with that address"),
    column(
        "link.outcome",
        "text",
        "connected, refused, filtered, unroutable, unresolved, loopback (only its own), nowhere (no address) or failed",
    ),
    column("link.words", "text", "what was seen, in words"),
    column("link.ms", "float", "time until the connection was there", "ms"),
    column("flow.source", "text", "machine that sends, by host name"),
    column("flow.target", "text", "machine that receives, by host name"),
    column("flow.round", "int", "round of pairs in which it was measured, from 1"),
    column("flow.gbps", "float", "bandwidth from source to target", "Gbit/s"),
    column("flow.ms", "float", "round trip", "ms"),
    column("flow.resent", "float", "share of the segments from source to target that had to be sent again"),
    column("flow.stalled_above", "int", "packets larger than that vanish; absent where all sizes pass", "bytes"),
    column("flow.mtu", "int", "largest packet that the source sends on that path", "bytes"),
    column("barrier.sources", "list", "machines that cannot connect, by host name"),
    column("barrier.targets", "list", "machines that they cannot connect to; alike failures stand together"),
    column("barrier.hosts", "list", "the machine that these have in common"),
    column("barrier.kind", "text", "rendezvous (the job's own port) or peer (any other port)"),
    column("barrier.used_by", "text", "who would use that address: rendezvous, nccl, gloo, or several"),
    column("barrier.address", "text", "address that was tried"),
    column("barrier.port", "int", "port that was tried"),
    column("barrier.interface", "text", "interface with that address"),
    column(
        "barrier.announced", "text", "what the target tells others of itself: an address and its interface, or none"
    ),
    column("barrier.outcome", "text", "refused, filtered, unroutable, unresolved, loopback, nowhere or failed"),
    column("barrier.count", "int", "connections that failed alike"),
    column("barrier.words", "text", "what was seen, in words"),
    column("suspect.kind", "text", "host, link or switch"),
    column("suspect.names", "list", "one host, the two ends of a link, or a switch"),
    column("suspect.hosts", "list", "the machines among these names"),
    column("suspect.way", "text", "what it sends (from), what it receives (to), or both"),
    column("suspect.measure", "text", "reach, mtu, loss, latency or bandwidth"),
    column("suspect.value", "float", "the best that was measured: Gbit/s, ms, a share of segments, or bytes"),
    column("suspect.usual", "float", "what the others measure"),
    column("suspect.share", "float", "the one over the other"),
    column("suspect.pairs", "int", "measured pairs that say so"),
    column("suspect.words", "text", "what was measured, in words"),
)

"""Many machines: what they were asked and answered, bandwidth between every two, and the facts folded from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.document import as_object, object_from_json, object_to_json, open_document, typed_value
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
        """Measured over expected bandwidth; None where it was not measured or nothing is expected."""
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
        """The way from `source` to `target`, `measured` None where it was not; `KeyError` for an unknown name."""
        value = self.measured[self._at[source]][self._at[target]]
        way = (source, target)
        return Pair(source, target, value, self.expected, way in self.wrong, self.words.get(way, ""))

    def to_json(self) -> dict[str, object]:
        """All fields as `pairwise_from_json` reads them; ``wrong`` and ``words`` as lists with source and target."""
        return {
            **object_to_json(self, "title unit expected names measured"),
            "wrong": sorted([source, target] for source, target in self.wrong),
            "words": [[source, target, words] for (source, target), words in self.words.items()],
        }


def pairwise_from_json(raw: Mapping[str, Any]) -> Pairwise:
    """The inverse of `Pairwise.to_json`; raises `DocumentError`, also where `measured` is no square."""
    wrong, words = _text_lists(raw, "wrong", 2), _text_lists(raw, "words", 3)
    found = object_from_json(
        Pairwise,
        {"title": "Pairwise bandwidth", **raw},
        "pairwise.",
        wrong=frozenset((source, target) for source, target in wrong),
        words={(source, target): why for source, target, why in words},
    )
    size = len(found.names)
    if [len(row) for row in found.measured] != [size] * size:
        raise DocumentError(f"pairwise.measured is no square of {size} numbers or nulls")
    return found


def _text_lists(raw: Mapping[str, Any], name: str, size: int) -> list[list[str]]:
    """The list under `name`, whose items are lists of `size` texts each; empty if left out.

    Raises `DocumentError` where it is anything else.
    """
    listed = raw.get(name, [])
    if not isinstance(listed, list) or not all(
        isinstance(way, list) and len(way) == size and all(isinstance(part, str) for part in way) for way in listed
    ):
        raise DocumentError(f"pairwise.{name} is no list of {size} texts each")
    return listed


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
        """Whether the host answered: then `because`, why it did not, is empty."""
        return not self.because

    def to_json(self) -> dict[str, Json]:
        """The fields by name, empty ones left out."""
        return object_to_json(self, sparse=True)


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

    def to_json(self) -> Json:
        """The result as an object; only its outcome as text where there is no more."""
        return self.outcome if self == Result(self.outcome) else object_to_json(self, sparse=True)


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
    """A fleet's or job's check: results by host name and check id, a missing one was not judged; suspects; drains."""

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
        """The check's result on that host; where it has none, unjudged: why the host did not answer, or not asked."""
        return self.results.get(host, {}).get(check) or Result("unjudged", self._because.get(host) or "not asked")

    @cached_property
    def _because(self) -> dict[str, str]:
        """Why each host did not answer, by name; empty text where it did."""
        return {host.name: host.because for host in self.hosts}

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        """Number of results of each outcome, over all hosts and checks; a missing result is unjudged."""
        counts: dict[Outcome, int] = {"ok": 0, "error": 0, "warning": 0, "info": 0, "unjudged": 0}
        for host in self.hosts:
            for check in self.checks:
                counts[self.result(host.name, check.id).outcome] += 1
        return counts

    @property
    def drained(self) -> frozenset[str]:
        """Names of the hosts to drain."""
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
        """The fleet as a document ``gpudoctor-fleet/1`` that `from_json` reads."""
        names = "name at seconds verdict hosts checks results pairwise suspects drain"
        return {"schema": SCHEMA, **object_to_json(self, names)}


def from_json(raw: object) -> Fleet:
    """The inverse of `Fleet.to_json`; raises `DocumentError`, also for more than `MOST_HOSTS` hosts."""
    document = open_document(raw, SCHEMA)
    pairwise = document.get("pairwise")
    found = object_from_json(
        Fleet,
        {"name": "", **document},
        results=_results_from_json(document),
        pairwise=None if pairwise is None else pairwise_from_json(as_object(pairwise, "pairwise.")),
    )
    if len(found.hosts) > MOST_HOSTS:
        raise DocumentError(f"{len(found.hosts)} hosts; at most {MOST_HOSTS} are shown")
    return found


def _results_from_json(document: Mapping[str, Any]) -> dict[str, dict[str, Result]]:
    """Results by host and check, hosts without any left out; raises `DocumentError`."""
    return {
        host: {check: _result_from_json(raw, f"results.{host}.{check}") for check, raw in row.items()}
        for host, each in as_object(document.get("results") or {}, "results.").items()
        if (row := as_object(each or {}, f"results.{host}."))
    }


def _result_from_json(raw: object, where: str) -> Result:
    """The result of a check, given as an object or its outcome alone; unjudged for null; raises `DocumentError`."""
    if isinstance(raw, str):
        return OK if raw == "ok" else Result(typed_value(Outcome, raw, where))
    return Result("unjudged") if raw is None else object_from_json(Result, raw, f"{where}.")


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
    fact("job.nccl_remarks", "list", "what NCCL's own diagnostics of all ranks remark; absent before NCCL 2.31"),
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
    column("rank.seconds", "float", "time since its last message", "s"),
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
    column("suspect.rail", "text", "the network port of these names that is to blame; absent where it is not one port"),
    column("suspect.network", "text", "rail whose ports that port reaches instead of those of its own; absent else"),
    fact("job.rails_unmeasured", "list", "network ports of which nothing is known, each with why; absent where none"),
    column("rail.rail", "text", "network port that is measured alone: its RDMA device, such as mlx5_3, or interface"),
    column("rail.host", "text", "machine whose port it is, by host name"),
    column("rail.hosts", "list", "that machine, as a list"),
    column("rail.interface", "text", "network interface of the port"),
    column("rail.address", "text", "IP address of that interface"),
    column("rail.rate_gbps", "float", "the port's own rate, as the kernel tells it", "Gbit/s"),
    column("rail.pcie_gbps", "float", "rate of its card's PCIe link, one way; absent where it is not told", "Gbit/s"),
    column("rail.rdma", "bool", "whether it was measured by RDMA; else by TCP"),
    column("rail.round", "int", "the last round of pairs that it took part in, from 1"),
    column("rail.sends_gbps", "float", "the best that it sent to the same port of another machine", "Gbit/s"),
    column("rail.receives_gbps", "float", "the best that it received from one", "Gbit/s"),
    column(
        "rail.gpu_sends_gbps", "float", "the best that it sent by RDMA from the memory of the GPU beside it", "Gbit/s"
    ),
    column("rail.gpu_receives_gbps", "float", "the best that it received by RDMA into that memory", "Gbit/s"),
    column("rail.errors_gained", "int", "packets that arrived damaged, and errors on its lanes, while it was watched"),
    column("rail.discards_gained", "int", "packets that it could not send, or had no room for, meanwhile"),
    column("rail.watched_s", "float", "time between two looks at these counters", "s"),
    column("rail.usual_gbps", "float", "the usual best of ports of its rate", "Gbit/s"),
)

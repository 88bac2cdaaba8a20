"""Collectives over the hosts of a job: each rank asks a child of its own, and what all of them say becomes facts.

`run` is one rank's part, `Across` what came of it, `collective_rows` what follows from those of all ranks.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from statistics import median
from typing import Any, TypeVar

from gpudoctor.core.fact import Absent, Fact, Json, Known, Row, Unread, known_facts
from gpudoctor.kernels.canary import Trained
from gpudoctor.kernels.child._ranks import End, faults, is_secondary, watchdog_message
from gpudoctor.kernels.child.collective import _nccl
from gpudoctor.kernels.child.collective._operations import OPERATIONS, bandwidths
from gpudoctor.kernels.runner import as_int, as_number
from gpudoctor.kernels.specs import program as program  # by this name tests lay out another
from gpudoctor.target import Answer, Target
from gpudoctor.target.child import MARK
from gpudoctor.target.protocol import answers, printable

SOURCE = "torch.distributed"
_MOST_OUTPUT_BYTES = 8 << 20
_SLACK_SECONDS = 2.5
"""Seconds that a child may be late with its next word."""
_MAX_ITEMS = 2000
_MAX_TEXT = 600
_MOST_NAMED = 3
"""Ranks that a sentence names."""


# ---- One rank's part: a child in the interpreter being diagnosed, heard live, and ended in time ----


@dataclass(frozen=True, slots=True)
class Member:
    """Identity of this rank, and (address, port) of the job's store; rank 0 listens there, at any free port for 0."""

    rank: int
    world: int
    local_rank: int
    host: str
    store: tuple[str, int]


def run(
    target: Target,
    me: Member,
    backend: str = "auto",
    level: str = "standard",
    seconds: float = 40.0,
    legs: Mapping[str, Sequence[Sequence[int]]] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    listening: Callable[[int], None] = lambda _: None,
    halt: Callable[[], str] = str,
    canary: bool = False,
) -> Across:
    """Run this rank's part of the job's collectives in a child of the target's Python; failures are in `Across.why`.

    `seconds` limits the whole run. `backend` is ``gloo``, ``nccl``, or ``auto``: NCCL where every rank has a GPU, and a
    little of Gloo beside it. What rank 0 is given of `backend`, `level` and `legs` (groups of ranks by name, instead of
    ``node``, ``network`` and ``all``) holds for all. `tell` is called with each step as it begins; `listening` with the
    port of rank 0's store, before torch is imported; `halt` is asked a few times a second and returns why to end now,
    empty to go on. With `canary` all ranks train some steps of a small transformer at the end; level ``quick`` is that
    alone.
    """
    ask = {
        "entry": "collective._across_hosts",
        "rank": me.rank,
        "world": me.world,
        "local_rank": me.local_rank,
        "host": me.host,
        "store": list(me.store),
        "backend": backend,
        "level": level,
        "legs": {name: [list(ranks) for ranks in groups] for name, groups in (legs or {}).items()},
        "seconds": seconds,
        "began": time.time(),
        "canary": canary,
    }
    return _CollectiveChild(me, tell, listening, halt).run(target, ask, seconds)


class _CollectiveChild:
    """One child process that runs ``child/collective/_across_hosts.py``, and what it has reported so far."""

    def __init__(
        self, me: Member, tell: Callable[[str], None], listening: Callable[[int], None], halt: Callable[[], str]
    ) -> None:
        self._me, self._tell, self._listening, self._halt = me, tell, listening, halt
        self._entries: list[Mapping[str, Any]] = []
        self._steps: list[str] = []
        self._notes: dict[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self._deadline = float("inf")
        self._halt_message = ""

    def run(self, target: Target, ask: Mapping[str, Any], seconds: float) -> Across:
        """Start the child, read its lines until it ends, halts or exceeds a time limit; gives this rank's `Across`."""
        began = time.monotonic()
        if target.python is None:
            return self._result(began, "there is no Python to run it with", cannot=True)
        env = {**_nccl.LOGGING, MARK: secrets.token_hex(8)}
        try:
            answer = target.run(
                [target.python, program(), json.dumps(ask)],
                seconds,
                env,
                limit=_MOST_OUTPUT_BYTES,
                watch=self._handle_line,
            )
        except OSError as error:
            return self._result(began, f"{target.python} could not be started: {error.strerror or error}", cannot=True)
        if "answer" in self._last:
            return self._result(began, "", err=answer.err)
        if "why" in self._last:
            return self._result(began, str(self._last["why"]), self._last.get("cannot") is True, answer.err)
        why = self._halt_message or _early_end_message(answer)
        return self._result(began, why, bool(self._halt_message), answer.err)

    def _handle_line(self, line: str | None) -> bool:
        """Process a line of the child's output (None: only time passed); False to end the child: halted or overdue."""
        for entry in answers(line) if line else ():
            self._handle_entry(entry)
        self._halt_message = self._halt_message or self._halt()
        return not self._halt_message and time.monotonic() <= self._deadline

    def _handle_entry(self, entry: Mapping[str, Any]) -> None:
        """Store one entry of the child: final answer, step (renews the deadline), note, result; passes a port on."""
        if "answer" in entry or "why" in entry:
            self._last = self._last or entry
        elif isinstance(step := entry.get("step"), str):
            limit = entry.get("seconds")
            self._deadline = time.monotonic() + _SLACK_SECONDS + (limit if isinstance(limit, (int, float)) else 0.0)
            self._steps.append(printable(step))
            self._notes.update({name: entry.get(name, "") for name in ("leg", "backend")})
            self._tell(self._steps[-1])
        elif isinstance(port := entry.get("listening"), int):
            self._listening(port)
        elif isinstance(notes := entry.get("note"), dict):
            self._notes.update(notes)
        elif isinstance(ended := entry.get("ended"), dict):
            self._entries.append(
                {"ended": {**ended, "step": self._steps[-1] if self._steps else "", "steps": len(self._steps)}}
            )
        else:
            self._entries.append(entry)

    def _result(self, began: float, why: str, cannot: bool = False, err: str = "") -> Across:
        """The child's entries, and what NCCL's log in `err` (standard error) says, as this rank's `Across`."""
        log = _nccl.read_log(err)
        known = Across.from_json({**self._notes, **log, "warned": _nccl.warning(err)})
        return replace(
            known,
            rank=self._me.rank,
            host=self._me.host,
            local_rank=self._me.local_rank,
            found=parse_records(Found, self._values_of("found")),
            ended=parse_records(Ended, self._values_of("ended")),
            trained=parse_records(Trained, self._values_of("trained")),
            via=parse_records(Via, [*self._values_of("via"), *log.get("via", ())]),
            why=printable(why, 600),
            cannot=cannot,
            step=self._steps[-1] if self._steps else "",
            steps=len(self._steps),
            seconds=time.monotonic() - began,
        )

    def _values_of(self, key: str) -> list[Any]:
        """The values of `key` in all stored entries that have it, in order."""
        return [entry[key] for entry in self._entries if key in entry]


def _early_end_message(answer: Answer) -> str:
    """How a child without a final entry ended: time-out, torch's watchdog, signal, or exit and last error line."""
    if answer.status is None and not answer.cut:
        return "did not come to an end" + (f"; {answer.how}" if answer.stuck else "")
    if watchdog_message(answer.status, answer.err):
        return f"failed: {watchdog_message(answer.status, answer.err)}"
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines and (answer.status or 0) > 0 else ""
    return f"{'was ' if (answer.status or 0) < 0 or answer.cut else 'ended with '}{answer.how}{last}"


# ---- What one rank answers; to JSON and back, for the rank that hears all ----


@dataclass(frozen=True, slots=True)
class Found:
    """One rank's result of one operation at one size; `seconds`: mean per call, `alone`: one synchronised call."""

    leg: str
    backend: str
    operation: str
    group: int
    """The lowest rank of its group, by which groups of a leg are told apart."""
    ranks: int
    """Ranks in that group."""
    size: int
    """Bytes, as nccl-tests counts them."""
    seconds: float
    alone: float
    differ: int
    compared: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What a rank did not measure, and why: an operation, or the rest of a leg where `operation` is empty."""

    leg: str
    backend: str
    operation: str
    why: str
    cannot: bool
    """Whether that says nothing against the links."""
    step: str = ""
    steps: int = 0
    """The step at which that was, and how many there had been."""


@dataclass(frozen=True, slots=True)
class Via:
    """How the data of a leg travelled.

    Gloo: interface and address that it listened at, ``eth0 10.0.0.1``. NCCL: how its channels were connected,
    ``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/IB/GDRDMA``.
    """

    leg: str
    backend: str
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Across:
    """One rank's results. `why`: why it ended early, empty if it completed its plan; `step`: the last step it began."""

    rank: int
    host: str
    local_rank: int
    found: tuple[Found, ...] = ()
    ended: tuple[Ended, ...] = ()
    why: str = ""
    cannot: bool = False
    step: str = ""
    steps: int = 0
    seconds: float = 0.0
    torch: str = ""
    nccl: str = ""
    """NCCL's version; empty where only Gloo was used."""
    device: str = ""
    leg: str = ""
    """The leg of its last step, and that one's backend; empty before the first."""
    backend: str = ""
    via: tuple[Via, ...] = ()
    trained: tuple[Trained, ...] = ()
    """What its steps of the canary took: one, or none."""
    warned: str = ""
    """NCCL's first warning."""
    network: str = ""
    """What NCCL says that it uses between hosts: ``IB``, ``Socket``, the name of a plugin."""
    devices: tuple[str, ...] = ()
    """RDMA devices that NCCL says it uses: ``mlx5_0 RoCE``."""
    diagnosed: bool = False
    """Whether NCCL's own diagnostics (2.31 and newer) came to an end in a group whose first rank it is."""
    remarks: tuple[str, ...] = ()
    """What these want looked at."""

    def to_json(self) -> dict[str, Json]:
        """All fields as JSON, for sending to another rank; `from_json` reads it."""
        return asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Across:
        """The inverse of `to_json`; missing or mistyped fields get defaults, incomplete records are left out."""
        known = _valid_fields(Across, raw)
        return Across(
            **{"rank": -1, "host": "", "local_rank": -1, **known},
            found=parse_records(Found, raw.get("found")),
            ended=parse_records(Ended, raw.get("ended")),
            trained=parse_records(Trained, raw.get("trained")),
            via=parse_records(Via, raw.get("via")),
        )


_T = TypeVar("_T")


def parse_records(kind: type[_T], raw: object) -> tuple[_T, ...]:
    """Instances of the dataclass `kind` from a list of JSON objects; incomplete ones are left out, no list gives ()."""
    items = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ()
    records = (_valid_fields(kind, item) for item in items[:_MAX_ITEMS] if isinstance(item, Mapping))
    required = {field.name for field in fields(kind) if field.default is MISSING}  # type: ignore[arg-type]
    return tuple(kind(**item) for item in records if required <= item.keys())


def _valid_fields(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `raw`, by name, whose value has the plain type that the dataclass declares; texts are cut."""
    parsed = {
        field.name: _PARSERS[str(field.type)](raw[field.name])
        for field in fields(kind)
        if str(field.type) in _PARSERS and field.name in raw
    }
    return {name: value for name, value in parsed.items() if value is not None}


def _as_text(value: object) -> str | None:
    """Text on one printable line, cut to 600 characters; None for anything else."""
    return printable(" ".join(value.split()), _MAX_TEXT) if isinstance(value, str) else None


def _as_texts(value: object) -> tuple[str, ...] | None:
    """The texts of a list or tuple, printable and cut to 600 characters each; None for anything else."""
    if not isinstance(value, (list, tuple)):
        return None
    return tuple(printable(item, _MAX_TEXT) for item in value[:_MAX_ITEMS] if isinstance(item, str))


_PARSERS: Mapping[str, Callable[[object], Any]] = {
    "str": _as_text,
    "int": as_int,
    "float": as_number,
    "bool": lambda value: value if isinstance(value, bool) else None,
    "tuple[str, ...]": _as_texts,
}
"""By the name of a field's type: its value where it is one, else None."""


# ---- The answers of all ranks, as facts: how fast each leg is, whether values are right, who is slow ----
# Some ranks may be missing, and each may have come less far than the others: what was heard counts.


def nccl_remarks(answers: Sequence[Across]) -> tuple[str, ...] | None:
    """Remarks of NCCL's own diagnostics over all ranks, each once; None where they ran on no rank."""
    if not any(answer.diagnosed for answer in answers):
        return None
    return tuple(dict.fromkeys(remark for answer in answers for remark in answer.remarks))


RankResult = tuple[Across, Found]


def collective_rows(answers: Sequence[Across]) -> tuple[Row, ...]:
    """Rows of the fact group ``collective`` from the ranks' answers.

    One row for each backend, leg, operation and size measured, for each leg of a backend that failed on any rank, and
    for each operation, or rest of a leg, that could not be measured, by its reason.
    """
    by_case: dict[tuple[object, ...], list[RankResult]] = {}
    for answer in answers:
        for result in answer.found:
            if result.operation in OPERATIONS and result.size > 0 and result.ranks > 0:
                by_case.setdefault((result.backend, result.leg, result.operation, result.size), []).append(
                    (answer, result)
                )
    rows = [_measured_row(results) for results in by_case.values()]
    rows += [_failed_row(*leg, answers) for leg in _failed_legs(answers)]
    unmeasured = (end for answer in answers for end in answer.ended if end.cannot)
    rows += [_unmeasured_row(end) for end in dict.fromkeys(replace(end, step="", steps=0) for end in unmeasured)]
    return tuple(rows)


def _measured_row(results: Sequence[RankResult]) -> Row:
    """A row of ``collective``, state ``measured``: one operation at one size over all groups of a leg.

    Bandwidth, ``slowest`` rank and its ``host`` are of the slowest group; ``ratio`` is that rank's time for one call
    over the median of all ranks of all groups. ``right`` is False for any wrong value, else Unread where a rank's
    result is missing.
    """
    first = results[0][1]
    groups: dict[int, list[Found]] = {}
    for _, result in results:
        groups.setdefault(result.group, []).append(result)
    rates = {
        number: bandwidths(first.operation, group[0].ranks, first.size, [max(one.seconds, 1e-9) for one in group])
        for number, group in groups.items()
    }
    worst = min(rates, key=lambda number: rates[number]["algbw"])
    slowest, longest = max((item for item in results if item[1].group == worst), key=lambda item: item[1].alone)
    wrong = [(answer, result) for answer, result in results if result.differ]
    expected = sum(group[0].ranks for group in groups.values())
    return {
        **known_facts(
            SOURCE,
            leg=first.leg,
            backend=first.backend,
            state="measured",
            operation=first.operation,
            bytes=first.size,
            ranks=len(results),
            groups=len(groups),
            algbw=rates[worst]["algbw"],
            slowest=slowest.rank,
            host=slowest.host,
            ratio=longest.alone / max(1e-9, median(result.alone for _, result in results)),
            via=_transports(first.leg, first.backend, [answer for answer, _ in results]),
        ),
        **_bus_bandwidth_columns([rate["busbw"] for rate in rates.values()], first.ranks),
        "right": Known(not wrong, SOURCE)
        if wrong or len(results) == expected
        else Unread(f"{len(results)} of {expected} ranks answered"),
        **_culprit_columns(
            [answer for answer, _ in wrong], "; ".join(_wrong_values_message(*item) for item in wrong[:_MOST_NAMED])
        ),
        "advice": Absent("none"),
    }


def _bus_bandwidth_columns(rates: Sequence[float], ranks: int) -> dict[str, Fact]:
    """Facts ``busbw`` (slowest group) and ``usual`` (median), in GB/s; absent for groups of one rank."""
    if ranks == 1:
        return dict.fromkeys(("busbw", "usual"), Absent("one rank: no link was tested"))
    return known_facts(SOURCE, busbw=min(rates), usual=median(rates))


def _failed_row(backend: str, leg: str, answers: Sequence[Across]) -> Row:
    """A row of ``collective``, state ``failed``: a leg that a rank did not finish; culprits named, figures Unread."""
    ends = {end.rank: end for answer in answers if (end := _failed_end(answer, backend, leg))}
    by_rank = {answer.rank: answer for answer in answers}
    failed = faults(list(ends.values()))
    step = failed[0].step.split(" ")[0]
    warned = next((f"NCCL: {answer.warned}" for end in failed if (answer := by_rank[end.rank]).warned), "")
    named = [f"{end.words} (host {by_rank[end.rank].host})" for end in failed[:_MOST_NAMED]]
    more = f"and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
    message = "; ".join(filter(None, [warned if backend == "nccl" else "", *named, more]))
    unknown = Unread("it failed")
    return {
        **known_facts(SOURCE, leg=leg, backend=backend, state="failed"),
        "operation": Known(step, SOURCE) if step in OPERATIONS else Absent("it failed before the first"),
        **dict.fromkeys(("bytes", "algbw", "busbw", "usual", "right", "ratio"), unknown),
        **dict.fromkeys(("slowest", "host"), Absent("nobody came to the end")),
        **known_facts(SOURCE, ranks=len(ends), via=_transports(leg, backend, answers)),
        "groups": unknown,
        **_culprit_columns(
            [by_rank[end.rank] for end in failed if not is_secondary(end)] or [by_rank[end.rank] for end in failed],
            message,
        ),
        "advice": Known(_nccl.advice(message, between_hosts=leg == "network"), SOURCE)
        if backend == "nccl"
        else Absent("none"),
    }


def _unmeasured_row(ended: Ended) -> Row:
    """A row of ``collective``, state ``not-measured``, no fault of the links: why in ``words``, figures Absent."""
    because = Absent(ended.why)
    rest = ("bytes", "ranks", "groups", "algbw", "busbw", "usual", "right", "slowest", "host", "ratio", "via")
    return {
        **known_facts(SOURCE, leg=ended.leg, backend=ended.backend, state="not-measured"),
        "operation": Known(ended.operation, SOURCE) if ended.operation else Absent("all that were left"),
        **dict.fromkeys(rest, because),
        **_culprit_columns([], ended.why),
        "advice": Absent("none"),
    }


def _failed_legs(answers: Iterable[Across]) -> list[tuple[str, str]]:
    """(backend, leg) of each leg that failed on any rank, each once: first those that a rank reported as failed, then
    those in which a rank's process ended early.
    """
    legs = [(ended.backend, ended.leg) for answer in answers for ended in answer.ended if not ended.cannot]
    legs += [(answer.backend, answer.leg) for answer in answers if answer.why and not answer.cannot and answer.leg]
    return list(dict.fromkeys(legs))


def _failed_end(answer: Across, backend: str, leg: str) -> End | None:
    """How this rank failed in that leg, by an operation or the end of its process; None where it did not fail there."""
    failures = [ended for ended in answer.ended if (ended.backend, ended.leg, ended.cannot) == (backend, leg, False)]
    if failures:
        return End(answer.rank, why=f"failed: {failures[0].why}", step=failures[0].step, steps=failures[0].steps)
    if answer.why and not answer.cannot and (answer.backend, answer.leg) == (backend, leg):
        return End(answer.rank, why=answer.why, step=answer.step, steps=answer.steps)
    return None


def _culprit_columns(culprits: Sequence[Across], message: str) -> dict[str, Fact]:
    """Facts ``culprits`` (ranks) and ``hosts``, Absent where there are none, and ``words``, Absent for no message."""
    if not culprits:
        return {
            **dict.fromkeys(("culprits", "hosts"), Absent("none")),
            "words": Known(message, SOURCE) if message else Absent("none"),
        }
    return known_facts(
        SOURCE,
        culprits=tuple(answer.rank for answer in culprits),
        hosts=tuple(dict.fromkeys(answer.host for answer in culprits)),
        words=message,
    )


def _wrong_values_message(answer: Across, result: Found) -> str:
    """Sentence on a rank's wrong values: ``rank 3 (host a): 2 of 4096 values are wrong``."""
    verb = "is" if result.differ == 1 else "are"
    return f"rank {answer.rank} (host {answer.host}): {result.differ} of {result.compared} values {verb} wrong"


def _transports(leg: str, backend: str, answers: Iterable[Across]) -> tuple[str, ...]:
    """How the data of a leg travelled, over all ranks: sorted, each once."""
    transports = (
        transport
        for answer in answers
        for via in answer.via
        if (via.leg, via.backend) == (leg, backend)
        for transport in via.ways
    )
    return tuple(sorted(set(transports)))

"""What is kept of one host's document: a few dozen values and its findings in short. The rest is dropped at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from gpudoctor.fleet.compared import Answers, known, rows, values
from gpudoctor.model.diagnosis import Verdict
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.rule import CONFIDENCES, LAYERS, SEVERITIES, Confidence, Role, Severity

_NAMES = ("gpu", "uuid", "address", "rank", "nic", "port", "interface", "process")
"""Keys of a subject that tell which part of the host it is."""
_MOST_SUBJECTS = 16
"""Subjects of one finding that are kept."""
MOST_WORDS = 300
"""Characters of a title that are kept."""
Level = Literal["quick", "standard", "deep"]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding in short."""

    id: str
    layer: str
    severity: Severity
    role: Role
    confidence: Confidence
    title: str
    subjects: tuple[Mapping[str, str | int], ...] = field(default=(), compare=False)
    """The GPUs, ports and so on of that host that it is about."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What the slowest GPU of a host reached in a kernel, and which GPU that is (-1: all of them together)."""

    value: float
    unit: str
    gpu: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One host; `because` says why it gave no answer that can be read, and then nothing else is known."""

    host: str
    because: str = ""
    verdict: Verdict = "unknown"
    level: str = ""
    tool: str = ""
    findings: tuple[Told, ...] = ()
    passed: Mapping[str, int] = field(default_factory=dict)
    """How many rules passed, by layer."""
    unjudged: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """The facts that are compared, by name; of what could not be read there is no entry."""
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """By kernel."""
    gpus: int = 0
    gpu: str = ""
    """Their name; several are separated by commas."""
    switch: str = ""

    @property
    def answered(self) -> bool:
        """Whether anything is known of it."""
        return not self.because

    @property
    def kind(self) -> str:
        """Hosts of one kind are compared with each other: those with the same GPUs."""
        return self.gpu


def silent(host: str, because: str) -> Summary:
    """A host that gave no answer."""
    return Summary(host, because or "no answer")


def summarized(document: Mapping[str, Any], layers: Mapping[str, str], host: str = "") -> Summary:
    """Of a whole diagnosis document as JSON; `layers` are those of our rules, `host` its name where we know better.

    Raises `DocumentError` for what is no diagnosis, or one whose parts are not what the contract says.
    """
    try:
        facts = cast(Answers, document["facts"])
        target = document["target"]
        gpus = rows(facts, "gpu")
        names = sorted({str(name) for row in gpus if (name := known(row.get("name")))})
        return Summary(
            host=_interned(host or target["name"]),
            verdict=_one_of(document["verdict"], get_args(Verdict)),
            level=_interned(target["level"]),
            tool=_interned(document["tool"]["version"]),
            findings=tuple(_told(item) for item in document["findings"]),
            passed=_by_layer(document.get("passed", ()), layers),
            unjudged=_by_layer((item["id"] for item in document["unjudged"]), layers),
            values={_interned(name): _interned(said) for name, said in values(facts)},
            rates=dict(_rates(facts)),
            gpus=len(gpus),
            gpu=_interned(", ".join(names)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole diagnosis document: {type(error).__name__} {error}") from error


def _told(raw: Mapping[str, Any]) -> Told:
    rule = _interned(raw["id"])
    return Told(
        rule,
        _interned(raw.get("layer") or rule.partition(".")[0]),
        _one_of(raw["severity"], SEVERITIES),
        _one_of(raw["role"], get_args(Role)),
        _one_of(raw["confidence"], CONFIDENCES),
        _interned(str(raw["title"])[:MOST_WORDS]),
        tuple(filter(None, map(_named, (raw.get("subjects") or [raw.get("subject")])[:_MOST_SUBJECTS]))),
    )


def _named(subject: Mapping[str, Any] | None) -> dict[str, str | int]:
    known = {name: (subject or {}).get(name) for name in _NAMES}
    return {name: value for name, value in known.items() if isinstance(value, (str, int))}


def _one_of(value: Any, allowed: Iterable[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{str(value)[:40]!r} is none of {', '.join(map(str, allowed))}")
    return value


def _by_layer(ids: Iterable[str], layers: Mapping[str, str]) -> dict[str, int]:
    """How many there are of each layer; of a rule that is not ours its topic tells, if that is a layer."""
    counts: dict[str, int] = {}
    for rule in ids:
        layer = layers.get(rule) or rule.partition(".")[0]
        if layer in LAYERS:
            counts[layer] = counts.get(layer, 0) + 1
    return counts


def _rates(facts: Answers) -> Iterable[tuple[str, Rate]]:
    """The slowest of each kernel that measures a rate (``TFLOP/s``, ``GB/s``); what trains depends on the program."""
    slowest: dict[str, Rate] = {}
    for row in rows(facts, "measured"):
        kernel, value, unit = (known(row.get(name)) for name in ("kernel", "value", "unit"))
        if not isinstance(value, (int, float)) or not str(unit).endswith("/s") or known(row.get("rung")) == "training":
            continue
        rate = slowest.get(str(kernel))
        if rate is None or value < rate.value:
            gpu = known(row.get("gpu"))
            slowest[_interned(str(kernel))] = Rate(value, _interned(str(unit)), gpu if isinstance(gpu, int) else -1)
    return slowest.items()


def _interned(text: str) -> str:
    """Ten thousand hosts say mostly the same words: each is kept once."""
    return sys.intern(text)

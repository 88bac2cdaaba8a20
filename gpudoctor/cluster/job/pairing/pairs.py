"""What was measured between two hosts, one `Pair` for each time that they measured each other; and suspects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Measure = Literal["reach", "mtu", "loss", "latency", "bandwidth"]
Way = Literal["from", "to", "both"]

CONNECTED = "connected"


@dataclass(frozen=True, slots=True)
class Direction:
    """Result of sending from one host to the other; None means not measured."""

    outcome: str | None = None
    """``connected``, or why not: refused, filtered, unroutable, unresolved, loopback, failed. None: nobody said."""
    gbps: float | None = None
    """Gbit/s."""
    sent: int = 0
    """TCP segments."""
    resent: int = 0
    """Of these, how many were sent more than once."""
    stalled_above: int | None = None
    """Bytes: larger packets vanish."""
    busy: bool = False
    """Whether its ends were too busy to send or receive faster: a low rate then says nothing against the link."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Result of one round for hosts `a` and `b`; rounds count from 1."""

    round: int
    a: str
    b: str
    there: Direction
    """From `a` to `b`."""
    back: Direction
    """From `b` to `a`."""
    ms: float | None = None
    """Round trip, the shortest of some."""

    @property
    def directions(self) -> Iterator[tuple[str, str, Direction]]:
        """(sender, receiver, result) of both directions."""
        yield self.a, self.b, self.there
        yield self.b, self.a, self.back


# ---- A suspect, and the sentence that says so ----

Kind = Literal["host", "link", "switch"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who is to blame. `names` are one host, one switch, or the two ends of a link.

    Where no two hosts are good with each other, nobody can be told from the others: a link whose ends are all of them.
    """

    kind: Kind
    names: tuple[str, ...]
    way: Way
    """What the first of `names` sends (from), what it receives (to), or both."""
    measure: Measure
    value: float | None
    """The best that was measured: Gbit/s, ms, share of lost segments, bytes of the largest packet; None of reach."""
    usual: float | None
    share: float | None
    """Value over usual."""
    pairs: int
    """How many measured pairs say so."""
    words: str = ""


def sentence(suspect: Suspect) -> str:
    """The suspect as a sentence: ``n17 sends at 2.1 Gbit/s, 22 % of the usual 9.4 (4 pairs)``."""
    title = (
        f"{suspect.names[0]} {_host_phrase(suspect)}"
        if suspect.kind == "host"
        else f"{_path_ends(suspect)} {_path_phrase(suspect)}"
    )
    return f"{title} ({suspect.pairs} pair{'s' * (suspect.pairs != 1)})"


def _host_phrase(suspect: Suspect) -> str:
    """Predicate for a host: ``sends at 2.1 Gbit/s, 22 % of the usual 9.4``."""
    verb = {"from": "sends", "to": "receives", "both": "sends and receives"}[suspect.way]
    value = suspect.value or 0.0
    if suspect.measure == "reach":
        return {
            "from": "reaches none of the hosts that others reach",
            "to": "is reached by none of the hosts that reach others",
            "both": "neither reaches nor is reached by hosts that reach each other",
        }[suspect.way]
    if suspect.measure == "mtu":
        return f"{verb} no packets of more than {value:.0f} bytes"
    if suspect.measure == "loss":
        return f"{verb} with {_percent(value)} of the segments lost"
    if suspect.measure == "latency":
        return f"answers after {value:.3g} ms{_usual_phrase(suspect)}"
    return f"{verb} at {value:.3g} Gbit/s{_usual_phrase(suspect)}"


def _path_ends(suspect: Suspect) -> str:
    """Where the path runs: ``from a to b``, ``between a and b``, ``between any two of 4 hosts``."""
    if len(suspect.names) > 2:
        return f"between any two of {len(suspect.names)} hosts"
    a, b = suspect.names if suspect.kind == "link" else (*suspect.names, "other switches")
    return {"from": f"from {a} to {b}", "to": f"from {b} to {a}", "both": f"between {a} and {b}"}[suspect.way]


def _path_phrase(suspect: Suspect) -> str:
    """What is wrong on a path: ``packets of more than 1400 bytes vanish``."""
    value = suspect.value or 0.0
    if suspect.measure == "reach":
        return "no connection comes about"
    if suspect.measure == "mtu":
        return f"packets of more than {value:.0f} bytes vanish"
    if suspect.measure == "loss":
        return f"{_percent(value)} of the segments are lost"
    if suspect.measure == "latency":
        return f"a round trip takes {value:.3g} ms{_usual_phrase(suspect)}"
    return f"at most {value:.3g} Gbit/s pass{_usual_phrase(suspect)}"


def _usual_phrase(suspect: Suspect) -> str:
    """Comparison with the usual value, beginning with a comma; ``""`` if that is not known."""
    if not suspect.usual:
        return ""
    if suspect.measure == "latency":
        return f", usual are {suspect.usual:.2g} ms"
    return f", {_percent(suspect.share or 0.0, 0)} of the usual {suspect.usual:.3g}"


def _percent(share: float, digits: int = 1) -> str:
    """Share as percent with `digits` decimals: 0.215 is ``21.5 %``."""
    return f"{100 * share:.{digits}f} %"

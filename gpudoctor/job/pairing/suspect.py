"""A suspect, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudoctor.job.pairing.pairs import Measure, Way

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


def words(suspect: Suspect) -> str:
    """``n17 sends at 2.1 Gbit/s, 22 % of the usual 9.4 (4 pairs)``."""
    title = f"{suspect.names[0]} {_host(suspect)}" if suspect.kind == "host" else f"{_where(suspect)} {_path(suspect)}"
    return f"{title} ({suspect.pairs} pair{'s' * (suspect.pairs != 1)})"


def _host(suspect: Suspect) -> str:
    """What it does."""
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
        return f"answers after {value:.3g} ms{_usual(suspect)}"
    return f"{verb} at {value:.3g} Gbit/s{_usual(suspect)}"


def _where(suspect: Suspect) -> str:
    """On which path."""
    if len(suspect.names) > 2:
        return f"between any two of {len(suspect.names)} hosts"
    a, b = suspect.names if suspect.kind == "link" else (*suspect.names, "other switches")
    return {"from": f"from {a} to {b}", "to": f"from {b} to {a}", "both": f"between {a} and {b}"}[suspect.way]


def _path(suspect: Suspect) -> str:
    """What passes on it."""
    value = suspect.value or 0.0
    if suspect.measure == "reach":
        return "no connection comes about"
    if suspect.measure == "mtu":
        return f"packets of more than {value:.0f} bytes vanish"
    if suspect.measure == "loss":
        return f"{_percent(value)} of the segments are lost"
    if suspect.measure == "latency":
        return f"a round trip takes {value:.3g} ms{_usual(suspect)}"
    return f"at most {value:.3g} Gbit/s pass{_usual(suspect)}"


def _usual(suspect: Suspect) -> str:
    if not suspect.usual:
        return ""
    if suspect.measure == "latency":
        return f", usual are {suspect.usual:.2g} ms"
    return f", {_percent(suspect.share or 0.0, 0)} of the usual {suspect.usual:.3g}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"

"""A suspect, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudoctor.job.pairs import Measure, Way

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
    times = f"{suspect.pairs} pair{'s' * (suspect.pairs != 1)}"
    if suspect.kind == "link" and len(suspect.names) > 2:
        return f"between all {len(suspect.names)} hosts {_link(suspect)} ({times})"
    if suspect.kind == "link":
        a, b = suspect.names
        return f"{f'from {a} to {b}' if suspect.way == 'from' else f'between {a} and {b}'} {_link(suspect)} ({times})"
    name = suspect.names[0] if suspect.kind == "host" else f"what hangs on {suspect.names[0]}"
    return f"{name} {_host(suspect)} ({times})"


def _host(suspect: Suspect) -> str:
    """What it does: the rest of the sentence."""
    way, value = suspect.way, suspect.value or 0.0
    verb = {"from": "sends", "to": "receives", "both": "sends and receives"}[way]
    if suspect.measure == "reach":
        return {
            "from": "reaches none of the hosts that others reach",
            "to": "is reached by none of the hosts that reach others",
            "both": "neither reaches nor is reached by hosts that reach each other",
        }[way]
    if suspect.measure == "mtu":
        return f"{verb} no packet of more than {value:.0f} bytes"
    if suspect.measure == "loss":
        return f"{verb} with {value:.1%} of the segments lost".replace("%", " %")
    if suspect.measure == "latency":
        return f"answers after {value:.3g} ms{_usual(suspect)}"
    return f"{verb} at {value:.3g} Gbit/s{_usual(suspect)}"


def _link(suspect: Suspect) -> str:
    """What passes: the rest of the sentence."""
    value = suspect.value or 0.0
    if suspect.measure == "reach":
        return "no connection comes about"
    if suspect.measure == "mtu":
        return f"no packet of more than {value:.0f} bytes arrives"
    if suspect.measure == "loss":
        return f"{value:.1%} of the segments are lost".replace("%", " %")
    if suspect.measure == "latency":
        return f"a round trip takes {value:.3g} ms{_usual(suspect)}"
    return f"at most {value:.3g} Gbit/s arrive{_usual(suspect)}"


def _usual(suspect: Suspect) -> str:
    if not suspect.usual:
        return ""
    if suspect.measure == "bandwidth" and suspect.share is not None:
        return f", {suspect.share:.0%} of the usual {suspect.usual:.3g}".replace("%", " %")
    return f", usual are {suspect.usual:.2g}"

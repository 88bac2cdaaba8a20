"""The training canary of a job: what each rank's steps took, as facts; who is slow, and what the job should reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, number_of, text_of
from gpudoctor.core.language import say

if TYPE_CHECKING:
    from gpudoctor.kernels.across_hosts import Across

SOURCE = "torch.nn.parallel.DistributedDataParallel"

_RATE = (
    "Training canary: {ranks} ranks train {rate} sequences/s together, a step of {step} ms; products and exchange alone"
    " would take {reach} % of it."
)
_SLOWEST = " The slowest by itself is rank {rank} on {host}: {ratio} times the median of the others."
LEG = "training"
"""The leg of the job's collectives that the canary is."""
_FEWEST_RANKS = 2
"""Other ranks to compare with: of two ranks nobody says which one is right."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One rank's answer; times in seconds, of one step each."""

    backend: str
    own: float
    step: float
    exchange: float
    products: float
    samples: int
    dtype: str
    loss: float
    gpu: str = ""
    """Name of its GPU; ranks of one name are compared."""


def canary_rows(answers: Sequence[Across]) -> tuple[Row, ...] | Unread:
    """Rows of the fact group ``canary``, one for each rank that trained; `Unread` and why if none did."""
    trained = [(answer, answer.trained[0]) for answer in answers if answer.trained]
    if not trained:
        ended = next((end for answer in answers for end in answer.ended if end.leg == LEG), None)
        why = next((answer.why for answer in answers if answer.why), "")
        return Unread((ended.why if ended else why) or "no rank trained")
    return tuple(dict(_row_columns(answer, own, trained)) for answer, own in trained)


def _row_columns(answer: Across, own: Trained, trained: Sequence[tuple[Across, Trained]]) -> Iterator[tuple[str, Fact]]:
    """Yield name and fact of each column of one rank's row of ``canary``.

    ``usual_ms``, the median of other ranks with a GPU of the same name, and ``ratio`` to it are Absent with fewer than
    two of these.
    """
    others = [one.own for other, one in trained if other is not answer and one.gpu == own.gpu]
    usual = median(others) if len(others) >= _FEWEST_RANKS else None
    few = Absent("fewer than three ranks with such a device")
    yield "rank", Known(answer.rank, SOURCE)
    yield "host", Known(answer.host, SOURCE)
    yield "hosts", Known((answer.host,), SOURCE)
    yield "device", Known(answer.device, SOURCE) if answer.device else Unread("it did not tell")
    for name in ("backend", "dtype", "samples", "loss"):
        yield name, Known(getattr(own, name), SOURCE)
    for name in ("own", "step", "exchange", "products"):
        yield f"{name}_ms", Known(round(1e3 * getattr(own, name), 3), SOURCE)
    yield "usual_ms", few if usual is None else Known(round(1e3 * usual, 3), SOURCE)
    yield "ratio", few if usual is None else Known(round(own.own / max(usual, 1e-9), 2), SOURCE)
    yield "reach", Known(round((own.products + own.exchange) / max(own.step, 1e-9), 3), SOURCE)


def summary(rows: Sequence[Row]) -> str:
    """Sentences on the rows of ``canary``: sequences/s and step time, what share products and exchange take.

    With a ``ratio`` in any row also the slowest rank.
    """
    step = max(number_of(row["step_ms"]) or 0.0 for row in rows)
    samples = sum(number_of(row["samples"]) or 0.0 for row in rows)
    reach = median([number_of(row["reach"]) or 0.0 for row in rows])
    rate = f"{1e3 * samples / max(step, 1e-6):.0f}"
    text = say(_RATE, ranks=len(rows), rate=rate, step=f"{step:.3g}", reach=f"{100 * reach:.0f}")
    ratios = [(ratio, row) for row in rows if (ratio := number_of(row["ratio"])) is not None]
    if not ratios:
        return text
    ratio, row = max(ratios, key=lambda item: item[0])
    return text + say(_SLOWEST, rank=text_of(row["rank"]), host=text_of(row["host"]), ratio=f"{ratio:g}")

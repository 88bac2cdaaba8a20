"""How long each source of facts took to answer; they are asked side by side."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views.plots import _svg as svg

_MOST = 12
_WIDTH, _ROW, _LEFT, _RIGHT = 640, 16, 150, 60


def figures(diagnosis: Diagnosis) -> Iterator[str]:
    """One picture: a bar for each of the slowest."""
    timings = sorted(diagnosis.snapshot.timings_ms.items(), key=lambda item: (-item[1], item[0]))
    if not timings or timings[0][1] <= 0:
        return
    shown, rest = timings[:_MOST], timings[_MOST:]
    note = f"the slowest; {len(rest)} more took {_said(rest[0][1])} at most" if rest else ""
    about = "; ".join(f"{name}: {_said(ms)}" for name, ms in shown)
    yield svg.figure("Milliseconds", about, (_WIDTH, _ROW * len(shown) + 4), _bars(shown), note, wide=True)


def _bars(shown: list[tuple[str, float]]) -> Iterator[str]:
    longest = shown[0][1]
    for at, (name, ms) in enumerate(shown):
        top, width = _ROW * at + 2, max((_WIDTH - _LEFT - _RIGHT) * max(ms, 0) / longest, 1)
        yield svg.text((_LEFT - 6, top + 10), svg.shortened(name.removeprefix("probe."), 24), "end")
        yield svg.box((_LEFT, top), (width, _ROW - 4), "plain", f"{name}: {_said(ms)}")
        yield svg.text((_LEFT + width + 5, top + 10), _said(ms))


def _said(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"

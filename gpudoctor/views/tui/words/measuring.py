"""Measuring in words: nothing yet, how far it is, what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from gpudoctor.model.measurement import Measurements
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain

_BAR = 24
_ABOUT = (
    "Small kernels tell what no driver reports: whether a GPU computes right values, and as fast as its kind "
    "should: matrix products, memory, the way to the host, and what launching costs."
)
_HERE = "R measures every kernel, minutes in all; GPUs in use are left alone."
_THERE = "On the machine itself they are run by gpudoctor bench, and by gpudoctor check --level deep."


def nothing(said: str, here: bool) -> Iterator[Block]:
    """Why there is nothing to show, what kernels are for, and how they are run: `here`, or on the machine itself."""
    yield Block(plain(said, "bold"))
    yield GAP
    yield Block(plain(_ABOUT))
    yield GAP
    yield Block(plain(_HERE if here else _THERE))


def progress(found: Measurements | None, seconds: float) -> tuple[Content, Content]:
    """How far it is after that time, and how it is stopped."""
    runs = found.runs if found else ()
    open_ = [run for run in runs if run.status in {"waiting", "running"}]
    now = next((run for run in open_ if run.status == "running"), None)
    asked = len(runs) or 1
    full = _BAR * (asked - len(open_)) // asked if runs else 0
    bar = Content.assemble(("█" * full, "$primary"), ("░" * (_BAR - full), "$foreground 40%"))
    where = f" · {now.kernel} on {found.called(now.gpu)}" if now and found else ""
    said = Content.assemble(bar, plain(f"  {asked - len(open_)} of {len(runs)} measured{where} · {seconds:.0f} s"))
    return said, Content("x stop, keep what was measured")


def counts(found: Measurements) -> tuple[Content, Content]:
    """``61 sound · 2 wrong · 4 slow · 8 not measured``, and who is in use."""
    states = [found.state(run) for run in found.runs]
    words = ("sound", "wrong", "failed", "slow")
    said = [f"{count} {word}" for word in words if (count := states.count(word)) or word == "sound"]  # type: ignore[arg-type]
    unjudged = f"{states.count('unjudged')} not judged"
    held = [f"GPU {device.index} is in use by {one_line(device.held)}" for device in found.devices if device.held]
    right = f"{held[0]}: not touched" if len(held) == 1 else f"{len(held)} GPUs are in use: not touched" if held else ""
    when = f"measured {one_line(found.at)}" if found.at else ""
    return Content(" · ".join([*said, unjudged])), Content(right or when)

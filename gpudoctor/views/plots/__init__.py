"""Pictures of what was measured, as inline SVG: nothing is loaded, nothing runs, each says in words what it shows.

Each function gives the markup of figures, or nothing where there are no facts to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.measurement import Measurements
from gpudoctor.views.plots import fleets, gpus, kernels, timings

STYLE = """
.gpudoctor .plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem; }
.gpudoctor figure { margin: 0; padding: .6rem; border: 1px solid var(--line); border-radius: .3rem; min-width: 0;
  break-inside: avoid; }
.gpudoctor figure.wide { grid-column: 1 / -1; overflow-x: auto; }
.gpudoctor figcaption { font-size: .85em; font-weight: 600; }
.gpudoctor figcaption small { font-weight: 400; color: var(--quiet); }
.gpudoctor svg { display: block; width: 100%; height: auto; overflow: visible; }
.gpudoctor figure.wide svg { max-width: 100%; width: auto; }
.gpudoctor svg text { font: 10px ui-sans-serif, system-ui, sans-serif; fill: var(--quiet); }
.gpudoctor svg .strong { fill: var(--ink); font-weight: 600; paint-order: stroke; stroke: var(--paper);
  stroke-width: 2px; stroke-linejoin: round; }
.gpudoctor svg .axis { stroke: var(--line); } .gpudoctor svg .most { stroke: var(--quiet); stroke-dasharray: 3 2; }
.gpudoctor svg .least { stroke: var(--ink); stroke-opacity: .55; }
.gpudoctor svg .band { fill: var(--sound); fill-opacity: .16; }
.gpudoctor svg .plain { fill: var(--info); } .gpudoctor svg .sound { fill: var(--sound); }
.gpudoctor svg .warning { fill: var(--warning); } .gpudoctor svg .error { fill: var(--error); }
.gpudoctor svg .none { fill: var(--line); fill-opacity: .45; }
"""


def sections(diagnosis: Diagnosis, found: Measurements | None) -> Iterator[str]:
    """A heading and its figures for each kind of which there are facts."""
    parts: tuple[tuple[str, str, Callable[[], Iterator[str]]], ...] = (
        (say("Hosts"), say("· passed, ! warning, ✗ error, ? not judged."), lambda: fleets.figures(diagnosis)),
        (
            say("Kernels, against what is expected"),
            say(
                "A bar for each GPU. Where that of a sound one ends is shaded; slow begins at the line."
                " Dashed: the maker's limit. ? was not measured."
            ),
            lambda: kernels.figures(found),
        ),
        (
            say("GPUs, when they were read"),
            say("A bar for each GPU; dashed: its limit."),
            lambda: gpus.figures(diagnosis),
        ),
        (
            say("How long each source took"),
            say("They are asked side by side."),
            lambda: timings.figures(diagnosis),
        ),
    )
    for heading, legend, figures in parts:
        if drawn := list(figures()):
            yield f"<h2>{heading}</h2>"
            yield f'<p class="quiet">{legend}</p>'
            yield '<div class="plots">'
            yield from drawn
            yield "</div>"

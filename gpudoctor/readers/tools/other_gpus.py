"""GPUs as AMD's and Windows' tools name them: rocminfo, rocm-smi, wmic and Get-CimInstance."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._machine import gpu_facts_by_vendor, gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 3

_MARKETING = Pattern(r"\s*Marketing Name:\s+(\S(?:.*\S)?)\s*$")
_SERIES = Pattern(r"\s*GPU\[\d+\]\s*:\s*Card (?:Series|series|model|Model):\s+(\S(?:.*\S)?)\s*$")
_ALONE = Pattern(
    r"\s*((?:AMD (?:Radeon|Instinct)|Radeon RX|Intel\(R\) (?:UHD|HD|Iris|Arc)|NVIDIA (?:GeForce|RTX|Quadro|Tesla))"
    r"[\w() .+-]{0,50}?)\s*$"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of NVIDIA GPUs, and the other makers; 0 NVIDIA GPUs where all listed are of other makers."""
    low = paste.lower
    if not any(word in low for word in ("radeon", "instinct", "intel(r)", "marketing name", "card series")):
        return
    rows: list[Row] = []
    for index, line in enumerate(paste.lines):
        match = _MARKETING.match(line) or _SERIES.match(line) or _ALONE.match(line)
        if match and gpu_vendor(match.group(1)) and " CPU" not in line and "Processor" not in line:
            rows.append({"name": Known(match.group(1), paste.use(index))})
    if rows:
        yield from gpu_facts_by_vendor(rows)

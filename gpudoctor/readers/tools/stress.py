"""gpu-burn: which GPUs it calls faulty, and the rates of all of them in its last line of progress.

GPUs are named where it has listed them before, and their rates compared where all are of one name.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = ()

_PROGRESS = Pattern(r"\s*\d{1,3}\.\d%\s+proc'd: (.{1,3000}?)\s+errors: (.{1,1000}?)(?:\s+temps: .*)?$")
_RATE = Pattern(r"\d{1,12} \((\d{1,8}) Gflop/s\)")
_RESULT = Pattern(r"\s+GPU (\d{1,3}): (OK|FAULTY)\s*$")
_NAME = Pattern(r"\s*GPU (\d{1,3}): (\S.{1,60}?) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``live_gpu`` for GPUs that gpu-burn calls faulty, and of ``rate`` for the rates of its last progress."""
    if "gflop/s" not in paste.lower and "tested " not in paste.lower:
        return
    rates: list[float] = []
    source = ""
    names: dict[int, tuple[str, str]] = {}
    faulty: list[dict[str, Fact]] = []
    for index, line in enumerate(paste.bare):
        if progress := _PROGRESS.match(line):
            found = [float(rate) for rate in _RATE.compiled.findall(progress[1])]
            if found and all(found):
                rates, source = found, paste.use(index)
            paste.use(index)
        elif name := _NAME.match(line):
            names[int(name[1])] = name[2], name[3]
        elif (result := _RESULT.match(line)) and result[2] == "FAULTY" and int(result[1]) in names:
            faulty.append(_faulty_row(int(result[1]), *names[int(result[1])], paste.use(index)))
    if len(rates) > 1 and len({names.get(gpu, (str(gpu),))[0] for gpu in range(len(rates))}) == 1:
        yield (
            "rate",
            tuple(
                {
                    "gpu": Known(gpu, source),
                    "value": Known(rate, source),
                    "unit": Known("Gflop/s", source),
                    "others": Known(median(rates[:gpu] + rates[gpu + 1 :]), "the other GPUs of the report"),
                }
                for gpu, rate in enumerate(rates)
            ),
        )
    if faulty:
        yield "live_gpu", tuple(faulty)


def _faulty_row(gpu: int, name: str, uuid: str, source: str) -> dict[str, Fact]:
    """The row of ``live_gpu`` for a GPU that gpu-burn has listed and calls faulty."""
    return {
        "index": Known(gpu, source),
        "name": Known(name, source),
        "uuid": Known(uuid, source),
        "wrong": Known(("gpu-burn's matrix products",), source),
    }

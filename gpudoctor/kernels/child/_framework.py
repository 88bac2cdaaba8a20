"""What TensorFlow and JAX have in common here: one GPU to see, what they warn of, and one product to check.

Both bring numpy along, by which the reference is reckoned.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List

from ._kernel import Outcome

_SIDE, _SIDE_CPU = 2048, 96
SIZE = "2048³"
_CALLS = 5
_TELLING = re.compile(r"cuda|gpu|dlopen|driver|cudnn|nvidia", re.IGNORECASE)
_INFO = re.compile(r"^(?:I\d{4} |\d{4}-\d\d-\d\d [\d:.]+: I )")
_PREFIX = re.compile(r"^(?:[WEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [WEF] )?(?:\S+:\d+\] ?)?")


def see_only(device: str) -> bool:
    """Have only that one be seen, or none for ``cpu``, so that no other GPU gets a context; whether it is a GPU."""
    number = device.partition(":")[2]
    seen = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    if number:
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[int(number)] if int(number) < len(seen) else number
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return bool(number)


@contextmanager
def overheard() -> Iterator[List[str]]:
    """The lines that are written to standard error meanwhile, there once it is over; they are passed on, too."""
    lines: List[str] = []
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            said = file.read()
            os.write(2, said)
            lines += said.decode("utf-8", "replace").splitlines()


def warnings(lines: List[str]) -> str:
    """What of it is about GPUs, without dates and places in the source; the first few, each once."""
    told = [_PREFIX.sub("", line).strip() for line in lines if _TELLING.search(line) and not _INFO.match(line)]
    return " ".join(list(dict.fromkeys(filter(None, told)))[:3])[:500]


def product(seed: int, on_cpu: bool, multiply: Callable[[Any, Any], Callable[[], Any]]) -> Outcome:
    """Two fp32 matrices of odd numbers from -3 to 3: exact, in tf32 as well, in whatever order they are summed.

    `multiply` takes them and gives what computes their product once and brings it back.
    """
    import numpy

    side = _SIDE_CPU if on_cpu else _SIDE
    random = numpy.random.RandomState(seed)
    left, right = ((random.randint(-2, 2, (side, side)) * 2 + 1).astype(numpy.float32) for _ in range(2))
    once = multiply(left, right)
    wrong = numpy.asarray(once()) != left.astype(numpy.float64) @ right.astype(numpy.float64)
    differ = int(wrong.sum())
    first = [int(at) for at in numpy.argwhere(wrong)[0]] if differ else []
    words = "%d of %d values are wrong, the first at %s" % (differ, wrong.size, first) if differ else ""
    seconds = sorted(_timed(once) for _ in range(_CALLS))
    return Outcome(
        value=seconds[_CALLS // 2] * 1e6, right=not differ, differ=differ, compared=int(wrong.size), words=words
    )


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

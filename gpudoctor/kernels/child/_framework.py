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
_GPU_RELATED = re.compile(r"cuda|gpu|dlopen|driver|cudnn|nvidia", re.IGNORECASE)
_INFO = re.compile(r"^(?:I\d{4} |\d{4}-\d\d-\d\d [\d:.]+: I )")
_PREFIX = re.compile(r"^(?:[WEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [WEF] )?(?:\S+:\d+\] ?)?")


def restrict_visible_devices(device: str) -> bool:
    """Set CUDA_VISIBLE_DEVICES to the device ``cuda:N``, or to none for ``cpu``; True if it is a GPU."""
    number = device.partition(":")[2]
    visible = [entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if number:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if int(number) < len(visible) else number
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return bool(number)


@contextmanager
def captured_stderr() -> Iterator[List[str]]:
    """Yields a list that holds the lines written to file descriptor 2 once the block ends; they are passed on, too."""
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
            output = file.read()
            os.write(2, output)
            lines += output.decode("utf-8", "replace").splitlines()


def warnings(lines: List[str]) -> str:
    """The first three different lines about GPUs, without dates and source positions, joined, cut to 500 characters."""
    messages = [_PREFIX.sub("", line).strip() for line in lines if _GPU_RELATED.search(line) and not _INFO.match(line)]
    return " ".join(list(dict.fromkeys(filter(None, messages)))[:3])[:500]


def product(seed: int, on_cpu: bool, multiply: Callable[[Any, Any], Callable[[], Any]]) -> Outcome:
    """Check the product of two random fp32 matrices for exact equality and time it; the value is µs per product.

    Values are odd, from -3 to 3: exact in TF32 as well, in whatever order they are summed. `multiply` takes both
    matrices and returns a function that computes their product once and brings it back to the host.
    """
    import numpy

    side = _SIDE_CPU if on_cpu else _SIDE
    random = numpy.random.RandomState(seed)
    left, right = ((random.randint(-2, 2, (side, side)) * 2 + 1).astype(numpy.float32) for _ in range(2))
    compute = multiply(left, right)
    wrong = numpy.asarray(compute()) != left.astype(numpy.float64) @ right.astype(numpy.float64)
    differ = int(wrong.sum())
    first = [int(at) for at in numpy.argwhere(wrong)[0]] if differ else []
    words = "%d of %d values are wrong, the first at %s" % (differ, wrong.size, first) if differ else ""
    seconds = sorted(_seconds_of(compute) for _ in range(_CALLS))
    return Outcome(
        value=seconds[_CALLS // 2] * 1e6, right=not differ, differ=differ, compared=int(wrong.size), words=words
    )


def _seconds_of(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

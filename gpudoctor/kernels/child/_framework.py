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
from typing import Any, Callable, Dict, Iterator, List, Mapping

from ._kernel import Broken, CannotRun, Outcome

_SIDE, _SIDE_CPU = 2048, 96
SIZE = "2048³"
_TIMED_CALLS = 5
_GPU_RELATED = re.compile(r"cuda|gpu|dlopen|driver|cudnn|nvidia", re.IGNORECASE)
_INFO = re.compile(r"^(?:I\d{4} |\d{4}-\d\d-\d\d [\d:.]+: I )")
_PREFIX = re.compile(r"^(?:[WEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [WEF] )?(?:\S+:\d+\] ?)?")


def restrict_visible_devices(device: str) -> bool:
    """Set CUDA_VISIBLE_DEVICES to the N-th visible GPU for ``cuda:N``, to none for ``cpu``; True if it is a GPU."""
    number = device.partition(":")[2]
    visible = [entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if number:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if int(number) < len(visible) else number
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return bool(number)


@contextmanager
def captured_stderr() -> Iterator[List[str]]:
    """A context whose list holds, after its end, the lines written to file descriptor 2; they are passed on, too."""
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
    """The first three different warnings or errors about GPUs, without dates and positions, joined by spaces; at most
    500 characters.
    """
    messages = [_PREFIX.sub("", line).strip() for line in lines if _GPU_RELATED.search(line) and not _INFO.match(line)]
    return " ".join(list(dict.fromkeys(filter(None, messages)))[:3])[:500]


class Context:
    """A framework, called `name` in `version`, with its devices and the lines it wrote while it looked for them."""

    def __init__(
        self, module: Any, name: str, ask: Mapping[str, Any], devices: Dict[str, Any], stderr_lines: List[str], why: str
    ) -> None:
        self.module, self.name, self.version = module, name, str(module.__version__)
        self.seed = int(ask.get("seed", 1))
        self.on_cpu = not str(ask["device"]).partition(":")[2]
        self.devices = devices
        """By name."""
        self.why = why
        """What it said where it sees no device."""
        self.stderr_lines = stderr_lines

    def description(self) -> Dict[str, Any]:
        """The framework's version by its name, and ``devices``, the names of those it sees."""
        return {self.module.__name__: self.version, "devices": list(self.devices)}

    def check(self, advice: str, kind: Callable[[Any], Dict[str, Any]]) -> Outcome:
        """A right outcome with the first device's name, the framework's version, and the framework's warnings as words.

        `kind(device)` gives more details. Raises `Broken` with `advice` if the framework sees no GPU.
        """
        package = str(self.module.__name__)
        if not self.devices:
            reason = self.why or warnings(self.stderr_lines) or "it does not say why"
            raise Broken("%s %s sees no GPU: %s" % (package, self.version, reason), advice)
        name, device = next(iter(self.devices.items()))
        details = {"device": name, **kind(device), package: self.version}
        return Outcome(right=True, words=warnings(self.stderr_lines), details=details)

    def product(self, multiply: Callable[[Any, Any], Callable[[], Any]]) -> Outcome:
        """Check a product of random matrices exactly and time it (µs) on the device; raises `CannotRun` without one."""
        if not self.devices:
            raise CannotRun("%s sees no GPU" % self.name)
        return product(self.seed, self.on_cpu, multiply)


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
    seconds: List[float] = []
    for _ in range(_TIMED_CALLS):
        began = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - began)
    value = sorted(seconds)[_TIMED_CALLS // 2] * 1e6
    return Outcome(value=value, right=not differ, differ=differ, compared=int(wrong.size), words=words)

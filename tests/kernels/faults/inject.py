"""Flip single bits of results of the eager kernels on the CPU, and see whether each kernel's own check notices.

Run by an interpreter with torch: ``python inject.py TRIALS SEED [KERNEL...]``; prints one JSON object. A trial takes a
kernel, a size and one of its cases at random. The clean result must be right; with one flipped bit of one element,
among those that the check states it sees, it must be wrong.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

CHILD = Path(__file__).resolve().parents[3] / "gpudoctor/kernels/child"
SIZES = {"autograd": 40, "convolution": 14, "attention": 60, "fft": 300, "matmul": 200}
"""The largest size that a trial asks for; 3000 values of what has one dimension."""


def package() -> str:
    """Make the child's folder known as it is to the child itself."""
    spec = importlib.util.spec_from_file_location("gpudoctor_child_main", CHILD / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    main.register_package()
    return str(main.PACKAGE)


def kernels(root: str, wanted: list[str]) -> list[tuple[ModuleType, str]]:
    """Every kernel of the eager rung that gives cases."""
    modules = importlib.import_module(root + "._main").modules("eager")
    found = [(module, spec.id) for module in modules if hasattr(module, "cases") for spec in module.KERNELS]
    return [one for one in found if not wanted or one[1] in wanted]


def exponent_bits(dtype: str) -> tuple[int, int]:
    """Bits of the mantissa and all bits but the sign of a floating-point type of torch."""
    return {"float64": (52, 63), "float32": (23, 31), "float16": (10, 15), "bfloat16": (7, 15)}[dtype]


def mantissa_bits(whole: int, ulps: int) -> int:
    """How many of a mantissa's top bits, of `whole`, are sure to be caught by a bound of `ulps` if flipped; all for 0.

    Bit i from the top is worth 2**(m - i) units of the last place of the value itself, whose unit may be half that of
    the reference where the two lie on either side of a power of two; the value may be `ulps` off the other way.
    """
    return whole if not ulps else max(0, whole - 2 - math.floor(math.log2(2 * ulps)))


def seen_bits(check: ModuleType, case: Any, result: Any) -> list[int]:
    """Numbers of the bits, from the lowest, that the case states to see."""
    name = str(result.dtype).rpartition(".")[2]
    if not result.is_floating_point():
        return list(range(8 * result.element_size()))
    mantissa, rest = exponent_bits(name)
    short = next(short for short, long in check.DTYPES.items() if long == name)
    return list(range(mantissa - mantissa_bits(check.MANTISSA[short], case.ulps), rest + 1))


def flipped(check: ModuleType, torch: Any, result: Any, place: int, bit: int) -> Any:
    """A copy with that bit of that element the other way round."""
    faulty = result.detach().clone().contiguous()
    whole = check.bits(torch, faulty).view(-1)
    width = 8 * faulty.element_size()
    mask = 1 << bit if bit < width - 1 or width == 8 else -(1 << bit)
    whole[place] = int(whole[place]) ^ mask
    return faulty


class Trials:
    """What came of them."""

    def __init__(self, root: str, torch: Any, seed: int) -> None:
        self.torch, self.random = torch, random.Random(seed)
        self.check, self.rung = (importlib.import_module(root + name) for name in (".eager._check", ".eager"))
        self.absent = importlib.import_module(root + "._kernel").CannotRun
        self.count: Counter[str] = Counter()
        self.by_kernel: Counter[str] = Counter()
        self.bad: list[dict[str, Any]] = []

    def run(self, module: ModuleType, kernel: str) -> None:
        """One clean result, one with a flipped bit, and now and then one with the same flipped bit each time."""
        seed = self.random.randrange(1 << 20)
        size = self.random.randint(2, SIZES.get(kernel.partition(".")[0], 3000))
        context = self.rung.Context(self.torch, "cpu", seed)
        case = self.random.choice(list(self.able(module.cases(context, kernel, size))))
        result = case.compute()
        said = {"kernel": kernel, "case": case.name, "seed": seed, "size": size}
        self.by_kernel[kernel] += 1
        self.tell("clean", not case.judge(result).differ, said)
        if case.ulps == self.check.UNSEEN:
            return
        place = self.random.randrange(result.numel())
        bit = self.random.choice(seen_bits(self.check, case, result))
        fault = dict(said, place=place, bit=bit, dtype=str(result.dtype))
        faulty = flipped(self.check, self.torch, result, place, bit)
        judged = case.judge(faulty)
        self.tell("flipped", judged.differ == 1 and judged.places == {place}, fault)
        if self.count["flipped"] % 20 == 0:
            again = case._replace(compute=lambda: flipped(self.check, self.torch, case.compute(), place, bit))
            words = self.check.run_cases(context, [again])["words"]
            self.tell("repeated", "the same 1 in 3 of 3 repetitions: not noise" in words, dict(fault, words=words))

    def able(self, cases: Iterator[Any]) -> Iterator[Any]:
        """Those that the CPU can compute at all."""
        for case in cases:
            try:
                case.compute()
            except self.absent:
                continue
            yield case

    def tell(self, kind: str, good: bool, said: dict[str, Any]) -> None:
        """Count it; keep what went wrong."""
        self.count[kind] += 1
        if not good:
            self.bad.append(dict(said, kind=kind))


def main(trials: int, seed: int, wanted: list[str]) -> None:
    """As many with a flipped bit, and at least as many clean ones."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch.set_num_threads(1)
    root = package()
    every = kernels(root, wanted)
    ran = Trials(root, torch, seed)
    began = time.monotonic()
    while ran.count["flipped"] < trials:
        ran.run(*ran.random.choice(every))
    seconds = round(time.monotonic() - began, 1)
    said = {**ran.count, "bad": ran.bad, "kernels": ran.by_kernel, "seconds": seconds}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

"""A model split over two devices: the loss and the gradients of one device, and what of its speed is left."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager import Context, median_and_spread
from ..eager._check import Judged, near
from . import _model

KERNELS = (
    Spec("readiness.split", "model split over two", "%", "50 M parameters, 2 × 25 M", seconds=40.0, scope="node"),
)
_NEAR = 1e-6
"""How far the loss may be from float64's, as a share: its sum rounds, the gradients do not."""


class Split:
    """A sequence of layers with its first half on one device and its second on another."""

    def __init__(self, layers: Any, first: Any, second: Any) -> None:
        half = len(layers) // 2
        self._first, self._second = layers[:half].to(first), layers[half:].to(second)
        self._where = second

    def __call__(self, inputs: Any) -> Any:
        """The output, on the second device."""
        return self._second(self._first(inputs).to(self._where))


def run(context: Context, _: Spec) -> Outcome:
    """Check a model split over each pair of neighbours; value: speed of the first pair in % of one device."""
    torch = context.torch
    _model.use_full_fp32(torch)
    devices = _devices(context)
    names = list(devices)
    neighbours = zip(names, names[1:] + names[:1])
    verdicts = {(one, two): _check(context, devices[one], devices[two]) for one, two in neighbours}
    wrong = ["%s and %s: %s" % (*pair, one.words) for pair, ones in verdicts.items() for one in ones if one.differ]
    size = _model.timed_size(context)
    first, second = list(devices.values())[:2]
    alone, split = (_samples_per_second(context, size, first, other) for other in (first, second))
    share = 100 * split / alone
    return Outcome(
        value=share,
        right=not wrong,
        differ=sum(one.differ for ones in verdicts.values() for one in ones),
        compared=sum(one.compared for ones in verdicts.values() for one in ones),
        words=summary(alone, split, len(verdicts), wrong),
        advice=advice(share, wrong),
        details={"one_samples_s": alone, "split_samples_s": split, "pairs": len(verdicts), "wrong": wrong},
    )


def summary(alone: float, split: float, pairs: int, wrong: List[str]) -> str:
    """Sentences on a model split over two devices; `alone` and `split` are samples a second."""
    if wrong:
        same = "A model split over two devices has another loss or other gradients: %s" % "; ".join(wrong[:3])
    else:
        same = "A model split over two devices has the loss and gradients of float64 on one (pairs tried: %d)" % pairs
    return "%s. It trains %.0f samples/s, on one device %.0f." % (same, split, alone)


def advice(share: float, wrong: List[str]) -> str:
    """What to do about a model split over two devices, by its speed in % of one device and by faults."""
    if wrong:
        return (
            "What crosses between these GPUs is damaged: gpudoctor bench --kernel peer looks closer; NCCL_P2P_DISABLE=1"
            " and an IOMMU that is off or in passthrough mode are the usual cures."
        )
    text = (
        "Only one device works at a time: feed small batches one behind another (torch.distributed.pipelining), or"
        " where the model fits by shards, use FSDP."
    )
    return text if share >= 80 else "The link costs much of the speed. Cut where activations are small. " + text


def _devices(context: Context) -> Dict[str, Any]:
    """torch devices of all GPUs by name (``GPU 0``); on a CPU the same twice; raises `CannotRun` for fewer than two."""
    if context.on_cpu:
        return {"CPU": context.device, "CPU again": context.device}
    if len(context.devices) < 2:
        raise CannotRun("it needs two GPUs that nobody uses")
    numbered = zip(context.numbers, context.devices)
    return {"GPU %d" % number: context.torch.device("cuda", at) for number, at in numbered}


def _check(context: Context, first: Any, second: Any) -> Tuple[Judged, Judged]:
    """Verdicts on loss (nearly equal) and gradients (exact) of a network split over both devices, against float64."""
    torch = context.torch
    layers = _model.exact_network(torch, context.generator(1))
    inputs, goals = _model.exact_batch(torch, context.generator(2), 4)
    wanted = _model.reference(layers, inputs, goals, _model.exact_loss)
    exact_loss = _model.exact_loss(layers.double()(inputs.double()), goals.double()).detach()
    layers.float()
    loss = _model.exact_loss(Split(layers, first, second)(inputs.to(first)), goals.to(second))
    loss.backward()
    return near(torch, loss.reshape(1), exact_loss.reshape(1), _NEAR), _model.check_gradients(torch, layers, wanted)


def _samples_per_second(context: Context, size: _model.Size, first: Any, second: Any) -> float:
    """Samples a second of training with the layers split over the two devices."""
    torch = context.torch
    layers = _model.transformer(torch, size)
    model = Split(layers, first, second)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    inputs, goals = _model.batch(torch, size, context.generator(4))
    inputs, goals = inputs.to(first), goals.to(second)
    times = context.seconds(lambda: _model.step(model, optimizer, inputs, goals), least=0.5, rounds=3)
    return size.samples / median_and_spread(times)[0]

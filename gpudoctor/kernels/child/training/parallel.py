"""One process, DataParallel and DistributedDataParallel: the same gradients, and how much faster than one device.

Each way is checked bit for bit, then timed, by ranks in processes of their own (`rank`). They are asked with
``{"way": "alone" | "together", "devices": n, "cpu": bool, "seed": n}``: ``alone`` is one process, on one device, then
by DataParallel on all; ``together`` is DistributedDataParallel, a rank a device.
"""

from __future__ import annotations

import contextlib
import copy
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence

from .. import _ranks
from .._kernel import CannotRun, Outcome, Spec
from .._ranks import ThisRank, exchange_values, init_group
from ..collective import _nccl
from ..eager import Context
from ..eager._check import Judged
from . import _model

KERNELS = (Spec("readiness.parallel", "DDP on all devices", "%", "50 M parameters, fp32", seconds=100.0, scope="node"),)
_MODE_LIMIT = 45.0
"""Seconds for the ranks of one way."""
_CPU_RANKS = 2
_ON_CPU = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
_WAIT_LIMIT, _WAIT_LIMIT_CPU = 20.0, 5.0
"""Seconds that one rank waits for another in any one exchange."""
_BUCKET_MB = 0.125
"""So small that the checked network's gradients are exchanged in more than one bucket."""
_WARM, _STEPS = 2, 8


def run(context: Context, _: Spec) -> Outcome:
    """Check and time one device, DataParallel and DDP in processes of their own; value: DDP's efficiency in %.

    Raises `CannotRun` for fewer than two GPUs.
    """
    count = _CPU_RANKS if context.on_cpu else len(context.devices)
    if count < 2:
        raise CannotRun("it needs two GPUs that nobody uses")
    require_backends(context.torch, context.on_cpu)
    (alone,) = _run_mode(context, "alone", 1, count)
    ranks = _run_mode(context, "together", count, count)
    rates = throughput(alone, ranks)
    wrong = [result for result in (alone, *ranks) for name in result if name.endswith("_differ") and result[name]]
    return Outcome(
        value=rates["efficiency"],
        right=not wrong,
        differ=_sum_of((alone, *ranks), "_differ"),
        compared=_sum_of((alone, *ranks), "_compared"),
        words=summary(rates, count, wrong_gradients(alone, ranks, ["GPU %d" % number for number in context.numbers])),
        advice=advice(rates),
        details=dict(rates, devices=count),
    )


def require_backends(torch: Any, on_cpu: bool) -> None:
    """Raise `CannotRun` where this torch lacks torch.distributed or, for GPUs, NCCL."""
    if not torch.distributed.is_available():
        raise CannotRun("this torch is built without torch.distributed")
    if not on_cpu and not torch.distributed.is_nccl_available():
        raise CannotRun("this torch is built without NCCL")


def throughput(alone: Dict[str, Any], ranks: List[Dict[str, Any]]) -> Dict[str, float]:
    """Samples a second by ``one``, ``data_parallel``, ``ddp`` (all ranks) and ``without_exchange``.

    And of the last two, in % of as many times one device, ``efficiency`` and ``efficiency_without_exchange``.
    """
    ddp, apart = (sum(result[name] for result in ranks) for name in ("ddp", "apart"))
    whole = len(ranks) * alone["one"]
    return {
        "one": alone["one"],
        "data_parallel": alone["data_parallel"],
        "ddp": ddp,
        "without_exchange": apart,
        "efficiency": 100 * ddp / whole,
        "efficiency_without_exchange": 100 * apart / whole,
    }


def wrong_gradients(alone: Dict[str, Any], ranks: List[Dict[str, Any]], names: Sequence[str] = ()) -> str:
    """Modes and ranks whose gradients are wrong, in words; `names` are those of the ranks' devices."""
    messages = []
    for mode, name in (("one", "one device"), ("data_parallel", "DataParallel")):
        if alone[mode + "_differ"]:
            messages.append("by %s %s" % (name, alone[mode + "_words"]))
    for at, result in enumerate(ranks):
        if result["ddp_differ"]:
            where = names[at] if names else "rank %d" % at
            messages.append("by DistributedDataParallel on %s %s" % (where, result["ddp_words"]))
    return "; ".join(messages)


def summary(rates: Dict[str, float], count: int, wrong: str) -> str:
    """Sentences on data-parallel training on `count` devices, by `throughput`; `wrong`: faulty gradients or empty."""
    same = "Gradients are wrong: " + wrong if wrong else "All three give the gradients of one batch in float64"
    return (
        "%s. One device trains %.0f samples/s, DataParallel on %d %.0f, DistributedDataParallel %.0f: %.0f %% of %d"
        " times one." % (same, rates["one"], count, rates["data_parallel"], rates["ddp"], rates["efficiency"], count)
    )


def advice(rates: Dict[str, float]) -> str:
    """What to do for data-parallel training, by the rates and by what the exchange of gradients costs."""
    sentences = []
    if rates["ddp"] > rates["data_parallel"]:
        sentences.append("Use DistributedDataParallel, one process a GPU (torchrun), not DataParallel.")
    lost = 100 - rates["efficiency"]
    exchange = rates["efficiency_without_exchange"] - rates["efficiency"]
    if lost >= 15:
        sentences.append(_EXCHANGE if exchange >= lost / 2 else _SHARED)
    return " ".join(sentences) or "Nothing to do."


_EXCHANGE = (
    "The exchange of gradients takes most of what is lost: larger batches or accumulation with no_sync(), gradients"
    " in bf16 (register_comm_hook(None, bf16_compress_hook)); gpudoctor bench --kernel nccl measures the links."
)
_SHARED = (
    "Most is lost without any exchange: the devices share what each needs. Look at CPU cores per process"
    " (OMP_NUM_THREADS), power and clocks with all GPUs busy, and the PCIe switches they share."
)


def _run_mode(context: Context, mode: str, ranks: int, devices: int) -> List[Dict[str, Any]]:
    """Run `ranks` processes of one mode (``alone``, ``together``); returns their answers, raises where one failed."""
    ask = {"way": mode, "devices": devices, "cpu": context.on_cpu, "seed": context.seed}
    environ = _ON_CPU if context.on_cpu else _nccl.ENVIRON
    ends = _ranks.run_ranks(__name__, ranks, ask, _MODE_LIMIT, environ)
    bad = _ranks.faults(ends)
    if ranks > 1 and not context.on_cpu and bad:
        raise _nccl.failure(bad)
    return _ranks.answers(ends)


def _sum_of(results: Any, suffix: str) -> int:
    """Sum of all entries of the dictionaries whose name ends in `suffix`."""
    return sum(value for result in results for name, value in result.items() if name.endswith(suffix))


# ---- A rank ----


def rank(me: ThisRank) -> Dict[str, Any]:
    """Train in this rank as asked: ``alone`` or ``together``.

    Returns samples a second by mode (``one``, ``data_parallel``; ``ddp``, ``apart``), and for checked ones
    ``<mode>_differ``, ``_compared`` and ``_words``.
    """
    me.step("import torch")
    import torch  # type: ignore[import-not-found,unused-ignore]

    _model.use_full_fp32(torch)
    context = Context(torch, "cpu" if me.ask["cpu"] else "cuda:%d" % me.rank, int(me.ask["seed"]))
    if not context.on_cpu:
        me.step("start of %s" % context.device)
        torch.cuda.set_device(context.device)
    return _train_alone(me, context) if me.ask["way"] == "alone" else _train_ddp(me, context)


def _train_alone(me: ThisRank, context: Context) -> Dict[str, Any]:
    """Check and time training on one device (``one``), then by DataParallel on all (``data_parallel``).

    Returns for both samples a second by name, and ``<name>_differ``, ``_compared`` and ``_words`` of their gradients.
    """
    count = int(me.ask["devices"])
    me.step("train on one device")
    rates = _verdict_entries("one", _check(context, lambda network: network, 1))
    rates["one"] = _samples_per_second(context, lambda network: network, 1)
    me.step("train by DataParallel")

    def wrap(network: Any) -> Any:
        """The network, replicated over all devices."""
        if context.on_cpu:
            return Replicas(context.torch, network, count)
        return context.torch.nn.DataParallel(network, device_ids=list(range(count)))

    return dict(
        rates,
        **_verdict_entries("data_parallel", _check(context, wrap, count)),
        data_parallel=_samples_per_second(context, wrap, count),
    )


def _train_ddp(me: ThisRank, context: Context) -> Dict[str, Any]:
    """Check and time DistributedDataParallel in this rank (``ddp``), then time it without exchange (``apart``).

    Returns for both samples a second by name, and ``ddp_differ``, ``_compared`` and ``_words`` of the gradients.
    """
    init_group(context.torch, me, *(("gloo", _WAIT_LIMIT_CPU) if context.on_cpu else ("nccl", _WAIT_LIMIT)))

    def wrap(network: Any, bucket_mb: float = 25) -> Any:
        """The network in DistributedDataParallel."""
        where = None if context.on_cpu else [context.device]
        return context.torch.nn.parallel.DistributedDataParallel(network, device_ids=where, bucket_cap_mb=bucket_mb)

    me.step("exchange gradients")
    rates = _verdict_entries("ddp", _check(context, lambda network: wrap(network, _BUCKET_MB), me.count, me.rank))
    me.step("train by DistributedDataParallel")
    rates["ddp"] = _samples_per_second(context, wrap, 1)
    me.step("train without exchange")
    rates["apart"] = _samples_per_second(context, wrap, 1, exchange=False)
    exchange_values(context.torch, me, "done", "")  # none leaves while another one still reads from its memory
    return rates


class Replicas:
    """DataParallel for one CPU: replicate, scatter, apply in threads, gather."""

    def __init__(self, torch: Any, network: Any, count: int) -> None:
        self._torch = torch
        self._network = network
        self._frames = [copy.deepcopy(network) for _ in range(count)]
        self._call = torch.func.functional_call if hasattr(torch, "func") else torch.nn.utils.stateless.functional_call

    def __call__(self, inputs: Any) -> Any:
        """The outputs of the whole batch; a backward pass adds up all gradients in the one network."""
        weights = [{name: weight.clone() for name, weight in self._network.named_parameters()} for _ in self._frames]
        with ThreadPoolExecutor(len(self._frames)) as threads:
            outputs = threads.map(self._call, self._frames, weights, inputs.chunk(len(self._frames)))
            return self._torch.cat(list(outputs))


def _check(context: Context, wrap: Any, count: int, rank: Optional[int] = None) -> Judged:
    """The verdict on the exact network's gradients over one batch for `count` replicas.

    With `rank`, this process has a share of the batch alone: averaged over all, they are those of the whole batch.
    """
    torch = context.torch
    network = _model.exact_network(torch, context.generator(1))
    inputs, goals = _model.exact_batch(torch, context.generator(2), count)
    wanted = _model.reference(network, inputs, goals, _model.exact_loss)
    if rank is not None:
        inputs, goals = (side.chunk(count)[rank] for side in (inputs, goals))
    wrapped = wrap(network.to(context.device))  # it exchanges only while it lives
    _model.exact_loss(wrapped(inputs.to(context.device)), goals.to(context.device)).backward()
    return _model.check_gradients(torch, network, wanted, count)


def _verdict_entries(mode: str, verdict: Judged) -> Dict[str, Any]:
    """Entries ``<mode>_differ``, ``_compared`` and ``_words`` of a rank's answer."""
    return {mode + "_differ": verdict.differ, mode + "_compared": verdict.compared, mode + "_words": verdict.words}


def _samples_per_second(context: Context, wrap: Any, devices: int, exchange: bool = True) -> float:
    """Samples a second that this process trains, the network wrapped by `wrap`, with a full batch for each device."""
    torch = context.torch
    size = _model.timed_size(context)
    size = size._replace(samples=size.samples * devices)
    network = _model.transformer(torch, size, context.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    wrapped = wrap(network)
    inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
    with contextlib.nullcontext() if exchange else wrapped.no_sync():
        for at in range(_WARM + _STEPS):
            if at == _WARM:
                context.synchronize()
                began = time.perf_counter()
            _model.step(wrapped, optimizer, inputs, goals)
        context.synchronize()
    return size.samples * _STEPS / (time.perf_counter() - began)

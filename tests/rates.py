"""Machines that were measured: snapshots of simulated machines with what kernels gave on them, sound and sick.

The values of sound GPUs are those that owners of such GPUs publish, with the clocks and powers at which they work; what
is sick about a machine is changed in them afterwards.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from gpudoctor.app import bench
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.fact import Known, Unread, Value
from gpudoctor.core.measurement import Kernel, Meanwhile, Measurements, Run, Rung, Status, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.kernels import facts
from gpudoctor.target.record import to_json
from tests.sim import scenario

_UNITS = {"matmul": "TFLOP/s", "copy": "GB/s", "launch": "µs", "allocator": "µs"}
_SMALL = (
    *("add", "softmax", "reduce", "sort", "fft", "conv2d", "layer_norm", "gelu", "scatter", "gather", "scan"),
    "topk",
)
_LADDER = (Step("driver", True), Step("torch", True))
_ORDER: tuple[Rung, ...] = ("driver", "torch", "triton", "nccl")


@dataclass(frozen=True)
class Model:
    """A GPU as CUDA tells of it, how it is at work, and what it reaches."""

    profile: str
    sms: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    at_work: Meanwhile
    reaches: Mapping[str, float]
    name: str = ""
    """Where it is not that of the profile."""
    told: Mapping[str, Value] = field(default_factory=dict)
    """Columns of ``gpu`` that are not those of the profile."""


def _work(
    clocks: tuple[int, int],
    power: float,
    limit: float,
    heat: int,
    link: tuple[int, int],
    held: tuple[str, ...] = ("sw_power_cap",),
) -> Meanwhile:
    """SM clock and the highest one, power and its limit, PCIe generation and lanes."""
    return Meanwhile(*clocks, power, limit, heat, held, *link, 100, 0, 0)


MODELS: Mapping[str, Model] = {
    "H100": Model(
        "hgx-h100",
        132,
        1980,
        2619,
        5120,
        _work((1485, 1980), 698, 700, 62, (5, 16)),
        {
            "matmul.fp32": 51.8,
            "matmul.tf32": 401,
            "matmul.fp16": 662,
            "matmul.bf16": 684,
            "matmul.fp8": 1190,
            "matmul.fp64": 58,
            "copy.device": 2890,
            "copy.to": 54.6,
            "copy.from": 55.2,
            "launch": 4.1,
            "allocator": 1.9,
        },
    ),
    "A100": Model(
        "hgx-a100",
        108,
        1410,
        1593,
        5120,
        _work((1380, 1410), 395, 400, 58, (4, 16)),
        {
            "matmul.fp32": 18.4,
            "matmul.tf32": 127,
            "matmul.fp16": 251,
            "matmul.bf16": 254,
            "matmul.fp64": 18.1,
            "copy.device": 1712,
            "copy.to": 24.6,
            "copy.from": 25.1,
            "launch": 5.6,
            "allocator": 2.4,
        },
    ),
    "B200": Model(
        "hgx-b200",
        148,
        1965,
        3996,
        8192,
        _work((1710, 1965), 985, 1000, 60, (5, 16)),
        {
            "matmul.fp32": 62,
            "matmul.tf32": 780,
            "matmul.bf16": 1520,
            "matmul.fp8": 2890,
            "copy.device": 6350,
            "copy.to": 55,
            "copy.from": 55,
            "launch": 3.8,
            "allocator": 1.7,
        },
    ),
    "V100": Model(
        "v100-dgx1",
        80,
        1530,
        877,
        4096,
        _work((1410, 1530), 296, 300, 60, (3, 16)),
        {"matmul.fp32": 13.8, "matmul.fp16": 91, "copy.device": 779, "copy.to": 12.1, "copy.from": 12.8, "launch": 6.1},
    ),
    "L40S": Model(
        "l40s",
        142,
        2520,
        9001,
        384,
        _work((1980, 2520), 345, 350, 66, (4, 16)),
        {
            "matmul.fp32": 60,
            "matmul.tf32": 118,
            "matmul.bf16": 241,
            "matmul.fp8": 402,
            "copy.device": 668,
            "copy.to": 24.9,
            "copy.from": 25.3,
            "launch": 4.4,
        },
    ),
    "T4": Model(
        "t4",
        40,
        1590,
        5001,
        256,
        _work((855, 1590), 69.4, 70, 71, (3, 16)),
        {"matmul.fp32": 4.3, "matmul.fp16": 24.8, "copy.device": 236, "copy.to": 12.1, "copy.from": 12.9},
    ),
    "L4": Model(
        "t4",
        58,
        2040,
        6251,
        192,
        _work((1005, 2040), 71.3, 72, 68, (4, 16)),
        {
            "matmul.fp32": 11.6,
            "matmul.tf32": 26,
            "matmul.bf16": 51,
            "matmul.fp8": 98,
            "copy.device": 238,
            "copy.to": 24.1,
            "copy.from": 24.9,
            "launch": 5.1,
        },
        name="NVIDIA L4",
        told={"compute_capability": "8.9", "power_limit_w": 72, "power_limit_default_w": 72, "clock_max_mhz": 2040},
    ),
    "RTX 4090": Model(
        "rtx4090",
        128,
        2520,
        10501,
        384,
        _work((2715, 3105), 441, 450, 66, (4, 16), ()),
        {
            "matmul.fp32": 58,
            "matmul.tf32": 81,
            "matmul.fp16": 161,
            "matmul.bf16": 162,
            "matmul.fp8": 302,
            "copy.device": 921,
            "copy.to": 25.1,
            "copy.from": 26.2,
            "launch": 3.9,
        },
    ),
    "RTX 3090": Model(
        "rtx3090-bridge",
        82,
        1695,
        9751,
        384,
        _work((1605, 2100), 349, 350, 69, (4, 16)),
        {"matmul.fp32": 23.1, "matmul.tf32": 33, "matmul.bf16": 66, "copy.device": 835, "copy.to": 24.8},
    ),
    "laptop RTX 4070": Model(
        "laptop-4070",
        36,
        2175,
        8001,
        128,
        _work((1230, 3105), 54, 55, 79, (4, 8)),
        {"matmul.fp32": 8.6, "matmul.tf32": 11, "matmul.bf16": 21.2, "copy.device": 214, "copy.to": 12.4},
    ),
}


@cache
def machine(model: str) -> Snapshot:
    """The simulated machine with that GPU, as a quick look at it gives."""
    told = MODELS[model]
    record = scenario.load(scenario.PROFILES / f"{told.profile}.json")
    snapshot = snapshot_of(json.dumps(to_json(record)))
    ours = {name: getattr(told, name) for name in ("sms", "clock_mhz", "memory_clock_mhz", "memory_bus_bits")}
    if told.name:
        ours["name"] = told.name
    if "compute_capability" in told.told:
        ours["compute_capability"] = told.told["compute_capability"]
    named = {**told.told, **({"name": told.name} if told.name else {})}
    return _laid_over(_laid_over(_quick(snapshot), "cuda_device", ours), "gpu", named)


def _quick(snapshot: Snapshot) -> Snapshot:
    """Without torch's own look: kernels are asked beside the facts of level quick."""
    unasked = Unread("asked from level standard on")
    facts = {name: unasked if name.startswith("live.") else state for name, state in snapshot.facts.items()}
    return replace(snapshot, facts=facts, groups={**snapshot.groups, "live_gpu": unasked})


def _laid_over(snapshot: Snapshot, group: str, columns: Mapping[str, Value]) -> Snapshot:
    rows = snapshot.rows(group)
    assert isinstance(rows, tuple)
    told = {name: Known(value, "test") for name, value in columns.items()}
    return replace(snapshot, groups={**snapshot.groups, group: tuple({**row, **told} for row in rows)})


def sound(model: str, seed: int = 1, spread: float = 0.05) -> Measurements:
    """What sound GPUs gave, each value within `spread` of what is published; with two dozen small kernels."""
    told, noise = MODELS[model], random.Random(seed)
    there = bench.devices_of(machine(model))
    kernels = [Kernel(name, name, _UNITS[name.partition(".")[0]]) for name in told.reaches]
    small = [Kernel(f"{name}.{kind}", name, "GB/s") for name in _SMALL for kind in ("fp32", "bf16")]
    runs = [
        Run(
            kernel.id,
            device.index,
            "ran",
            told.reaches.get(kernel.id, 500.0) * (1 + noise.uniform(-spread, spread)),
            spread=0.01,
            right=True,
            differ=0,
            compared=1 << 20,
            ladder=_LADDER,
            meanwhile=told.at_work,
        )
        for device in there
        for kernel in (*kernels, *small)
    ]
    return Measurements("node", (*kernels, *small), there, tuple(runs))


Change = Callable[[Run], Run]


def changed(found: Measurements, gpus: Sequence[int], head: str, change: Change) -> Measurements:
    """With those runs changed whose kernel's id begins so, on those GPUs."""
    runs = tuple(change(run) if run.gpu in gpus and run.kernel.startswith(head) else run for run in found.runs)
    return replace(found, runs=runs)


def with_ways(found: Measurements, rate: float, slow: Mapping[int, float]) -> Measurements:
    """With copies between all GPUs at that rate; those to and from a GPU of `slow` at that share of it."""
    ways = {
        f"{one}-{other}": round(rate * slow.get(one, 1) * slow.get(other, 1), 1)
        for one in range(8)
        for other in range(8)
        if one != other
    }
    peers = Kernel("peer.copy", "GPU to GPU", "GB/s")
    return with_run(found, peers, "ran", value=min(ways.values()), right=True, details={"rates": dict(ways)})


def with_run(found: Measurements, kernel: Kernel, status: Status, gpu: int = -1, **run: Any) -> Measurements:
    """With another kernel that was run so; of all GPUs together, unless one is named."""
    made = Run(kernel.id, gpu, status, **{"ladder": _LADDER, **run})
    return replace(found, kernels=(*found.kernels, kernel), runs=(*found.runs, made))


def slower(share: float, **seen: float | tuple[str, ...]) -> Change:
    """At that share of its value, with what NVML saw meanwhile."""

    def change(run: Run) -> Run:
        assert run.value is not None
        assert run.meanwhile is not None
        return replace(run, value=run.value * share, meanwhile=replace(run.meanwhile, **seen))  # type: ignore[arg-type]

    return change


def wrong(words: str) -> Change:
    """Not the values of the reference."""
    return lambda run: replace(run, right=False, differ=3, words=words)


def held(by: str) -> Change:
    """Not run: somebody uses the GPU."""
    return lambda run: Run(run.kernel, run.gpu, "not-run", because=f"in use by {by}")


def broken(rung: Rung, message: str) -> Change:
    """The rung fails on that GPU, and with it every kernel that stands on it."""
    below = tuple(step for step in _LADDER if _ORDER.index(step.rung) < _ORDER.index(rung))
    return lambda run: Run(
        run.kernel, run.gpu, "failed", because=message, ladder=(*below, Step(rung, False, f"{run.kernel}: {message}"))
    )


def snapshot(model: str, found: Measurements, **told: Value) -> Snapshot:
    """The machine with what was measured on it; `told` columns of ``gpu`` are as given."""
    return facts.measured(_laid_over(machine(model), "gpu", told), found)


def _lowered(found: Measurements) -> Measurements:
    """As the power limit of GPU 4 leaves it."""
    return changed(found, [4], "matmul", slower(0.58, sm_clock_mhz=870, power_w=298, power_limit_w=300))


def sick() -> Mapping[str, tuple[Snapshot, str, str]]:
    """By name: a machine of eight H100 with one thing wrong, the page that names it, and what its sentence holds."""
    h100 = sound("H100")
    hot: dict[str, Any] = {
        "sm_clock_mhz": 1110,
        "power_w": 412,
        "temperature_c": 89,
        "reasons": ("hw_slowdown", "hw_thermal_slowdown"),
    }
    brake: dict[str, Any] = {"sm_clock_mhz": 795, "power_w": 301, "reasons": ("hw_slowdown", "hw_power_brake_slowdown")}
    narrow = slower(0.24, link_width=4)
    told: dict[str, tuple[Measurements, str, str]] = {
        "half of its memory's bandwidth": (
            changed(h100, [3], "copy.device", slower(0.5)),
            "gpu.slow",
            "GPU 3: copy.device reaches 14",
        ),
        "half of its rate in every product": (changed(h100, [6], "matmul", slower(0.5)), "gpu.slow", "GPU 6: matmul."),
        "half of its links' rate": (
            with_ways(h100, 371, {5: 0.5}),
            "gpu.slow",
            "GPU 5: peer.copy reaches 186 GB/s, the others 371 (50 %)",
        ),
        "four lanes under load": (
            changed(changed(h100, [2], "copy.to", narrow), [2], "copy.from", narrow),
            "gpu.pcie-degraded",
            "GPU 2 (NVIDIA H100 80GB HBM3): PCIe at x4 of x16, generation 5 of 5",
        ),
        "copies slow over a whole link": (
            changed(h100, [2], "copy.from", slower(0.3)),
            "gpu.copies-slow",
            "GPU 2: copy.from reaches 1",
        ),
        "hot": (
            changed(h100, [5], "matmul", slower(0.55, **hot)),
            "gpu.throttled",
            "in force while matmul.fp32 ran: hw_slowdown, hw_thermal_slowdown; 89 degrees C",
        ),
        "power brake": (
            changed(h100, [1], "matmul", slower(0.4, **brake)),
            "gpu.throttled",
            "GPU 1 (NVIDIA H100 80GB HBM3)",
        ),
        "clocks locked": (
            changed(h100, [0], "matmul", slower(0.3, sm_clock_mhz=600, power_w=190, reasons=())),
            "gpu.throttled",
            "in force while matmul.fp32 ran: none; 600 of 1980 MHz",
        ),
        "TF32 switched off": (
            changed(h100, range(8), "matmul.tf32", slower(51.8 / 401)),
            "env.tf32-off",
            "no faster than in fp32",
        ),
        "wrong on one GPU": (
            changed(h100, [6], "matmul.bf16", wrong("3 of 67108864 values are wrong, the first at [17, 4096]")),
            "gpu.wrong-results",
            "GPU 6 (NVIDIA H100 80GB HBM3) computes wrong values: matmul.bf16; 3 of 67108864",
        ),
        "wrong on all": (changed(h100, range(8), "matmul.fp8", wrong("")), "torch.wrong-results", "matmul.fp8"),
        "ECC errors meanwhile": (
            changed(h100, [7], "copy.device", slower(1, ecc_uncorrected=2)),
            "gpu.ecc",
            "since the driver loaded: 2; 2 of them while kernels were measured",
        ),
        "memory repaired all the time": (
            changed(h100, [4], "matmul", slower(1, ecc_corrected=30000, seconds=2.5)),
            "gpu.errors-rise",
            "GPU 4 (NVIDIA H100 80GB HBM3) computes right, and its errors count up; its memory had",
        ),
        "an NVLink full of errors": (
            changed(h100, [2], "copy.device", slower(1, nvlink_crc=9000, nvlink_failures=1, seconds=2.5)),
            "gpu.errors-rise",
            "its NVLinks had 9000 CRC errors; its NVLinks were trained again",
        ),
        "the driver's kernels fail": (
            changed(h100, [3], "", broken("driver", "cuLaunchKernel: 719, unspecified launch failure")),
            "driver.kernel-failed",
            "GPU 3: NVML answers for it",
        ),
        "torch fails": (
            changed(h100, [3], "", broken("torch", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")),
            "torch.kernel-failed",
            "GPU 3: torch fails where the layer below it holds",
        ),
        "torch has no code for the GPU": (
            changed(
                h100,
                range(8),
                "",
                broken("torch", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
            ),
            "torch.no-kernel-image",
            "no kernel image is available",
        ),
        "compiled kernels fail": (
            changed(h100, [0], "gelu", broken("triton", "RuntimeError: Failed to find C compiler")),
            "ext.triton",
            "Failed to find C compiler",
        ),
    }
    machines = {name: (snapshot("H100", found), page, says) for name, (found, page, says) in told.items()}
    late, peers = "it did not come to an end within 60 s", Kernel("peer.copy", "GPU to GPU", "GB/s")
    nccl: dict[str, Any] = {"ladder": (*_LADDER, Step("nccl", False, f"nccl.allreduce: {late}")), "because": late}
    stuck: dict[str, Any] = {"right": False, "details": {"stuck": ["0x7f2a00000018 bit 3"]}}
    differ: dict[str, Any] = {"right": False, "differ": 12, "compared": 1 << 23, "words": "wrong on the way 2 to 5"}
    added: tuple[tuple[str, Measurements, str, str], ...] = (
        (
            "words change between GPUs",
            with_run(h100, peers, "ran", value=41.2, **differ),
            "gpu.peer-wrong",
            "wrong on the way 2 to 5",
        ),
        (
            "NCCL fails",
            with_run(h100, Kernel("nccl.allreduce", "all-reduce", "GB/s"), "failed", **nccl),
            "nccl.failed",
            late,
        ),
        (
            "a stuck bit",
            with_run(h100, Kernel("soak.memory", "march", ""), "ran", gpu=3, **stuck),
            "gpu.memory-cells",
            "the first at 0x7f2a00000018 bit 3",
        ),
    )
    machines |= {name: (snapshot("H100", found), page, says) for name, found, page, says in added}
    lowered = snapshot("H100", _lowered(h100), power_limit_w=300, power_limit_default_w=700)
    machines["power limit lowered"] = lowered, "gpu.throttled", "power limit 300 W, delivered with 700 W"
    return machines

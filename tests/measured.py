"""What kernels and fleet checks of the demo machines answered: ``python -m tests.measured --write`` makes them anew.

The values are invented; their proportions are those of healthy H100s and of the faults that they show.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpudoctor.core.fact import Json
from gpudoctor.core.fleet import OK, Check, Drain, Fleet, Host, Pairwise, Result, Suspect
from gpudoctor.core.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Run, Step
from gpudoctor.kernels import specs
from tests.needs import REPOSITORY

HOME = REPOSITORY / "gpudoctor/app/demos"
H100 = "H100 80GB HBM3"
_TABLE = "rules/tables/gpus.toml, of ml-engineering 744d01e1 (2025-10)"
_LIMITS: tuple[tuple[str, float, float, str], ...] = (
    ("matmul.bf16", 989, 0.73, "bf16 dense"),
    ("matmul.fp16", 989, 0.72, "fp16 dense"),
    ("matmul.tf32", 494.5, 0.74, "tf32 dense"),
    ("matmul.fp8", 1979, 0.68, "fp8 dense"),
    ("copy.device", 3350, 0.86, "HBM3"),
    ("copy.to", 63.0, 0.87, "PCIe 5 ×16"),
    ("copy.from", 63.0, 0.87, "PCIe 5 ×16"),
)
"""Kernel, limit of an H100, share that a sound one achieves, and what the limit is of."""
_EVERY = {one.spec.id: one.kernel for one in specs.all_kernels()}
_KERNELS = tuple((_EVERY[name], limit, share, words) for name, limit, share, words in _LIMITS)
_LAUNCH = _EVERY["launch"]
_DEEP = (_EVERY["triton.matmul.bf16"], _EVERY["nccl.all_reduce"])
_LADDER = (Step("driver", True), Step("torch", True), Step("triton", True))
_WARM = Meanwhile(1980, 1980, 668, 700, 63)
_HOT, _WRONG, _BUSY = 5, 6, 7


def node() -> Measurements:
    """Eight H100: one held back by heat, one that computes wrong values, one in use."""
    noise = random.Random(5)
    devices = tuple(Device(gpu, H100, "pid 41207, train.py" if gpu == _BUSY else "") for gpu in range(8))
    runs: list[Run] = []
    for kernel, limit, share, words in _KERNELS:
        expected = Expected(round(limit * share, 1), "table", limit, share, f"H100 SXM, {words}", _TABLE)
        runs += [_run(kernel, gpu, expected, noise) for gpu in range(8)]
    for gpu in range(8):
        run = Run(_LAUNCH.id, gpu, "ran", round(4.1 * noise.uniform(0.97, 1.04), 2), 0.03, ladder=_LADDER[:2])
        runs.append(_held(run) if gpu == _BUSY else replace(run, meanwhile=_WARM))
    kernels = (*(kernel for kernel, *_ in _KERNELS), _LAUNCH, *_DEEP)
    return Measurements("node05", kernels, devices, tuple(runs), "2026-11-21T03:02:11Z")


def _run(kernel: Kernel, gpu: int, expected: Expected, noise: random.Random) -> Run:
    value = expected.value * noise.uniform(0.975, 1.012)
    run = Run(kernel.id, gpu, "ran", spread=0.004, expected=expected, right=True, ladder=_LADDER, meanwhile=_WARM)
    matmul = kernel.id.startswith("matmul")
    if gpu == _BUSY:
        return _held(run)
    if gpu == _HOT and matmul:
        heat = Meanwhile(1110, 1980, 412, 700, 88, ("hw_slowdown", "hw_thermal_slowdown"))
        run, value = replace(run, meanwhile=heat, spread=0.021), value * 0.553
    if gpu == _WRONG and kernel.id in ("matmul.bf16", "matmul.fp16"):
        words = "The same 3 in 5 of 5 repetitions, in rows 4096 to 4103: not noise."
        run = replace(run, right=False, differ=3, compared=8192**2, words=words)
    elif matmul:
        run = replace(run, differ=0, compared=8192**2)
    return replace(run, value=round(value, 1))


def _held(run: Run) -> Run:
    return Run(run.kernel, run.gpu, "not-run", expected=run.expected, because="in use by pid 41207, train.py (61 GiB)")


def too_old() -> Measurements:
    """Eight H100 whose driver is too old for torch: nothing gets beyond the second rung."""
    message = "CUDA initialization: The NVIDIA driver on your system is too old (found version 12020)"
    ladder = (Step("driver", True), Step("torch", False, message), Step("triton", None), Step("nccl", None))
    kernels = tuple(kernel for kernel, *_ in _KERNELS)
    runs = tuple(Run(kernel.id, gpu, "failed", ladder=ladder) for kernel in kernels for gpu in range(8))
    devices = tuple(Device(gpu, H100) for gpu in range(8))
    return Measurements("node17", (*kernels, _LAUNCH, *_DEEP), devices, runs, "2026-11-21T03:02:11Z")


CHECKS = (
    Check("driver", "driver and its modules", "drv"),
    Check("gpus", "all GPUs there", "gpus"),
    Check("ecc", "ECC and row remapping", "ecc"),
    Check("nvlink", "NVLinks up", "nvl"),
    Check("pcie", "PCIe link width and speed", "pcie"),
    Check("torch", "torch computes", "trch"),
    Check("nccl", "NCCL all-reduce", "nccl"),
    Check("network", "network links", "net"),
    Check("clocks", "clocks held back", "clk"),
    Check("kernels", "kernels, measured over expected", "krnl"),
)


def rack() -> Fleet:
    """Eight hosts: one slow link, one driver that differs, one that does not answer."""
    names = [f"node{number:02}" for number in range(1, 9)]
    silent = "no answer in 10 s (ssh: connect to host node06 port 22: Connection timed out)"
    hosts = tuple(Host(name, "leaf1", 8, H100, silent if name == "node06" else "") for name in names)
    results = {name: {check.id: OK for check in CHECKS} for name in names if name != "node06"}
    eth2 = "eth2 negotiated 100 of 200 Gb/s"
    results["node04"]["network"] = Result("warning", eth2, "nccl.slow")
    results["node04"]["kernels"] = Result("warning", "all-reduce with the others: 19.9 of 48 GB/s", "nccl.slow", 0.415)
    differs = "570.124.06; the six others that answered run 580.95.05"
    results["node07"]["driver"] = Result("error", differs, "fleet.differs")
    suspects = (
        Suspect(
            "host",
            ("node04",),
            "warning",
            "likely",
            "every pair with node04 runs at 41 %, both ways; pairs without it at 97 %",
            (f"its own link: {eth2}", "all 12 measured ways with node04: 19.6 to 20.2 of 48 GB/s"),
            "nccl.slow",
            "look at its cable and transceiver: ethtool eth2",
        ),
        Suspect("host", ("node07",), "error", "certain", "driver 570.124.06, the six others 580.95.05",
                ("differs from its siblings: modinfo nvidia",), "fleet.differs",
                "install driver 580.95.05 on it, as on the others"),
        Suspect("host", ("node06",), "info", "certain", "no answer in 10 s (ssh: timed out)",
                ("not judged: its GPUs are unknown",), "fleet.no-answer", ""),
    )  # fmt: skip
    drain = (_drain(("node04",), "gpudoctor: nccl.slow"), _drain(("node07",), "gpudoctor: fleet.differs"))
    pairwise = _pairwise(names, {"node04": 0.415}, {"node06"}, 4, {})
    return Fleet("8 hosts", hosts, CHECKS, results, "no-go", pairwise, suspects, drain, "2026-11-21T03:02:11Z", 31.0)


def cluster() -> Fleet:
    """64 hosts with 512 GPUs on four leaf switches: one bad host, one bad link, a wrong GPU, two that do not answer."""
    names = [f"node{number:02}" for number in range(1, 65)]
    silent = {"node19": "no answer in 10 s", "node52": "ssh: connect to host node52 port 22: No route to host"}
    hosts = tuple(Host(name, f"leaf{at // 16 + 1}", 8, H100, silent.get(name, "")) for at, name in enumerate(names))
    results = {name: {check.id: OK for check in CHECKS} for name in names if name not in silent}
    results["node07"]["clocks"] = Result("warning", "GPU 2 held at 1320 of 1980 MHz by heat", "gpu.throttled")
    results["node07"]["kernels"] = Result("warning", "bf16 matmul on GPU 2: 478 of 722 TFLOP/s", "gpu.slow", 0.66)
    results["node33"]["network"] = Result("error", "mlx5_3 is down: 7 of 8 rails", "nccl.infiniband")
    results["node33"]["nccl"] = Result("error", "all-reduce at 31 %", "nccl.slow", 0.31)
    wrong = "3 of 67108864 values of a bf16 matmul differ on GPU 6"
    results["node41"]["kernels"] = Result("error", wrong, "gpu.wrong-results")
    results["node58"]["ecc"] = Result("warning", "GPU 0: 1 row waits for a reset to be remapped", "gpu.ecc")
    results["node60"]["torch"] = Result("unjudged", "the child was ended after 30 s")
    suspects = (
        Suspect("gpu", ("node41", "GPU 6"), "error", "certain", "GPU 6 of node41 computes wrong values",
                (wrong, "the same 3 in 5 of 5 repetitions: not noise"), "gpu.wrong-results",
                "take the host out; ask for a replacement of GPU 6"),
        Suspect("host", ("node33",), "error", "certain", "every pair with node33 runs at 31 %, both ways",
                ("mlx5_3 is down: 7 of 8 rails", "pairs without it: 94 to 99 %"), "nccl.infiniband",
                "look at the cable of mlx5_3 and at its port on leaf3"),
        Suspect("link", ("node12", "node48"), "warning", "likely", "one pair alone is slow: node12 and node48, at 58 %",
                ("both are sound with all others: 95 to 98 %", "the way between leaf1 and leaf3, not a host"),
                "nccl.pair-slow", "look at the uplinks of leaf1 and leaf3 for errors and uneven hashing"),
        Suspect("host", ("node07",), "warning", "certain", "GPU 2 of node07 is held back by heat",
                ("1320 of 1980 MHz at 90 °C", "bf16 matmul at 66 % of the expected 722 TFLOP/s"), "gpu.throttled",
                "look at its cooling"),
        Suspect("host", ("node58",), "warning", "certain", "a GPU of node58 waits for a reset",
                ("GPU 0: 1 row to be remapped",), "gpu.ecc", "reset GPU 0 between jobs"),
        Suspect("host", ("node19", "node52"), "info", "certain", "2 hosts gave no answer",
                tuple(silent.values()), "fleet.no-answer", ""),
    )  # fmt: skip
    drain = (
        _drain(("node41",), "gpudoctor: gpu.wrong-results"),
        _drain(("node33",), "gpudoctor: nccl.infiniband"),
        _drain(("node07",), "gpudoctor: gpu.throttled"),
    )
    links = {("node12", "node48"): 0.58, ("node48", "node12"): 0.57}
    pairwise = _pairwise(names, {"node33": 0.315}, set(silent), 9, links)
    return Fleet("64 hosts", hosts, CHECKS, results, "no-go", pairwise, suspects, drain, "2026-11-21T03:02:11Z", 94.0)


def _pairwise(
    names: list[str], slow: dict[str, float], silent: set[str], seed: int, links: dict[tuple[str, str], float]
) -> Pairwise:
    noise = random.Random(seed)

    def measured(source: str, target: str) -> float | None:
        value = 48.0 * noise.uniform(0.94, 0.99)
        if source == target or silent & {source, target}:
            return None
        share = links.get((source, target)) or min(slow.get(source, 1.0), slow.get(target, 1.0))
        return round(value if share == 1.0 else 48.0 * share * noise.uniform(0.985, 1.015), 1)

    rows = tuple(tuple(measured(source, target) for target in names) for source in names)
    return Pairwise("NCCL send and receive, 256 MiB", "GB/s", 48.0, tuple(names), rows)


def _drain(hosts: tuple[str, ...], reason: str) -> Drain:
    argv = ("scontrol", "update", f"NodeName={','.join(hosts)}", "State=DRAIN", f"Reason={reason}")
    return Drain(hosts, reason, argv)


def made() -> Iterator[tuple[Path, str]]:
    """Every document of the demos, and its text."""
    yield HOME / "hot-gpu/kernels.json.gz", _text(node().to_json())
    yield HOME / "torch-cu130/kernels.json.gz", _text(too_old().to_json())
    yield HOME / "hot-gpu/cluster.json.gz", _text(rack().to_json())
    yield HOME / "sound/cluster.json.gz", _text(cluster().to_json())


def _text(document: dict[str, Json]) -> str:
    """One line for each thing that has many."""
    lines = [
        f" {json.dumps(name)}: {_list(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}"
        for name, value in document.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _list(values: list[Json]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(value, ensure_ascii=False)}" for value in values) + "\n ]"


if __name__ == "__main__":
    stale = [
        (path, text)
        for path, text in made()
        if not path.exists() or gzip.decompress(path.read_bytes()).decode() != text
    ]
    for path, text in stale if "--write" in sys.argv else ():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    if "--write" not in sys.argv:
        sys.exit("\n".join(str(path) for path, _ in stale))

"""What there is to say of a GPU: why it is held back, what was found about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Known, Row, listed
from gpudoctor.model.rule import Severity
from gpudoctor.model.sample import GPU, Process

IDLE = "gpu_idle"
REASONS = (
    ("hw_thermal_slowdown", "heat"),
    ("sw_thermal_slowdown", "heat"),
    ("hw_power_brake_slowdown", "power brake"),
    ("sw_power_cap", "power cap"),
    ("sync_boost", "sync boost"),
    ("applications_clocks_setting", "clocks set by an administrator"),
    ("display_clocks_setting", "clocks of the display"),
    ("board_limit", "board limit"),
    ("reliability", "voltage limit"),
)
"""NVML's clock-event reasons that hold clocks down, in words, the most telling first."""
_HELD_MIB = 64
"""Memory in use that an idle GPU has even without a process: the driver's own."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def held_back(gpu: GPU) -> str:
    """``▼ heat, power cap``; ``z idle, 37 GiB held``; empty where nothing holds its clocks."""
    if gpu.throttle_reasons is None:
        return ""
    reasons = list(dict.fromkeys(word for name, word in REASONS if name in gpu.throttle_reasons))
    if not reasons and "hw_slowdown" in gpu.throttle_reasons:
        reasons = ["hardware slowdown"]
    if reasons:
        return f"▼ {', '.join(reasons)}"
    if IDLE in gpu.throttle_reasons:
        return f"z idle{_holders(gpu)}"
    return ""


def _holders(gpu: GPU) -> str:
    used = gpu.memory_used_mib or 0
    if used < _HELD_MIB or not gpu.processes:
        return ""
    return f", {gib(used)} GiB held"


def gib(mib: float) -> str:
    """GiB as one reads them: 79, 9.2, 0.1."""
    size = mib / 1024
    return f"{size:.0f}" if size >= 9.95 or size < 0.05 else f"{size:.1f}"


def rate(mb_s: float) -> str:
    """MB/s in three or four signs: 12, 940, 1.4k."""
    return f"{mb_s:.0f}" if mb_s < 999.5 else f"{mb_s / 1000:.1f}k" if mb_s < 99_500 else f"{mb_s / 1000:.0f}k"


def process(one: Process) -> str:
    """``pid 41207  train.py  9.0 GiB  alice``."""
    memory = "" if one.memory_mib is None else f"{gib(one.memory_mib)} GiB"
    return "  ".join(filter(None, (f"pid {one.pid}", one.name or "name not told", memory, one.user)))


@dataclass(frozen=True, slots=True)
class Health:
    """What was found about each GPU, by its index, the worst first."""

    by_gpu: Mapping[int, Sequence[Finding]]

    def of(self, index: int) -> Sequence[Finding]:
        """The findings about that GPU."""
        return self.by_gpu.get(index, ())

    def severity(self, index: int) -> Severity | None:
        """The worst of them; None where nothing was found."""
        return next((finding.severity for finding in self.of(index)), None)


NOTHING = Health({})


def health(diagnosis: Diagnosis) -> Health:
    """Findings by the GPUs that they name: as their subject, by a row that belongs to one, or by PCI address."""
    gpus = _rows(diagnosis, "gpu")
    indices = [_number(row, "index", place) for place, row in enumerate(gpus)]
    addresses = {
        str(at.value): index for row, index in zip(gpus, indices, strict=True) if (at := _known(row, "address"))
    }
    found: dict[int, list[Finding]] = {}
    nameless = [index for row, index in zip(gpus, indices, strict=True) if not _known(row, "address")]
    for finding in diagnosis.findings:
        named = {str(subject["address"]) for subject in finding.subjects if "address" in subject}
        about = {addresses[address] for address in named if address in addresses}
        about |= {number for subject in finding.subjects if isinstance(number := subject.get("gpu"), int)}
        if not about and named and finding.layer == "gpu" and len(nameless) == 1:
            about.update(nameless)  # a GPU that is lost no longer tells its address
        for index in about:
            found.setdefault(index, []).append(finding)
    return Health({index: sorted(of, key=lambda one: _ORDER.index(one.severity)) for index, of in found.items()})


def _rows(diagnosis: Diagnosis, group: str) -> tuple[Row, ...]:
    return listed(diagnosis.snapshot.rows(group))


def _known(row: Row, column: str) -> Known | None:
    state = row.get(column)
    return state if isinstance(state, Known) else None


def _number(row: Row, column: str, otherwise: int) -> int:
    state = _known(row, column)
    return state.value if state and isinstance(state.value, int) else otherwise

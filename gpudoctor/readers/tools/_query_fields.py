"""Fields of ``nvidia-smi --query-gpu`` by the names it takes and prints, and the columns of ``gpu`` they fill."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.model.fact import Value
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import address, mib, release, whole

_FIELDS = {
    "index": "index",
    "name": "name",
    "gpu_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "driver_version": "driver",
    "kmd_version": "driver",
    "pci.bus_id": "address",
    "gpu_bus_id": "address",
    "compute_cap": "compute_capability",
    "memory.total": "memory_mib",
    "memory.used": "memory_used_mib",
    "compute_mode": "compute_mode",
    "gpu_recovery_action": "recovery_action",
    "mig.mode.current": "mig",
    "temperature.gpu": "temperature_c",
    "utilization.gpu": "utilization",
    "pcie.link.gen.current": "link_generation",
    "pcie.link.gen.gpucurrent": "link_generation",
    "pcie.link.gen.max": "link_generation_max",
    "pcie.link.width.current": "link_width",
    "pcie.link.width.max": "link_width_max",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "remapped_rows.uncorrectable": "remapped_uncorrected",
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failed",
    "clocks_throttle_reasons.active": "throttle_reasons",
    "clocks_event_reasons.active": "throttle_reasons",
    "clocks.sm": "clock_mhz",
    "clocks.current.sm": "clock_mhz",
    "clocks.max.sm": "clock_max_mhz",
    "power.draw": "power_w",
    "power.draw.average": "power_w",
    "power.draw.instant": "power_w",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_limit_w",
    "power.default_limit": "power_limit_default_w",
}
_REASON = Pattern(r"clocks_(?:throttle|event)_reasons\.(\w+)")
_OTHER = Pattern(
    r"[a-z_]+(?:\.\w+)+|timestamp|count|pstate|serial|power_\w+|vbios_version|display_\w+|persistence_mode|hostname"
    r"|addressing_mode|kmd_version|edpp_multiplier|gpu_(?:serial|util\w*)|mem_util\w*|max_memory_usage|time|pid"
    r"|process_name|used_(?:gpu_)?memory|vgpu_\w+|accounting_\w+|gpu_operation_mode\w*|inforom_\w+|numa_\w+"
)
_OF_PROCESSES_OR_PAGES = ("pid", "process_name", "retired_pages.address", "retired_pages.cause", "max_memory_usage")
_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def field_of(name: str) -> str | None:
    """The column that the field fills, ``?`` for a field that none is for, None for what is no field.

    A single clock-event reason fills ``reason:NAME``: its cell says whether that one is in force.
    """
    plain = name.partition("[")[0].strip().lower()
    if plain in _FIELDS:
        return _FIELDS[plain]
    if (reason := _REASON.fullmatch(plain)) and reason.group(1) in _REASONS.values():
        return f"reason:{reason.group(1)}"
    return "?" if _OTHER.fullmatch(plain) else None


def not_of_gpus(names: Sequence[str]) -> bool:
    """Whether a table with these fields has a row for each process or retired page, and so counts no GPUs."""
    return any(name.partition("[")[0].strip().lower() in _OF_PROCESSES_OR_PAGES for name in names)


def cell(column: str, text: str) -> Value:
    """The cell's value as the column wants it; None where it has none (``[N/A]``, ``[Not Supported]``)."""
    text = text.strip()
    if not text or text.startswith("[") or text == "N/A":
        return None
    if column in ("name", "uuid", "compute_mode", "driver"):
        return text
    if column == "recovery_action":
        return text.lower()
    if column == "address":
        return address(text)
    if column == "compute_capability":
        return release(text)
    if column in ("memory_mib", "memory_used_mib"):
        return mib(text if text[-1].isalpha() else f"{text} MiB")
    if column in ("mig", "remap_pending", "remap_failed"):
        return text.lower() in ("enabled", "yes", "1", "true")
    if column == "throttle_reasons":
        return reasons(text)
    if column.startswith("reason:"):
        return (column.partition(":")[2],) if text.lower() == "active" else ()
    return whole(text)


def reasons(text: str) -> Value:
    """The clock-event reasons in a mask such as ``0x0000000000000004``."""
    try:
        mask = int(text, 16)
    except ValueError:
        return None
    return tuple(name for bit, name in _REASONS.items() if mask & bit)

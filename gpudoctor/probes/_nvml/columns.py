"""The columns of a GPU that NVML answers: each with its declaration, the calls that tell it, and how they are read."""

from __future__ import annotations

from gpudoctor.core.catalog import FactSpec, Kind, column
from gpudoctor.core.frozen import frozen
from gpudoctor.probes._nvml import values
from gpudoctor.probes._nvml.values import (
    Reading,
    as_bool,
    as_int,
    item,
    mib,
    nonzero_mib,
    pci_address,
    printable_text,
    throttle_reasons,
    watts,
)


@frozen
class Column:
    """One column of the group ``gpu``: its declaration, the NVML calls that give it, and how an answer is parsed.

    `calls` are alternatives, the preferred first; empty if the column is computed elsewhere.
    """

    name: str
    spec: FactSpec
    calls: tuple[str, ...]
    read: Reading


def _column(name: str, kind: Kind, about: str, calls: str = "", read: Reading = as_int, unit: str = "") -> Column:
    """The `Column` ``gpu.<name>`` of type `kind`, described by `about`.

    `calls`: alternatives separated by blanks, without the prefix ``nvmlDeviceGet``; `read` parses the answer.
    """
    full_names = tuple(f"nvmlDeviceGet{call}" for call in calls.split())
    return Column(name, column(f"gpu.{name}", kind, about, unit), full_names, read)


_MIB, _C, _MHZ, _W = "MiB", "degrees C", "MHz", "W"
_FABRIC = "GpuFabricInfoV"

COLUMNS = (
    _column("index", "int", "number by PCI address, as nvidia-smi counts"),
    _column("name", "text", "product name as the driver prints it", "Name", printable_text),
    _column("uuid", "text", "GPU-... or MIG-...", "UUID", printable_text),
    _column("address", "text", "PCI address, 0000:3b:00.0", "PciInfo", item("busId", pci_address)),
    _column(
        "compute_capability", "version", "compute capability, such as 12.0", "CudaComputeCapability", values.dotted_pair
    ),
    _column("memory_mib", "int", "total memory", "MemoryInfo", item("total", nonzero_mib), _MIB),
    _column("memory_used_mib", "int", "memory in use", "MemoryInfo", item("used", mib), _MIB),
    _column(
        "memory_reserved_mib", "int", "memory the driver keeps for itself", "MemoryInfo", item("reserved", mib), _MIB
    ),
    _column(
        "driver_model",
        "text",
        "how Windows drives it: WDDM, TCC or MCDM; absent on Linux",
        "DriverModel",
        item(0, values.named(values.DRIVER_MODELS)),
    ),
    _column(
        "driver_model_pending",
        "text",
        "the driver model after the next restart of Windows; absent on Linux",
        "DriverModel",
        item(1, values.named(values.DRIVER_MODELS)),
    ),
    _column("mig", "bool", "whether MIG mode is on", "MigMode", item(0, as_bool)),
    _column("mig_pending", "bool", "whether MIG mode is on after the next reset", "MigMode", item(1, as_bool)),
    _column("mig_instances", "int", "MIG devices that this GPU is divided into"),
    _column("virtual", "bool", "whether it is a vGPU slice", "VirtualizationMode", lambda raw: int(raw) == 2),
    _column(
        "virtualization",
        "text",
        "none, passthrough, vgpu (a slice in a guest), host vgpu or host vsga",
        "VirtualizationMode",
        values.named(values.VIRTUALIZATION),
    ),
    _column(
        "license",
        "text",
        "licence of a vGPU: licensed, unlicensed, expired, ...; absent where none is needed",
        "GridLicensableFeatures",
        values.license_state,
    ),
    _column(
        "compute_mode",
        "text",
        "Default, Exclusive_Process, Exclusive_Thread or Prohibited",
        "ComputeMode",
        values.named(values.COMPUTE_MODES),
    ),
    _column("mps", "bool", "whether a process uses it through MPS"),
    _column("processes", "int", "processes that use it, as NVML counts them"),
    _column("ecc", "bool", "whether ECC is on", "EccMode", item(0, as_bool)),
    _column("ecc_pending", "bool", "whether ECC is on after the next reset", "EccMode", item(1, as_bool)),
    _column("ecc_corrected", "int", "corrected ECC errors since the driver loaded", "TotalEccErrors(0,0)"),
    _column("ecc_uncorrected", "int", "uncorrectable ECC errors since the driver loaded", "TotalEccErrors(1,0)"),
    _column("ecc_uncorrected_in", "list", "parts of it that counted these: dram, sram, l2, register, ..."),
    _column("ecc_corrected_aggregate", "int", "corrected ECC errors ever", "TotalEccErrors(0,1)"),
    _column("ecc_uncorrected_aggregate", "int", "uncorrectable ECC errors ever", "TotalEccErrors(1,1)"),
    _column(
        "sram_threshold_exceeded",
        "bool",
        "whether uncorrectable SRAM errors have passed NVIDIA's own threshold for replacement",
        "SramEccErrorStatus",
        item("bThresholdExceeded", as_bool),
    ),
    _column("remapped_corrected", "int", "rows remapped after corrected errors", "RemappedRows", item(0)),
    _column("remapped_uncorrected", "int", "rows remapped after uncorrectable errors", "RemappedRows", item(1)),
    _column("remap_pending", "bool", "whether a row remap waits for a reset", "RemappedRows", item(2, as_bool)),
    _column("remap_failed", "bool", "whether a row remap has failed", "RemappedRows", item(3, as_bool)),
    *(
        _column(f"remap_banks_{left}", "int", f"memory banks with {rows} left", "RowRemapperHistogram", item(left))
        for left, rows in (
            ("max", "all spare rows"),
            ("high", "many spare rows"),
            ("partial", "some spare rows"),
            ("low", "few spare rows"),
            ("none", "no spare row"),
        )
    ),
    _column(
        "retired_single_bit",
        "int",
        "memory pages retired for repeated single-bit errors",
        "FieldValues(29) RetiredPages(0)",
        values.count_or_length,
    ),
    _column(
        "retired_double_bit",
        "int",
        "memory pages retired for a double-bit error",
        "FieldValues(30) RetiredPages(1)",
        values.count_or_length,
    ),
    _column(
        "retired_pending",
        "bool",
        "whether a page waits for a reboot to be retired",
        "FieldValues(31) RetiredPagesPendingStatus",
        as_bool,
    ),
    _column(
        "recovery_action",
        "text",
        "what the driver asks for: none, reset, reboot, drain p2p, drain and reset, ...",
        "FieldValues(230)",
        values.named(values.RECOVERY),
    ),
    _column("temperature_c", "int", "core temperature", "Temperature(0)", as_int, _C),
    _column("temperature_memory_c", "int", "memory temperature", "FieldValues(82)", as_int, _C),
    _column(
        "temperature_slowdown_c",
        "int",
        "core temperature from which the hardware slows down",
        "TemperatureThreshold(1)",
        as_int,
        _C,
    ),
    _column("temperature_shutdown_c", "int", "core temperature of the shutdown", "TemperatureThreshold(0)", as_int, _C),
    _column("temperature_max_c", "int", "highest core temperature to work at", "TemperatureThreshold(3)", as_int, _C),
    _column(
        "temperature_margin_c", "int", "degrees left until the hardware slows down", "MarginTemperature", as_int, _C
    ),
    _column(
        "throttle_reasons",
        "list",
        "clock-event reasons in force: hw_thermal_slowdown, sw_power_cap, ...",
        "CurrentClocksEventReasons",
        throttle_reasons,
    ),
    _column("pstate", "int", "performance state, 0 is the fastest", "PerformanceState"),
    _column("link_generation", "int", "current PCIe generation (idle GPUs drop to 1)", "CurrPcieLinkGeneration"),
    _column("link_generation_max", "int", "highest PCIe generation of GPU and slot together", "MaxPcieLinkGeneration"),
    _column("link_generation_device_max", "int", "highest PCIe generation of the GPU", "GpuMaxPcieLinkGeneration"),
    _column("link_width", "int", "current PCIe lanes", "CurrPcieLinkWidth"),
    _column("link_width_max", "int", "most PCIe lanes of GPU and slot together", "MaxPcieLinkWidth"),
    _column("link_replays", "int", "PCIe packets sent again since the driver loaded", "PcieReplayCounter"),
    _column("links", "int", "NVLinks that it has, up or down"),
    _column("links_down", "list", "numbers of its NVLinks that are down, be it by design"),
    _column("links_lost", "list", "of these, the ones that should be up: they are on its siblings"),
    _column("clock_mhz", "int", "current SM clock", "ClockInfo(1)", as_int, _MHZ),
    _column("clock_max_mhz", "int", "highest SM clock", "MaxClockInfo(1)", as_int, _MHZ),
    _column("memory_clock_mhz", "int", "current memory clock", "ClockInfo(2)", as_int, _MHZ),
    _column("memory_clock_max_mhz", "int", "highest memory clock", "MaxClockInfo(2)", as_int, _MHZ),
    _column(
        "application_clock_mhz", "int", "graphics clock set for applications", "ApplicationsClock(0)", as_int, _MHZ
    ),
    _column("power_w", "int", "power drawn", "PowerUsage", watts, _W),
    _column("power_limit_w", "int", "power limit in force", "EnforcedPowerLimit", watts, _W),
    _column(
        "power_limit_default_w", "int", "power limit as the GPU is delivered", "PowerManagementDefaultLimit", watts, _W
    ),
    _column(
        "power_limit_min_w",
        "int",
        "lowest power limit that can be set",
        "PowerManagementLimitConstraints",
        item(0, watts),
        _W,
    ),
    _column(
        "power_limit_max_w",
        "int",
        "highest power limit that can be set",
        "PowerManagementLimitConstraints",
        item(1, watts),
        _W,
    ),
    _column(
        "utilization", "int", "share of the last sample in which a kernel ran", "UtilizationRates", item("gpu"), "%"
    ),
    _column(
        "fabric_state",
        "text",
        "joining the NVLink fabric: not supported, not started, in progress, completed",
        _FABRIC,
        item("state", values.named(values.FABRIC_STATES)),
    ),
    _column("fabric_status", "int", "NVML's return code for joining the fabric; 0 is success", _FABRIC, item("status")),
    _column(
        "fabric_health",
        "list",
        "what is wrong with the fabric: degraded bandwidth, route recovery, route unhealthy, access timeout,"
        " incorrect configuration",
        _FABRIC,
        item("healthMask", values.fabric_problems),
    ),
    _column("fabric_cluster", "text", "UUID of the fabric's cluster", _FABRIC, item("clusterUuid", values.dashed_uuid)),
    _column("fabric_clique", "int", "number of the fabric's clique", _FABRIC, item("cliqueId")),
    _column("persistence", "bool", "whether the driver stays loaded between jobs", "PersistenceMode", as_bool),
    _column("brand", "text", "product line: Tesla, GeForce, Quadro RTX, ...", "Brand", values.named(values.BRANDS)),
    _column("architecture", "text", "Hopper, Ada, Blackwell, ...", "Architecture", values.named(values.ARCHITECTURES)),
    _column("serial", "text", "serial number of the board", "Serial", printable_text),
    _column("minor", "int", "number of its device file /dev/nvidiaN", "MinorNumber"),
    _column("vbios", "text", "version of its firmware (VBIOS)", "VbiosVersion", printable_text),
    _column("inforom", "text", "version of the image of its InfoROM", "InforomImageVersion", printable_text),
    _column("display", "bool", "whether it drives a display", "DisplayActive", as_bool),
    _column(
        "bar1_mib", "int", "memory that can be mapped through BAR1", "BAR1MemoryInfo", item("bar1Total", mib), _MIB
    ),
    _column("bar1_used_mib", "int", "memory mapped through BAR1", "BAR1MemoryInfo", item("bar1Used", mib), _MIB),
    _column("numa_node", "int", "NUMA node nearest to it", "MemoryAffinity(0)", values.lowest_set_bit),
    _column("cpu_affinity", "text", "CPUs nearest to it, such as 0-55,112-167", "CpuAffinity", values.cpu_ranges),
    _column("error", "text", "why this GPU does not answer, such as GPU is lost; absent where it answers"),
    _column("error_code", "int", "NVML's return code for this GPU, such as 15; absent where it answers or broke"),
)

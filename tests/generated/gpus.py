"""What NVML, libcuda and the PCI bus say of the GPUs of a sound machine."""

import uuid
from typing import Any

from tests.generated import bus, tables
from tests.generated.draft import Draft
from tests.generated.machine import Machine

NO_REPORT = (
    "ecc_corrected ecc_uncorrected ecc_corrected_aggregate ecc_uncorrected_aggregate ecc_uncorrected_in"
    " sram_threshold_exceeded remapped_corrected remapped_uncorrected remap_pending remap_failed remap_banks_max"
    " remap_banks_high remap_banks_partial remap_banks_low remap_banks_none retired_single_bit retired_double_bit"
    " retired_pending fabric_state fabric_status fabric_health fabric_cluster fabric_clique license error links"
    " links_down links_lost mig mig_pending mig_instances recovery_action serial temperature_memory_c"
    " temperature_margin_c"
)


def identity(kind: str, index: int) -> str:
    """The UUID of the machine's GPU or MIG device of that number."""
    return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_OID, f'{kind} {index}')}"


def put(draft: Draft, machine: Machine) -> None:
    """All facts about the GPUs."""
    draft.tell("NVML", {"gpu.count": machine.count, "nvml.state": "ok", "nvml.code": 0})
    draft.tell("NVML", {"nvml.library_version": machine.driver.version})
    draft.lack("NVML answered", "nvml.message")
    draft.rows("gpu", "NVML", [_gpu(machine, index) for index in range(machine.count)])
    bus.put_links(draft, machine)
    _mig(draft, machine)
    _cuda(draft, machine)
    bus.put(draft, machine)
    busy = [{"gpu": index, "kind": "compute", "pid": 4242 + index, "name": "python"} for index in range(machine.count)]
    draft.rows("gpu_process", "NVML", busy if machine.busy else [])


def _gpu(machine: Machine, index: int) -> dict[str, Any]:
    columns = {**dict.fromkeys(NO_REPORT.split()), **_person(machine, index), **_work(machine)}
    if machine.place == "vgpu":
        silent = "temperature_c clock_max_mhz power_w power_limit_w power_limit_default_w throttle_reasons"
        silent += " link_generation link_generation_max link_width link_width_max link_replays"
        columns |= {**dict.fromkeys(silent.split()), "virtual": True, "virtualization": "vgpu", "license": "licensed"}
    elif machine.datacenter:
        columns |= _memory_health(machine)
    if tables.numbers(machine.gpu["cc"]) in ((9, 0), (10, 0), (10, 3)) and machine.gpu.get("nvlink"):
        columns |= {"fabric_state": "completed", "fabric_status": 0, "fabric_health": []}
        columns |= {"fabric_clique": 0, "fabric_cluster": "00000000-0000-0000-0000-000000000000"}
        if not machine.gpu.get("nvswitch") and not machine.gpu["name"].startswith(("GB200", "GB300")):
            columns |= {"fabric_state": "not supported", "fabric_status": None, "fabric_health": None}
    if machine.mig:
        columns |= {"mig": index == 0, "mig_pending": index == 0, "mig_instances": machine.mig if index == 0 else 0}
    if tables.numbers(machine.driver.version)[0] >= 570:
        columns["recovery_action"] = "none"
    return columns


def _person(machine: Machine, index: int) -> dict[str, Any]:
    """Who it is: name, place, memory, modes."""
    memory = machine.gpu["memory_gib"] * 1024 if machine.gpu.get("memory_gib") else 16384
    virtual = "passthrough" if machine.place == "vm" else "none"
    return {
        "index": index,
        "name": machine.name,
        "uuid": identity("GPU", index),
        "address": bus.addresses(machine)[index],
        "compute_capability": machine.gpu["cc"],
        "memory_mib": memory,
        "memory_used_mib": memory * 9 // 10 if machine.busy else 4,
        "memory_reserved_mib": 400,
        "bar1_mib": 256,
        "bar1_used_mib": 2,
        "virtual": False,
        "virtualization": virtual,
        "compute_mode": "Default",
        "ecc": machine.datacenter,
        "ecc_pending": machine.datacenter,
        "persistence": True,
        "display": machine.gpu["kind"] in ("geforce", "laptop") and index == 0,
        "brand": "Tesla" if machine.datacenter else "GeForce",
        "architecture": tables.generation(machine.gpu["cc"])["arch"].split()[0],
        "minor": None if machine.place == "wsl" else index,
        "vbios": "96.00.74.00.01",
        "inforom": "G520.0200.00.05" if machine.datacenter else None,
        "numa_node": 0,
        "cpu_affinity": "0-31",
        "processes": int(machine.busy),
        "mps": False,
    }


def _work(machine: Machine) -> dict[str, Any]:
    """What it does: clocks, heat, power, link. Idle GPUs rest at a low link speed and clock."""
    generation, width = bus.link(machine)
    watts = machine.gpu.get("watts") or 100
    return {
        "temperature_c": 66 if machine.busy else 34,
        "temperature_slowdown_c": 92,
        "temperature_shutdown_c": 97,
        "temperature_max_c": 90,
        "throttle_reasons": ["sw_power_cap"] if machine.busy else ["gpu_idle"],
        "pstate": 2 if machine.busy else 8,
        "link_generation": generation if machine.busy else 1,
        "link_generation_max": generation,
        "link_generation_device_max": generation,
        "link_width": width,
        "link_width_max": width,
        "link_replays": 0,
        "clock_mhz": 1500 if machine.busy else 210,
        "clock_max_mhz": 1980,
        "memory_clock_mhz": 2619 if machine.busy else 405,
        "memory_clock_max_mhz": 2619,
        "application_clock_mhz": 1980 if machine.datacenter else None,
        "power_w": watts - 3 if machine.busy else 16,
        "power_limit_w": watts,
        "power_limit_default_w": watts,
        "power_limit_min_w": watts // 2,
        "power_limit_max_w": watts,
        "utilization": 98 if machine.busy else 0,
    }


def _memory_health(machine: Machine) -> dict[str, Any]:
    """Data-center GPUs count errors; from Ampere on they remap rows, older ones retire pages."""
    counted = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate")
    columns: dict[str, Any] = {**dict.fromkeys(counted, 0), "ecc_uncorrected_in": [], "serial": "1654223047919"}
    if tables.numbers(machine.gpu["cc"]) < (8, 0):
        return columns | {"retired_single_bit": 0, "retired_double_bit": 0, "retired_pending": False}
    banks = {f"remap_banks_{name}": 0 for name in ("high", "partial", "low", "none")}
    columns |= {**banks, "remap_banks_max": 640, "remap_pending": False, "remap_failed": False}
    columns |= {"remapped_corrected": 0, "remapped_uncorrected": 0, "mig": False, "mig_pending": False}
    return columns | {"sram_threshold_exceeded": False, "mig_instances": 0}


def _mig(draft: Draft, machine: Machine) -> None:
    if not machine.mig:
        draft.lack("no GPU here is divided into MIG devices", "mig")
        return
    profile = "3g.40gb" if machine.mig == 2 else "1g.10gb"
    rows = [{"gpu": 0, "uuid": identity("MIG", index), "profile": profile} for index in range(machine.mig)]
    draft.rows("mig", "NVML", rows)


def _cuda(draft: Draft, machine: Machine) -> None:
    """What libcuda answers. A GPU in MIG mode is one device: its first instance."""
    library = "/usr/lib/wsl/lib/libcuda.so.1" if machine.place == "wsl" else "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    source = f"libcuda ({library})"
    seen = 1 if machine.mig else machine.count
    kind = "wsl" if machine.place == "wsl" else "driver"
    draft.tell(source, {"cuda_driver.state": "ok", "cuda_driver.init_code": 0, "cuda_driver.count": seen})
    draft.tell(source, {"cuda_driver.version": machine.driver.cuda, "cuda_driver.library": library})
    draft.tell(library, {"cuda_driver.kind": kind})
    draft.lack("cuInit succeeds", "cuda_driver.init_error cuda_driver.init_name cuda_driver.message")
    draft.lack("CUDA_VISIBLE_DEVICES is not set", "cuda_driver.masked")
    rows: list[dict[str, Any]] = [
        {"index": index, "name": machine.name, "error": None, "ecc": machine.datacenter} for index in range(seen)
    ]
    for index, row in enumerate(rows):
        row |= {"compute_capability": machine.gpu["cc"], "compute_mode": "Default", "unified_addressing": True}
        row |= {"uuid": identity("MIG" if machine.mig else "GPU", index), "address": bus.addresses(machine)[index]}
        row |= {"memory_mib": 16000, "clock_mhz": 1980, "peers": [], "managed_memory": True}
    draft.rows("cuda_device", source, rows)

"""What NVML, libcuda and the PCI bus say of the GPUs of a sound machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from tests.generated import tables
from tests.generated.draft import Draft
from tests.generated.machine import Machine

SPEED = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}
NO_BUS = "WSL 2 hands the GPU over without showing it on the PCI bus"
NO_REPORT = (
    "ecc_corrected ecc_uncorrected ecc_corrected_aggregate ecc_uncorrected_aggregate ecc_uncorrected_in"
    " sram_threshold_exceeded remapped_corrected remapped_uncorrected remap_pending remap_failed remap_banks_max"
    " remap_banks_high remap_banks_partial remap_banks_low remap_banks_none retired_single_bit retired_double_bit"
    " retired_pending fabric_state fabric_status fabric_health fabric_cluster fabric_clique license error links"
    " links_down links_lost mig mig_pending mig_instances recovery_action serial temperature_memory_c temperature_margin_c"
).split()


def addresses(machine: Machine) -> list[str]:
    return [f"0000:{0x18 + 0x11 * index:02x}:00.0" for index in range(machine.count)]


def identity(kind: str, index: int) -> str:
    """The UUID of the machine's GPU or MIG device of that number."""
    return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_OID, f'{kind} {index}')}"


def link(machine: Machine) -> tuple[int, int]:
    """Generation and lanes of the GPU's PCIe link."""
    words = str(machine.gpu.get("pcie") or "4 x16").split()
    return int(words[0]), int(words[1].removeprefix("x"))


def put(draft: Draft, machine: Machine) -> None:
    """All facts about the GPUs."""
    draft.tell("NVML", {"gpu.count": machine.count, "nvml.state": "ok", "nvml.code": 0})
    draft.tell("NVML", {"nvml.library_version": machine.driver.version})
    draft.lack("NVML answered", "nvml.message")
    draft.rows("gpu", "NVML", [_gpu(machine, index) for index in range(machine.count)])
    _links(draft, machine)
    _mig(draft, machine)
    _cuda(draft, machine)
    _bus(draft, machine)
    busy = [{"gpu": index, "kind": "compute", "pid": 4242 + index, "name": "python"} for index in range(machine.count)]
    draft.rows("gpu_process", "NVML", busy if machine.busy else [])


def _gpu(machine: Machine, index: int) -> dict[str, Any]:
    columns = {**dict.fromkeys(NO_REPORT), **_person(machine, index), **_work(machine)}
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
        "address": addresses(machine)[index],
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
    generation, width = link(machine)
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
    counted = "ecc_corrected ecc_uncorrected ecc_corrected_aggregate ecc_uncorrected_aggregate".split()
    columns: dict[str, Any] = {**dict.fromkeys(counted, 0), "ecc_uncorrected_in": [], "serial": "1654223047919"}
    if tables.numbers(machine.gpu["cc"]) < (8, 0):
        return columns | {"retired_single_bit": 0, "retired_double_bit": 0, "retired_pending": False}
    banks = {f"remap_banks_{name}": 0 for name in ("high", "partial", "low", "none")}
    columns |= {**banks, "remap_banks_max": 640, "remap_pending": False, "remap_failed": False}
    columns |= {"remapped_corrected": 0, "remapped_uncorrected": 0, "mig": False, "mig_pending": False}
    return columns | {"sram_threshold_exceeded": False, "mig_instances": 0}


def _linked(machine: Machine) -> int:
    """NVLinks of each GPU: boards of SXM modules have them up, PCIe cards only where a bridge is plugged in."""
    if machine.count == 1 or "PCI" in machine.gpu["name"] or machine.place in ("vgpu", "wsl"):
        return 0
    return (
        {"7.0": 6, "8.0": 12, "9.0": 18, "10.0": 18, "10.3": 18}.get(machine.gpu["cc"], 0)
        if ("SXM" in machine.gpu["name"] or machine.gpu.get("nvswitch"))
        else 0
    )


def _links(draft: Draft, machine: Machine) -> None:
    links = _linked(machine)
    if not links:
        draft.lack("no GPU here has NVLink", "nvlink")
    else:
        draft.rows("nvlink", "NVML", [*_link_rows(machine, links)])
        for index, gpu in enumerate(draft.each("gpu")):
            shut = machine.mig > 0 and index == 0
            down = list(range(links)) if shut else []
            told = Draft()
            told.tell("the states of its links", {"x.links": links, "x.links_down": down})
            told.tell("the states of its links", {"x.links_lost": None if shut else []})
            gpu.update({name[2:]: state for name, state in told.facts.items()})
    if machine.count == 1:
        draft.lack("one GPU", "p2p")
        draft.tell("one GPU", {"topology.pairs": []})
        return
    word, path = ("ok", f"NV{links}") if links else ("chipset not supported", "NODE")
    pairs = [(a, b) for a in range(machine.count) for b in range(machine.count) if a != b]
    columns = {"read": word, "write": word, "nvlink": "ok" if links else "not supported", "path": path}
    draft.rows("p2p", "NVML", [{"gpu": a, "peer": b, "atomics": columns["nvlink"], **columns} for a, b in pairs])
    draft.tell("NVML", {"topology.pairs": [f"GPU{a}-GPU{b} {path}" for a, b in pairs if a < b]})


def _link_rows(machine: Machine, links: int) -> Iterator[dict[str, Any]]:
    for gpu in range(machine.count):
        for number in range(links):
            yield {
                "gpu": gpu,
                "link": number,
                "active": not (machine.mig and gpu == 0),
                "version": "4.0",
                "remote": "switch" if machine.gpu.get("nvswitch") else "gpu",
                "crc_errors": 0,
                "replay_errors": 0,
                "recovery_errors": 0,
            }


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
    rows = [{"index": index, "name": machine.name, "error": None, "ecc": machine.datacenter} for index in range(seen)]
    for index, row in enumerate(rows):
        row |= {"compute_capability": machine.gpu["cc"], "compute_mode": "Default", "unified_addressing": True}
        row |= {"uuid": identity("MIG" if machine.mig else "GPU", index), "address": addresses(machine)[index]}
        row |= {"memory_mib": 16000, "clock_mhz": 1980, "peers": [], "managed_memory": True}
    draft.rows("cuda_device", source, rows)


def _bus(draft: Draft, machine: Machine) -> None:
    seen = "pci.devices pci.gpu_vendors pci.nvidia_count pci.nvidia_drivers topology.acs_bridges topology.nvswitches"
    if machine.place == "wsl":
        draft.blind(NO_BUS, f"pci gpu_pair gpu_path {seen} topology.switches")
        return
    source = "/sys/bus/pci/devices"
    draft.tell(source, {"pci.devices": 57, "pci.gpu_vendors": ["nvidia"], "pci.nvidia_count": machine.count})
    draft.tell(source, {"pci.nvidia_drivers": ["nvidia"], "topology.acs_bridges": [], "topology.switches": 0})
    draft.tell(source, {"topology.nvswitches": 4 if machine.nvswitch else 0})
    draft.rows("pci", source, [_device(machine, address) for address in addresses(machine)])
    draft.rows("gpu_pair", source, [])
    paths = [{"address": address, "bridges": ["0000:00:01.0"], "acs": False} for address in addresses(machine)]
    draft.rows("gpu_path", source, paths)


def _device(machine: Machine, address: str) -> dict[str, Any]:
    generation, width = link(machine)
    ids = str(machine.gpu.get("pci") or "2684").split()
    return {
        "address": address,
        "vendor": "nvidia",
        "device_id": f"10de:{ids[0]}",
        "name": machine.name,
        "driver": "nvidia",
        "alive": True,
        "link_speed": SPEED[generation if machine.busy else 1],
        "link_speed_max": SPEED[generation],
        "link_width": width,
        "link_width_max": width,
        "slot_speed_max": SPEED[generation],
        "slot_width_max": 16,
        "bars_unassigned": [],
        "bar1_mib": 256,
        "numa_node": 0,
        "iommu": None,
        "power_state": "D0",
    }

"""The PCI bus of a sound machine, and the NVLinks between its GPUs."""

from collections.abc import Iterator
from typing import Any

from tests.generated.draft import Draft, row
from tests.generated.machine import Machine

SPEED = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}
NO_BUS = "WSL 2 hands the GPU over without showing it on the PCI bus"


def addresses(machine: Machine) -> list[str]:
    return [f"0000:{0x18 + 0x11 * index:02x}:00.0" for index in range(machine.count)]


def link(machine: Machine) -> tuple[int, int]:
    """Generation and lanes of the GPU's PCIe link."""
    words = str(machine.gpu.get("pcie") or "4 x16").split()
    return int(words[0]), int(words[1].removeprefix("x"))


def put(draft: Draft, machine: Machine) -> None:
    seen = "pci.devices pci.gpu_vendors pci.nvidia_count pci.nvidia_drivers topology.acs_bridges topology.nvswitches"
    if machine.place == "wsl":
        draft.blind(NO_BUS, f"pci gpu_pair gpu_path {seen} topology.switches")
        return
    source = "/sys/bus/pci/devices"
    draft.tell(source, {"pci.devices": 57, "pci.gpu_vendors": ["nvidia"], "pci.nvidia_count": machine.count})
    draft.tell(source, {"pci.nvidia_drivers": ["nvidia"], "topology.acs_bridges": [], "topology.switches": 0})
    draft.tell(source, {"topology.nvswitches": 4 if machine.nvswitch else 0})
    draft.rows("pci", source, [device(machine, address) for address in addresses(machine)])
    draft.rows("gpu_pair", source, [])
    paths = [{"address": address, "bridges": ["0000:00:01.0"], "acs": False} for address in addresses(machine)]
    draft.rows("gpu_path", source, paths)


def device(machine: Machine, address: str) -> dict[str, Any]:
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
        **_uplink(machine),
    }


def _linked(machine: Machine) -> int:
    """NVLinks of each GPU: boards of SXM modules have them up, PCIe cards only where a bridge is plugged in."""
    if machine.count == 1 or "PCI" in machine.gpu["name"] or machine.place in ("vgpu", "wsl"):
        return 0
    return (
        {"7.0": 6, "8.0": 12, "9.0": 18, "10.0": 18, "10.3": 18}.get(machine.gpu["cc"], 0)
        if ("SXM" in machine.gpu["name"] or machine.gpu.get("nvswitch"))
        else 0
    )


def _uplink(machine: Machine) -> dict[str, Any]:
    """Boards of eight hang behind PCIe switches, two GPUs to a switch."""
    columns = dict.fromkeys(("uplink", "uplink_width", "uplink_width_max", "uplink_speed", "uplink_speed_max"))
    if not machine.nvswitch:
        return columns
    generation, _ = link(machine)
    lanes, speed = {"uplink_width": 16, "uplink_width_max": 16}, SPEED[generation]
    return {"uplink": "0000:14:01.0", **lanes, "uplink_speed": speed, "uplink_speed_max": speed}


def put_links(draft: Draft, machine: Machine) -> None:
    links = _linked(machine)
    if not links:
        draft.lack("no GPU here has NVLink", "nvlink")
    else:
        draft.rows("nvlink", "NVML", [*_link_rows(machine, links)])
        for index, gpu in enumerate(draft.each("gpu")):
            shut = machine.mig > 0 and index == 0
            down = list(range(links)) if shut else []
            lost: list[int] | None = None if shut else []
            gpu.update(row("the states of its links", {"links": links, "links_down": down, "links_lost": lost}))
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

"""Writes the files of a machine from a few words about it: the ``host`` section of a scenario.

``render(words, nvml)`` takes the scenario's ``machine``, an object of the keys of `DEFAULTS`; how many GPUs there are,
at which addresses, with which links, is read from the answers of NVML, so that bus and driver agree unless a scenario
changes one of them.
"""

from collections.abc import Mapping
from typing import Any

from tests.sim import bus, container, driver, host, software
from tests.sim.files import Files

DEFAULTS: dict[str, Any] = {
    "system": "ubuntu-24.04",
    "kernel": "6.8.0-79-generic",
    "arch": "x86_64",
    "vendor": "Supermicro",
    "product": "SYS-821GE-TNHR",
    "virtual": False,  # a hypervisor below: DMI names it in vendor and product
    "cpu": "GenuineIntel",
    "cpus": 112,
    "numa": 2,
    "memory_gib": 1024,
    "secure_boot": False,
    "iommu": None,  # identity, DMA, DMA-FQ: how the IOMMU treats the GPUs; null: it is off
    "driver": "580.95.05",  # null: none installed
    "upgraded": None,  # the driver that was installed over the loaded one and waits for a reboot
    "built_for": None,  # the kernel that has the driver's module; null: the running one
    "open": True,  # the kernel modules' kind
    "loaded": True,
    "bound": None,  # another kernel driver that holds the GPUs: nouveau, vfio-pci
    "gsp": True,  # the GPUs run the GSP firmware
    "persistenced": False,  # the daemon runs
    "peermem": False,  # the kernel module for GPUDirect RDMA is loaded
    "container": None,  # docker, podman, kubernetes
    "wsl": False,
    "bridges": "own",  # each GPU below a host bridge of its own; "ports": of one host bridge; "switch": PCIe switches
    "per_switch": 1,  # GPUs behind each
    "unseen": [],  # addresses of more GPUs of the same kind, which the driver does not show here
    "integrated": None,  # "8086:a7a0": a GPU of the processor beside the others
    "nvswitches": 0,  # how many, or their addresses
    "nvswitch_id": "22a3",
    "switch_ports": 0,  # InfiniBand devices through which the NVSwitches of NVLink 5 are managed
    "hcas": 0,  # RDMA adapters, one port each: how many, or their addresses
    "hcas_down": 0,  # the last of them without a cable
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    "fabric_manager": None,  # its version, where it is installed and runs
    "imex": None,  # likewise
    "processes": {},  # names by process id
    "load": "0.52 0.58 0.59",
    "environ": {},
    "torch": {"version": "2.9.0+cu128", "cuda": "12.8"},  # null: not installed
    "kmsg": [],  # lines the kernel printed beside those of a driver that starts
    "events": [],  # lines it printed in the last hour
    "shm_mib": None,  # by default half the memory
    "user": 0,
    "display_class": False,  # GPUs that are VGA controllers (GeForce), not 3D controllers
}


def render(words: Mapping[str, Any], nvml: Mapping[str, Any] | None) -> dict[str, Any]:
    """The host section; raises `KeyError` for a word that is none."""
    unknown = set(words) - set(DEFAULTS) - {"gpus"}
    if unknown:
        raise KeyError(f"machine: {sorted(unknown)}")
    machine = {**DEFAULTS, **words}
    files = Files()
    gpus = machine.get("gpus") or gpus_of(nvml)
    machine["kmsg"] = [*driver.log(machine, gpus), *machine["kmsg"]]
    host.system(files, machine)
    host.processes(files, machine)
    host.fitness(files, machine)
    host.network(files)
    if not machine["wsl"]:
        bus.plug(files, machine, gpus)
    if machine["driver"]:
        driver.install(files, machine, gpus)
    if machine["container"]:
        container.enter(files, machine, gpus)
    if machine["torch"]:
        software.torch(files, machine["torch"], gpus)
    memory = machine["memory_gib"] << 30
    shm = (machine["shm_mib"] << 20) if machine["shm_mib"] is not None else memory // 2
    return {
        **files.section(),
        "space": {"/dev/shm": [shm, shm], "/": [1 << 40, 1 << 39], "/tmp": [1 << 40, 1 << 39]},
        "environ": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **({"VIRTUAL_ENV": software.PREFIX} if machine["torch"] else {}),
            **machine["environ"],
        },
        "python": software.PYTHON if machine["torch"] else "/usr/bin/python3",
        "commands": driver.commands(machine),
        "name": "node",
    }


def gpus_of(nvml: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What the bus shows of each GPU that NVML lists: address, PCI ids, link, memory window, node, name."""
    if not nvml:
        return []
    found: list[dict[str, Any]] = []
    for own in nvml.get("gpus", ()):
        said = {**nvml.get("every", {}), **own}
        pci = said["nvmlDeviceGetPciInfo"]
        found.append(
            {
                "address": f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0",
                "id": pci["pciDeviceId"],
                "subsystem": pci.get("pciSubSystemId", 0),
                "width": said.get("nvmlDeviceGetCurrPcieLinkWidth", 16),
                "width_max": said.get("nvmlDeviceGetMaxPcieLinkWidth", 16),
                "speed": said.get("nvmlDeviceGetCurrPcieLinkGeneration", 4),
                "speed_max": said.get("nvmlDeviceGetMaxPcieLinkGeneration", 4),
                "bar1": (said.get("nvmlDeviceGetBAR1MemoryInfo") or {}).get("bar1Total", 256 << 20),
                "numa": _node(said),
                "name": said.get("nvmlDeviceGetName", "NVIDIA"),
                "uuid": said.get("nvmlDeviceGetUUID", "GPU-0"),
                "vbios": said.get("nvmlDeviceGetVbiosVersion", "??.??.??.??.??"),
                "minor": said.get("nvmlDeviceGetMinorNumber", len(found)),
                "capability": ".".join(map(str, said.get("nvmlDeviceGetCudaComputeCapability", [0, 0]))),
            }
        )
    return found


def _node(said: Mapping[str, Any]) -> int:
    """The NUMA node whose memory is nearest: the lowest bit of a mask."""
    mask = next((said[key] for key in said if key.startswith("nvmlDeviceGetMemoryAffinity")), None)
    if not isinstance(mask, list) or not mask or not mask[0]:
        return 0
    return (int(mask[0]) & -int(mask[0])).bit_length() - 1

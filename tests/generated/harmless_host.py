"""Harmless things about GPUs and hosts."""

from __future__ import annotations

from random import Random

from gpudoctor.core.fact import Absent, Known, Unread
from tests.generated import tables
from tests.generated.bus import addresses
from tests.generated.circumstances import fewer, harmless, own_host, several
from tests.generated.consequences import xid
from tests.generated.draft import Draft, row
from tests.generated.host import LOG
from tests.generated.machine import Machine


@harmless(lambda machine: several(machine) and machine.place == "bare")
def a_scheduler_gave_some_of_the_gpus(draft: Draft, machine: Machine, random: Random) -> None:
    """A device cgroup: the others' files cannot be opened, NVML hides them or may not ask them, the bus shows them."""
    kept = list(range(random.randrange(1, machine.count)))
    if random.random() < 0.5:
        del draft.each("gpu")[len(kept) :]
        draft.tell("NVML", {"gpu.count": len(kept)})
    shut = "nvmlDeviceGetHandleByIndex: Insufficient Permissions (code 4)"
    for gpu in draft.each("gpu")[len(kept) :]:
        names = [name for name in gpu if name not in ("index", "name", "address", "compute_capability")]
        gpu.update({**dict.fromkeys(names, Unread(f"NVML: {shut}")), "error": Known(shut, "NVML")})
    draft.tell("NVML", {"topology.pairs": []})
    denied = [f"/dev/nvidia{index}" for index in range(len(kept), machine.count)]
    draft.tell("/dev", {"driver.nodes_denied": denied})
    for node in draft.each("node"):
        node["usable"] = Known(node["path"] not in [Known(path, "/dev") for path in denied], "/dev")
    draft.tell("environment", {"env.SLURM_JOB_ID": "4242", "env.CUDA_VISIBLE_DEVICES": ",".join(map(str, kept))})
    draft.blind("the link states of one GPU do not tell", "nvlink p2p")
    fewer(draft, kept)


@harmless(lambda machine: several(machine) and machine.place == "bare")
def one_gpu_given_to_a_virtual_machine(draft: Draft, machine: Machine, random: Random) -> None:
    draft.each("gpu").pop()
    draft.tell("NVML", {"gpu.count": machine.count - 1, "driver.bound_count": machine.count - 1})
    draft.tell("/sys/bus/pci/devices", {"pci.nvidia_drivers": ["nvidia", "vfio-pci"]})
    draft.each("pci")[-1]["driver"] = Known("vfio-pci", "sysfs")
    fewer(draft, list(range(machine.count - 1)))


@harmless(own_host)
def secure_boot_with_a_signed_module(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("efivars", {"host.secure_boot": True})
    draft.tell("/sys", {"host.module_signatures": True, "host.lockdown": "integrity"})


@harmless(lambda machine: machine.datacenter and machine.place != "vgpu")
def memory_that_was_mended(draft: Draft, machine: Machine, random: Random) -> None:
    """Corrected errors, rows remapped or pages retired long ago, errors counted over the GPU's life."""
    gpu = random.choice(draft.each("gpu"))
    told = {"ecc_corrected": random.randrange(1, 900), "ecc_corrected_aggregate": 1200}
    told |= {"ecc_uncorrected_aggregate": random.randrange(0, 5)}
    told |= {"retired_double_bit": 2, "retired_single_bit": 3} if machine.old_hardware else {"remapped_uncorrected": 2}
    gpu.update(row("NVML", told))


@harmless(own_host)
def xids_of_a_program(draft: Draft, machine: Machine, random: Random) -> None:
    words = {
        13: "pid=2211, name=python, Graphics Exception: ESR 0x404600=0x80000002",
        31: "pid=2211, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_d5",
        43: "pid=2211, name=python, Ch 00000008",
        45: "pid=2211, name=python, Ch 00000008",
    }
    code = random.choice(tuple(words))
    xid(draft, code, random.choice(addresses(machine)), words[code])


@harmless(lambda machine: machine.place == "bare")
def a_narrow_slot(draft: Draft, machine: Machine, random: Random) -> None:
    width = random.choice((1, 4, 8))
    for gpu, device in zip(draft.each("gpu"), draft.each("pci"), strict=True):
        gpu.update(row("NVML", {"link_width": width, "link_width_max": width}))
        device.update(row("sysfs", {"link_width": width, "slot_width_max": width}))


@harmless(lambda machine: machine.place == "bare")
def corrected_errors_of_the_link(draft: Draft, machine: Machine, random: Random) -> None:
    address = random.choice(addresses(machine))
    told = {"address": address, "driver": "nvidia", "gpu": address, "severity": "corrected", "count": 12}
    draft.rows("aer", "/dev/kmsg", [{**told, "kind": "Physical Layer", "age_s": 80000, "last_age_s": 900}])


@harmless(lambda machine: machine.place == "bare")
def a_gpu_of_the_processor(draft: Draft, machine: Machine, random: Random) -> None:
    vendor, driver = random.choice((("intel", "i915"), ("amd", "amdgpu"), ("other", "ast")))
    draft.tell("/sys/bus/pci/devices", {"pci.gpu_vendors": ["nvidia", vendor]})
    told = {"address": "0000:00:02.0", "vendor": vendor, "driver": driver, "alive": True, "bars_unassigned": []}
    draft.groups["pci"] = [*draft.each("pci"), row("sysfs", told)]


@harmless()
def exclusive_mode(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu["compute_mode"] = Known("Exclusive_Process", "NVML")


@harmless(lambda machine: own_host(machine) and not machine.datacenter)
def woke_from_suspend(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/sys/power/suspend_stats/success", {"driver.recent_suspend": True})


@harmless(own_host)
def rough_edges_of_the_host(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("modprobe.d", {"driver.nouveau_blacklisted": False, "driver.headers": False, "driver.dkms": None})
    draft.tell("/run", {"driver.persistenced": False, "container.toolkit": False, "container.runtimes": []})
    draft.tell("/proc/self/limits", {"limits.memlock_kib": 8192, "limits.open_files": 1024})
    draft.tell("/proc/self/status", {"rdma.may_lock": False})
    for gpu in draft.each("gpu"):
        gpu["persistence"] = Known(False, "NVML")


@harmless(own_host)
def log_out_of_reach(draft: Draft, machine: Machine, random: Random) -> None:
    draft.blind("no /dev/kmsg; root may read the kernel's log: sudo dmesg", LOG)


@harmless(lambda machine: machine.place == "bare")
def adapters_that_are_not_cabled(draft: Draft, machine: Machine, random: Random) -> None:
    up = {"port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "InfiniBand", "board": "MT_1"}
    down = {**up, "state": "DOWN", "physical_state": "Polling", "link_downed": 0}
    roce = {**up, "link_layer": "Ethernet", "state": "DOWN", "physical_state": "Disabled", "link_downed": 0}
    rows = [{**up, "device": "mlx5_0", "link_downed": 0}, {**random.choice((down, roce)), "device": "mlx5_1"}]
    draft.rows("rdma", "/sys/class/infiniband", rows)


@harmless(lambda machine: machine.place == "bare" and machine.gpu["kind"] in ("geforce", "workstation"))
def another_model_beside(draft: Draft, machine: Machine, random: Random) -> None:
    """The first GPU is of a generation that every build knows, beside others."""
    gpus = draft.each("gpu")
    if machine.count < 2 or tables.numbers(machine.gpu["cc"]) < (7, 5):
        return
    gpus[0].update(
        row("NVML", {"name": machine.name + " SUPER", "memory_mib": 8192, "link_width": 8, "link_width_max": 8})
    )


@harmless(lambda machine: machine.gpu["kind"] == "laptop" and machine.place == "bare")
def a_laptop_on_battery(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu.update(row("NVML", {"throttle_reasons": ["sw_power_cap"], "utilization": 12, "clock_mhz": 210}))
        gpu["power_limit_w"] = Absent("this GPU does not report it")

"""Changes of the GPUs themselves: memory, links, heat, modes, and what the kernel logs of them."""

from random import Random
from typing import Any

from gpudoctor.core.fact import Absent, Known
from tests.generated import tables
from tests.generated.bus import addresses
from tests.generated.changes import anywhere, linux, live, planted
from tests.generated.consequences import cuda_fails, kernel_says, kernels_fail, nvml_fails, says, torch_sees_none, xid
from tests.generated.draft import Draft, row
from tests.generated.machine import Machine


def ampere(machine: Machine) -> bool:
    """GPUs that remap rows of their memory."""
    own = machine.datacenter and machine.place in ("bare", "vm", "docker", "kubernetes")
    return own and tables.numbers(machine.gpu["cc"]) >= (8, 0)


def logged(machine: Machine) -> bool:
    """Machines whose GPUs and kernel log are theirs."""
    return linux(machine) and not machine.mig


def one(draft: Draft, random: Random, columns: dict[str, Any]) -> int:
    """Changes those columns of one GPU and says which it is."""
    gpus = draft.each("gpu")
    index = random.randrange(len(gpus))
    gpus[index].update(row("NVML", columns))
    return index


def work(draft: Draft, random: Random, columns: dict[str, Any]) -> None:
    """One GPU under load, its link at full speed as links under load are, with those columns."""
    index = one(draft, random, {**columns, "utilization": 97})
    draft.each("gpu")[index]["link_generation"] = draft.each("gpu")[index]["link_generation_max"]
    draft.each("pci")[index]["link_speed"] = draft.each("pci")[index]["link_speed_max"]


@planted("gpu.ecc", lambda machine: machine.datacenter and machine.place in ("bare", "vm", "docker"))
def uncorrectable_errors(draft: Draft, machine: Machine, random: Random) -> None:
    count = random.randrange(1, 40)
    columns = {"ecc_uncorrected": count, "ecc_uncorrected_aggregate": count, "ecc_uncorrected_in": ["dram"]}
    one(draft, random, columns)


@planted("gpu.ecc", ampere)
def row_remap_pending(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"remap_pending": True, "remapped_uncorrected": 1})


@planted("gpu.ecc", ampere)
def row_remap_failed(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"remap_failed": True, "remap_banks_none": 1})


@planted("gpu.ecc", lambda machine: machine.datacenter and machine.place == "bare" and machine.old_hardware)
def page_retirement_pending(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"retired_double_bit": 1, "retired_pending": True})


@planted("gpu.ecc", lambda machine: logged(machine) and machine.datacenter)
def xid_of_the_memory(draft: Draft, machine: Machine, random: Random) -> None:
    code = random.choice((48, 94, 95))
    index = one(draft, random, {"ecc_uncorrected": 1, "ecc_uncorrected_aggregate": 1})
    xid(draft, code, addresses(machine)[index], "pid='<unknown>', name=<unknown>, DBE at 0x4a6")


@planted("gpu.fell-off-bus", logged)
def gpu_off_the_bus(draft: Draft, machine: Machine, random: Random) -> bool:
    index = random.randrange(machine.count)
    address = addresses(machine)[index]
    draft.each("pci")[index].update({"alive": Known(False, "config"), "link_width": Known(63, "sysfs")})
    xid(draft, 79, address, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    kernel_says(draft, f"NVRM: GPU {address}: GPU has fallen off the bus.")
    draft.tell("/dev/kmsg", {"kernel_log.fallen_off": [address]})
    if machine.count == 1:
        nvml_fails(draft, "unknown error", 999, "Unknown Error")
        draft.tell("nvidia-smi", {"gpu.count": 0})
        cuda_fails(draft, 999)
        return True
    lost = draft.each("gpu")[index]
    kept = {name: lost[name] for name in ("index", "name", "address", "compute_capability")}
    draft.each("gpu")[index] = {**kept, "error": Known("GPU is lost", "NVML")}
    cuda_fails(draft, 999)
    return True


@planted("gpu.xid", logged)
def xid_of_the_gpu(draft: Draft, machine: Machine, random: Random) -> None:
    words = {
        119: "pid=3104, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76",
        120: "pid=3104, GSP task exception",
        61: "pid=3104, Internal micro-controller breakpoint/warning",
        62: "pid=3104, 2c5a(2d90) 00000000 00000000",
    }
    code = random.choice(tuple(words))
    xid(draft, code, random.choice(addresses(machine)), words[code])


@planted("gpu.nvlink-down", lambda machine: logged(machine) and bool(machine.gpu.get("nvswitch")) and machine.count > 1)
def xid_of_nvlink(draft: Draft, machine: Machine, random: Random) -> None:
    xid(draft, 74, random.choice(addresses(machine)), "pid='<unknown>', NVLink: fatal error detected on link 5")


@planted("gpu.nvlink-down", lambda machine: logged(machine) and bool(machine.gpu.get("nvswitch")) and machine.count > 1)
def links_of_one_gpu_down(draft: Draft, machine: Machine, random: Random) -> None:
    down = sorted(random.sample(range(6), random.randrange(1, 4)))
    index = one(draft, random, {"links_down": down, "links_lost": down})
    for link in draft.each("nvlink"):
        if link["gpu"] == Known(index, "NVML") and link["link"] in [Known(number, "NVML") for number in down]:
            link["active"] = Known(False, "NVML")


@planted(
    "gpu.pcie-degraded", lambda machine: machine.place == "bare" and machine.gpu["kind"] not in ("laptop", "embedded")
)
def fewer_lanes_than_both_sides_have(draft: Draft, machine: Machine, random: Random) -> None:
    width = random.choice((1, 2, 4))
    index = one(draft, random, {"link_width": width})
    draft.each("pci")[index]["link_width"] = Known(width, "sysfs")


@planted(
    "gpu.pcie-degraded", lambda machine: machine.place == "bare" and machine.busy and machine.gpu["kind"] != "laptop"
)
def slower_link_under_load(draft: Draft, machine: Machine, random: Random) -> bool:
    index = one(draft, random, {"link_generation": 1})
    draft.each("pci")[index]["link_speed"] = Known(2.5, "sysfs")
    return bool(machine.gpu["kind"] != "embedded")


@planted("gpu.pcie-switch", lambda machine: machine.nvswitch and machine.place == "bare")
def switch_with_fewer_lanes(draft: Draft, machine: Machine, random: Random) -> None:
    for device in random.sample(draft.each("pci"), 2):
        device["uplink_width"] = Known(8, "sysfs")


@planted("gpu.mig-pending", ampere)
def mig_waits_for_a_reset(draft: Draft, machine: Machine, random: Random) -> bool:
    one(draft, random, {"mig": False, "mig_pending": True})
    return not machine.mig and str(machine.gpu["name"]).startswith(("A100", "H100", "H200", "A30"))


@planted("gpu.pcie-errors", lambda machine: machine.place == "bare")
def errors_on_the_pcie_link(draft: Draft, machine: Machine, random: Random) -> None:
    address = random.choice(addresses(machine))
    told = {"address": address, "driver": "nvidia", "gpu": address, "severity": "non-fatal", "count": 3}
    told |= {"kind": "Transaction Layer", "age_s": 5000, "last_age_s": 60, "line": "PCIe Bus Error"}
    draft.rows("aer", "/dev/kmsg", [told])


@planted("gpu.throttled", lambda machine: machine.place in ("bare", "docker", "vm"))
def clocks_held_down(draft: Draft, machine: Machine, random: Random) -> None:
    reason = random.choice(("hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "hw_slowdown"))
    work(draft, random, {"throttle_reasons": [reason], "clock_mhz": 405, "temperature_c": 91})


@planted("gpu.throttled", lambda machine: machine.place == "bare" and machine.datacenter)
def power_cap_far_below_the_default(draft: Draft, machine: Machine, random: Random) -> None:
    cap = (machine.gpu.get("watts") or 100) // 2
    work(draft, random, {"throttle_reasons": ["sw_power_cap"], "power_limit_w": cap, "clock_mhz": 1100})


@planted("gpu.compute-mode", anywhere)
def compute_mode_prohibited(draft: Draft, machine: Machine, random: Random) -> bool:
    if machine.mig or machine.place == "vgpu":
        return False
    for gpu in draft.each("gpu"):
        gpu["compute_mode"] = Known("Prohibited", "NVML")
    cuda_fails(draft, 100)
    return True


@planted("gpu.compute-mode", lambda machine: live(machine) and not machine.mig)
def compute_mode_exclusive_and_taken(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu.update({"compute_mode": Known("Exclusive_Process", "NVML"), "processes": Known(1, "NVML")})
    kernels_fail(draft, "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")


@planted("gpu.mig", lambda machine: machine.gpu["name"].startswith(("A100", "H100", "H200", "A30")) and not machine.mig)
def mig_without_an_instance(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu.update(row("NVML", {"mig": True, "mig_pending": True, "mig_instances": 0}))
        gpu["links_lost"] = Absent("MIG mode switches its NVLinks off")
    cuda_fails(draft, 100)


@planted("gpu.reset-required", lambda machine: machine.place == "bare" and not machine.mig)
def reset_asked_for(draft: Draft, machine: Machine, random: Random) -> bool:
    if tables.numbers(machine.driver.version)[0] < 570:
        return False
    one(draft, random, {"recovery_action": random.choice(("reset", "reboot", "drain and reset"))})
    return True


@planted("gpu.memory-held", lambda machine: live(machine) and not machine.mig and machine.place != "vgpu")
def memory_held_by_another(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        memory = gpu["memory_mib"]
        assert isinstance(memory, Known)
        gpu["memory_used_mib"] = Known(int(str(memory.value)) - 20, "NVML")
    kernels_fail(draft, "torch.OutOfMemoryError: CUDA error: out of memory")


@planted("gpu.wrong-results", live)
def wrong_arithmetic(draft: Draft, machine: Machine, random: Random) -> None:
    device = random.choice(draft.each("live_gpu"))
    device.update(row("torch", {"kernel": "wrong", "error": "262144 of 1048576 sums differ from the reference"}))


@planted("gpu.fell-off-bus", lambda machine: machine.place in ("docker", "podman") and machine.count == 1)
def gpu_lost_seen_from_a_container(draft: Draft, machine: Machine, random: Random) -> None:
    nvml_fails(draft, "gpu is lost", 15, "GPU is lost")
    says(draft, "nvidia-smi", "Unable to determine the device handle for GPU0: 0000:18:00.0: GPU is lost.")
    draft.each("pci")[0]["alive"] = Known(False, "config")
    torch_sees_none(draft, "RuntimeError: CUDA unknown error")

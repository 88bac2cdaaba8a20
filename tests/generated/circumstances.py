"""Harmless things that sound machines have: each would be a false alarm if a rule took it for a fault."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from gpudoctor.core.fact import Absent, Known, Unread
from tests.generated import bus, tables
from tests.generated.bus import addresses
from tests.generated.consequences import says, xid
from tests.generated.draft import Draft, row
from tests.generated.gpus import identity
from tests.generated.host import LOG
from tests.generated.machine import Machine
from tests.generated.software import LIVE, SITE, companions

Make = Callable[[Draft, Machine, Random], None]
Fits = Callable[[Machine], bool]


@dataclass(frozen=True)
class Circumstance:
    """Something harmless, where it can be, and the warnings that it justifies."""

    name: str
    fits: Fits
    make: Make
    warns: frozenset[str]


CIRCUMSTANCES: list[Circumstance] = []


def harmless(fits: Fits = lambda _: True, warns: str = "") -> Callable[[Make], Make]:
    """Marks a function that writes something harmless into a draft; `warns`: ids of warnings that are right."""

    def mark(make: Make) -> Make:
        CIRCUMSTANCES.append(Circumstance(make.__name__, fits, make, frozenset(warns.split())))
        return make

    return mark


def own_host(machine: Machine) -> bool:
    return machine.place in ("bare", "vm")


def several(machine: Machine) -> bool:
    return machine.count > 1 and not machine.mig


def live(draft: Draft) -> bool:
    return bool(draft.value("live.import_outcome") == "ok")


def fewer(draft: Draft, kept: list[int]) -> None:
    """CUDA and torch see only those GPUs."""
    for group in ("cuda_device", "live_gpu"):
        if rows := draft.each(group):
            draft.groups[group] = [rows[index] for index in kept]
    draft.tell("libcuda", {"cuda_driver.count": len(kept), "cuda_driver.masked": False})
    if live(draft):
        draft.tell("torch", {"live.device_count": len(kept)})


# GPUs and hosts


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


# Sessions, containers and Python environments


@harmless(lambda machine: not machine.mig)
def some_devices_visible(draft: Draft, machine: Machine, random: Random) -> None:
    kept = sorted(random.sample(range(machine.count), random.randrange(1, machine.count + 1)))
    uuids = [identity("GPU", index) for index in kept]
    values = [",".join(map(str, kept)), ",".join(uuids), ",".join(uuid[:12] for uuid in uuids), f" {kept[0]} "]
    value = random.choice(values)
    draft.tell("environment", {"env.CUDA_VISIBLE_DEVICES": value})
    fewer(draft, kept if "," in value or len(kept) == 1 else kept[:1])


@harmless(lambda machine: machine.mig > 0)
def a_mig_device_named(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("environment", {"env.CUDA_VISIBLE_DEVICES": identity("MIG", 0)})
    draft.tell("libcuda", {"cuda_driver.masked": False})


@harmless()
def library_path_with_a_toolkit(draft: Draft, machine: Machine, random: Random) -> None:
    folder = "/usr/local/cuda/lib64"
    draft.tell("environment", {"env.LD_LIBRARY_PATH": folder, "env.library_path": [folder]})
    shadow = f"{folder}/libcurand.so.10 instead of {SITE}/nvidia/curand/lib/libcurand.so.10"
    draft.tell("LD_LIBRARY_PATH", {"libs.shadowing": random.choice(([], [shadow]))})


@harmless()
def toolkit_that_is_not_torchs(draft: Draft, machine: Machine, random: Random) -> None:
    cuda = random.choice([entry["cuda"] for entry in tables.table("compilers")["nvcc"]])
    home = f"/usr/local/cuda-{cuda}"
    draft.tell(
        home, {"cuda.home": home, "env.CUDA_HOME": home, "cuda.home_has_nvcc": True, "cuda.toolkit_version": cuda}
    )
    draft.tell(home, {"cuda.nvcc": f"{home}/bin/nvcc", "cuda.nvcc_version": cuda, "cuda.ptxas_version": cuda})


@harmless()
def variables_of_nccl(draft: Draft, machine: Machine, random: Random) -> None:
    values = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "0"}
    name = random.choice(tuple(values))
    draft.tell("environment", {f"env.{name}": values[name], "env.nccl_set": [name]})


@harmless()
def extensions_that_fit(draft: Draft, machine: Machine, random: Random) -> None:
    release = ".".join(machine.build.release["version"].split(".")[:2])
    told = {"name": "flash-attn", "version": "2.8.3", "torch": release, "cuda": machine.build.cuda}
    plain = {"name": "deepspeed", "version": "0.16.4", "torch": None, "cuda": None}
    lists = {"archs": ["sm_80", "sm_90"], "missing_libraries": [], "missing_symbols": [], "abi": None}
    draft.rows("extension", SITE, [{**told, **lists}, {**plain, **lists}])


@harmless()
def other_frameworks(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell(SITE, {"jax.version": "0.6.2", "jax.jaxlib": "0.6.2", "jax.plugin": "0.6.2", "jax.plugin_cuda": 12})
    draft.tell(SITE, {"tf.version": "2.19.0", "tf.built_with_cuda": True, "tf.cuda": "12.5", "tf.cudnn": "9.3"})
    draft.tell(SITE, {"jax.pins_unmet": [], "tf.pins_unmet": ["nvidia-cublas-cu12 wants 12.5.3.2, has 12.8.4.1"]})
    major = machine.build.cuda.split(".")[0]
    draft.tell(SITE, {"bitsandbytes.cuda_builds": [f"{major}.1", f"{major}.4"], "bitsandbytes.has_build": True})


@harmless(lambda machine: "triton" not in companions(machine))
def pins_of_a_patch_release(draft: Draft, machine: Machine, random: Random) -> None:
    told = {"name": "nvidia-cublas-cu12", "wants": "12.8.3.14", "has": "12.8.4.1"}
    draft.rows("pin", "METADATA", [told])
    draft.tell("METADATA", {"torch.pins_unmet": ["nvidia-cublas-cu12 wants 12.8.3.14, has 12.8.4.1"]})


@harmless()
def leftovers_of_pip(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell(
        SITE, {"python.leftovers": [f"{SITE}/~umpy"], "python.user_site": "/home/ann/.local/lib/python3/site-packages"}
    )
    draft.tell(SITE, {"torch.elsewhere": ["/usr/lib/python3/dist-packages"], "python.externally_managed": True})


@harmless(lambda machine: machine.environment == "system")
def no_torch_in_the_systems_python(draft: Draft, machine: Machine, random: Random) -> None:
    """A host that serves containers: its own Python is as old as its distribution."""
    names = "version cuda flavor git hip path archs few_archs cudnn nccl cudnn_built companions_unmet"
    names += " companions_broken pins_unmet"
    draft.lack("torch is not installed in /usr/bin/python3", " ".join(f"torch.{name}" for name in names.split()))
    draft.tell(SITE, {"torch.installs": [], "triton.version": None, "triton.wanted": None, "triton.fits": None})
    draft.tell("/usr/bin/python3", {"python.version": random.choice(("3.5.2", "3.6.8", "3.9.21", "3.12.3", "3.14.0"))})
    draft.groups["package"] = []
    if live(draft):
        draft.lack("torch is not installed", LIVE)


@harmless(lambda machine: machine.build.release["version"].startswith("2."))
def torch_of_a_vendor(draft: Draft, machine: Machine, random: Random) -> None:
    """NGC's and nightly builds: versions that no table has, with companions to match."""
    release = machine.build.release["version"]
    version = random.choice((f"{release.rsplit('.', 1)[0]}.0a0+145a3a7bda.nv25.10", f"{release}.dev20260901+cu130"))
    draft.tell(f"{SITE}/torch/version.py", {"torch.version": version})
    draft.tell(SITE, {"torch.installs": [f"pip {version} in {SITE}"], "triton.version": None, "triton.fits": None})


@harmless(lambda machine: machine.place == "docker" and machine.datacenter and not machine.old_hardware)
def compat_libcuda_that_works(draft: Draft, machine: Machine, random: Random) -> None:
    """Forward compatibility on a data-center GPU: NGC's images put a newer libcuda in front of an older driver."""
    if tables.numbers(machine.driver.cuda) >= (12, 8):
        return
    compat = "/usr/local/cuda/compat/lib.real/libcuda.so.1"
    draft.tell(compat, {"libs.libcuda": compat, "libs.libcuda_kind": "compat", "libs.libcuda_version": "580.82.07"})
    draft.tell(compat, {"libs.compat_on_path": True, "cuda_driver.kind": "compat", "cuda_driver.library": compat})
    draft.tell(compat, {"cuda_driver.version": "13.0", "driver.cuda_version": "13.0"})


@harmless(lambda machine: machine.contained)
def an_image_with_a_requirement(draft: Draft, machine: Machine, random: Random) -> None:
    major = machine.build.cuda.split(".")[0]
    asked = f"cuda>={major}.0 brand=tesla,driver>=450,driver<451"
    draft.tell("environment", {"env.NVIDIA_REQUIRE_CUDA": asked})


@harmless(lambda machine: machine.contained, warns="container.shm-small")
def little_shared_memory(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/shm", {"limits.shm_mib": 64, "limits.shm_free_mib": 64, "limits.memory_mib": 65536})


@harmless(lambda machine: machine.place in ("docker", "kubernetes") and not machine.mig)
def some_of_the_hosts_gpus(draft: Draft, machine: Machine, random: Random) -> None:
    """The bus of the host shows more GPUs than the container was given."""
    more = [row("sysfs", bus.device(machine, address)) for address in ("0000:c1:00.0", "0000:d2:00.0")]
    draft.groups["pci"] = [*draft.each("pci"), *more]
    draft.tell("/sys/bus/pci/devices", {"pci.nvidia_count": machine.count + 2})


@harmless()
def words_of_a_program(draft: Draft, machine: Machine, random: Random) -> None:
    """Lines that programs print on sound machines."""
    lines = (
        "UserWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead.",
        "TF32 is allowed by `torch.backends.cuda.matmul.allow_tf32 = True`",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64",
        "nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver",
    )
    says(draft, "a log", random.choice(lines))


CROWD = frozenset(
    {
        "some_devices_visible",
        "a_scheduler_gave_some_of_the_gpus",
        "one_gpu_given_to_a_virtual_machine",
        "a_mig_device_named",
        "a_narrow_slot",
        "another_model_beside",
        "no_torch_in_the_systems_python",
        "torch_of_a_vendor",
    }
)
"""Of these a machine has one at most: they tell the same facts."""


def some(draft: Draft, machine: Machine, random: Random, plain: bool = False) -> tuple[Circumstance, ...]:
    """Writes up to three harmless things into the draft and says which; `plain` leaves out those of `CROWD`."""
    fitting = [one for one in CIRCUMSTANCES if one.fits(machine) and not (plain and one.name in CROWD)]
    chosen = random.sample(fitting, min(len(fitting), random.randrange(4)))
    made: list[Circumstance] = []
    for one in sorted(chosen, key=lambda one: one.name):
        if not made or not {one.name, *(other.name for other in made)} & CROWD or one.name not in CROWD:
            one.make(draft, machine, random)
            made.append(one)
    return tuple(made)

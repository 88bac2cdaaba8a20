"""Changes of the driver, the host and their services, of containers' settings, and of how fast GPUs are together."""

from dataclasses import replace
from random import Random

from gpudoctor.core.fact import Known, Unread
from tests.generated import tables
from tests.generated.bus import addresses
from tests.generated.changes import linux, planted
from tests.generated.changes_gpu import ampere, one
from tests.generated.consequences import (
    cuda_fails,
    driver_files_gone,
    import_fails,
    kernel_says,
    module_unloaded,
    nvml_fails,
    says,
    torch_sees_none,
)
from tests.generated.draft import Draft, row
from tests.generated.machine import Machine
from tests.generated.software import SITE, wheels
from tests.generated.sound import draft_of
from tests.generated.tables import Driver, numbers


def other_driver(draft: Draft, machine: Machine, driver: Driver) -> Machine:
    """The same machine under another driver."""
    kinds = tables.modules(machine.gpu, driver)
    changed = replace(machine, driver=driver, module=machine.module if machine.module in kinds else kinds[0])
    fresh = draft_of(changed)
    draft.facts, draft.groups = fresh.facts, fresh.groups
    return changed


def probe_fails(draft: Draft, machine: Machine, told: str) -> None:
    """The driver looks at the GPU, says why not, and is not loaded."""
    module_unloaded(draft)
    lines = [told.format(address=address, id=_id(machine)) for address in addresses(machine)]
    kernel_says(draft, *lines, "NVRM: None of the NVIDIA devices were initialized.", fails=True)


def _id(machine: Machine) -> str:
    return str(machine.gpu.get("pci") or "2684").split()[0]


@planted("torch.driver-too-old")
def driver_below_the_floor_of_the_build(draft: Draft, machine: Machine, random: Random) -> bool:
    windows = machine.place == "wsl"
    old = [
        driver
        for driver in tables.drivers(windows)
        if tables.known_since(machine.gpu, driver)
        and not tables.serves(driver, machine.build.cuda, windows)
        and machine.module in tables.modules(machine.gpu, driver)
    ]
    if not old:
        return False
    driver = random.choice(old)
    other_driver(draft, machine, driver)
    found = int(driver.cuda.split(".")[0]) * 1000 + int(driver.cuda.split(".")[1]) * 10
    words = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old"
    torch_sees_none(draft, f"{words} (found version {found}). Please update your GPU driver")
    return True


@planted("driver.too-old-for-gpu", linux)
def driver_older_than_the_gpu(draft: Draft, machine: Machine, random: Random) -> bool:
    floor = int(tables.generation(machine.gpu["cc"])["floor"])
    old = [driver for driver in tables.drivers() if floor - 130 < numbers(driver.version)[0] < floor]
    if not old:
        return False
    driver = random.choice(old)
    other_driver(draft, machine, driver)
    told = "NVRM: The NVIDIA GPU {address} (PCI ID: 10de:{id}) installed in this system is not supported by the"
    probe_fails(draft, machine, f"{told} NVIDIA {driver.version} driver release.")
    return True


@planted("driver.gpu-dropped", linux)
def driver_newer_than_the_gpu(draft: Draft, machine: Machine, random: Random) -> bool:
    ceiling = tables.generation(machine.gpu["cc"]).get("ceiling")
    if ceiling is None:
        return False
    driver = random.choice([driver for driver in tables.drivers() if numbers(driver.version)[0] > int(ceiling) + 5])
    other_driver(draft, machine, driver)
    told = f"NVRM: The {machine.name} GPU installed in this system is supported through the NVIDIA {ceiling}.xx Legacy"
    probe_fails(draft, machine, f"{told} drivers. The {driver.version} NVIDIA driver will ignore this GPU.")
    return True


@planted("driver.open-module-required", linux)
def modules_of_the_wrong_kind(draft: Draft, machine: Machine, random: Random) -> bool:
    kinds = tables.modules(machine.gpu, machine.driver)
    if len(kinds) == 2 or numbers(machine.driver.version)[0] < 525:
        return False
    if isinstance(draft.facts["kernel_log.module_refused"], Unread):
        return False  # only the log tells it
    if kinds == ("open",):
        draft.tell("/proc/driver/nvidia/version", {"driver.module_kind": "proprietary"})
        nvml_fails(draft, "ok", 0, "no GPU is listed")
        draft.tell("NVML", {"gpu.count": 0, "nvml.message": None})
        told = "NVRM: The NVIDIA GPU {address} installed in this system requires use of the NVIDIA open kernel modules."
        lines = [told.format(address=address) for address in addresses(machine)]
        kernel_says(draft, *lines, fails=True)
        cuda_fails(draft, 100)
        return True
    told = "NVRM: The NVIDIA GPU {address} (PCI ID: 10de:{id}) installed in this system is not supported by open"
    probe_fails(draft, machine, f"{told} nvidia.ko because it does not include the required GSP.")
    return True


@planted("driver.module-not-loaded", linux)
def module_not_loaded(draft: Draft, machine: Machine, random: Random) -> None:
    module_unloaded(draft)
    draft.tell("efivars", {"host.secure_boot": False})  # where it is on and no log can be read, that may be why


@planted("driver.module-not-built", linux)
def module_not_built(draft: Draft, machine: Machine, random: Random) -> None:
    module_unloaded(draft)
    draft.tell("/lib/modules", {"driver.module_on_disk": False, "driver.module_disk_version": None})
    draft.tell("/lib/modules", {"driver.module_kernels": ["6.8.0-60-generic"], "driver.headers": random.random() < 0.5})
    draft.tell("/var/lib/dkms", {"driver.dkms": random.choice(("added", None))})


@planted("driver.secure-boot", linux)
def secure_boot_refuses_the_module(draft: Draft, machine: Machine, random: Random) -> None:
    module_unloaded(draft)
    line = "Loading of unsigned module is rejected"
    draft.tell("efivars", {"host.secure_boot": True})
    draft.tell("/dev/kmsg", {"kernel_log.module_refused": line})
    kernel_says(draft, line)


@planted("driver.nouveau", linux)
def nouveau_holds_the_gpu(draft: Draft, machine: Machine, random: Random) -> None:
    module_unloaded(draft)
    draft.tell("/proc/modules", {"driver.nouveau_loaded": True})
    draft.tell("modprobe.d", {"driver.nouveau_blacklisted": False})
    draft.tell("/sys/bus/pci/devices", {"pci.nvidia_drivers": ["nouveau"]})
    for device in draft.each("pci"):
        device["driver"] = Known("nouveau", "/sys/bus/pci/devices")


@planted("driver.missing", linux)
def no_driver_installed(draft: Draft, machine: Machine, random: Random) -> None:
    module_unloaded(draft)
    driver_files_gone(draft)


@planted("driver.version-mismatch", linux)
def libraries_of_another_version(draft: Draft, machine: Machine, random: Random) -> bool:
    newer = [driver for driver in tables.drivers() if numbers(driver.version) > numbers(machine.driver.version)]
    newer = [driver for driver in newer if tables.known_since(machine.gpu, driver)]
    if not newer:
        return False
    version = random.choice(newer).version
    draft.tell(f"libcuda.so.{version}", {"driver.library_version": version, "driver.library_versions": [version]})
    draft.tell(f"libcuda.so.{version}", {"libs.libcuda_version": version, "driver.module_disk_version": version})
    nvml_fails(draft, "version mismatch", 18, "Driver/library version mismatch")
    says(draft, "nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch")
    cuda_fails(draft, 804 if not machine.datacenter else 803)
    return True


@planted("driver.device-nodes", linux)
def device_files_denied(draft: Draft, machine: Machine, random: Random) -> None:
    denied = ["/dev/nvidiactl", *(f"/dev/nvidia{index}" for index in range(machine.count))]
    draft.tell("/dev", {"driver.nodes_denied": denied})
    for node in draft.each("node"):
        node.update(row("/dev", {"mode": "0660", "usable": False}))
    nvml_fails(draft, "no permission", 4, "Insufficient Permissions")
    says(draft, "nvidia-smi", "Failed to initialize NVML: Insufficient Permissions")
    cuda_fails(draft, 100)


@planted("driver.device-nodes", linux)
def device_files_missing(draft: Draft, machine: Machine, random: Random) -> None:
    missing = ["/dev/nvidiactl", *(f"/dev/nvidia{index}" for index in range(machine.count))]
    draft.tell("/dev", {"driver.nodes_missing": missing})
    draft.rows("node", "/dev", [])
    nvml_fails(draft, "driver not loaded", 9, "Driver Not Loaded")
    cuda_fails(draft, 100)


@planted("driver.uvm", linux)
def uvm_not_loaded(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/proc/modules", {"driver.uvm_loaded": False})
    draft.tell("/dev", {"driver.nodes_missing": ["/dev/nvidia-uvm"]})
    cuda_fails(draft, 999)


@planted("driver.uvm", linux)
def uvm_broken_after_suspend(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/sys/power/suspend_stats/success", {"driver.recent_suspend": True})
    cuda_fails(draft, 999)


@planted("driver.fabric-manager", lambda machine: machine.nvswitch and machine.place == "bare")
def fabric_manager_of_another_version(draft: Draft, machine: Machine, random: Random) -> bool:
    others = [driver.version for driver in tables.drivers() if driver.version != machine.driver.version]
    other = random.choice(others)
    told = {"driver.fabric_manager_version": other, "fabric.installed_version": other}
    draft.tell("fabricmanager.log", {**told, "driver.fabric_manager": "failed"})
    _no_fabric(draft)
    return True


@planted("driver.fabric-manager", lambda machine: machine.nvswitch and machine.place == "bare")
def fabric_manager_stopped(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("systemd", {"driver.fabric_manager": "stopped", "fabric.enabled": False})
    _no_fabric(draft)


def _no_fabric(draft: Draft) -> None:
    for gpu in draft.each("gpu"):
        if isinstance(gpu["fabric_state"], Known):
            gpu["fabric_state"] = Known("in progress", "NVML")
    cuda_fails(draft, 802)


@planted("driver.init-failed", lambda machine: linux(machine) and machine.count > 1)
def one_gpu_does_not_start(draft: Draft, machine: Machine, random: Random) -> None:
    lost = random.randrange(machine.count)
    del draft.each("gpu")[lost], draft.each("cuda_device")[lost:]
    draft.tell("NVML", {"gpu.count": machine.count - 1, "cuda_driver.count": machine.count - 1})
    if draft.each("live_gpu"):
        draft.each("live_gpu").pop()
        draft.tell("torch", {"live.device_count": machine.count - 1})
    address = addresses(machine)[lost]
    lines = (
        f"NVRM: GPU {address}: RmInitAdapter failed! (0x62:0x65:1792)",
        f"NVRM: GPU {address}: rm_init_adapter failed",
    )
    kernel_says(draft, *lines, fails=True)


@planted("driver.vgpu-license", lambda machine: machine.place == "vgpu")
def vgpu_without_a_licence(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu["license"] = Known("unlicensed", "NVML")


# Hosts and their services, settings of containers, and how fast the GPUs are together


def bare(machine: Machine) -> bool:
    return machine.place == "bare"


def rack(machine: Machine) -> bool:
    """A node of an NVL72 rack, whose switches are elsewhere."""
    return bare(machine) and str(machine.gpu["name"]).startswith(("GB200", "GB300"))


def board(machine: Machine) -> bool:
    return bare(machine) and machine.nvswitch


def no_nvidia_gpu(draft: Draft, vendors: list[str]) -> None:
    module_unloaded(draft)
    driver_files_gone(draft)
    source = "/sys/bus/pci/devices"
    draft.tell(source, {"pci.nvidia_count": 0, "pci.gpu_vendors": vendors, "pci.nvidia_drivers": None})
    draft.groups["pci"] = []
    draft.groups["gpu"] = []
    draft.blind("NVML is not there", "gpu")


@planted("host.no-gpu", linux)
def no_gpu_on_the_bus(draft: Draft, machine: Machine, random: Random) -> None:
    no_nvidia_gpu(draft, random.choice(([], ["other"])))


@planted("host.other-vendor", linux)
def gpus_of_another_vendor(draft: Draft, machine: Machine, random: Random) -> None:
    no_nvidia_gpu(draft, random.choice((["amd"], ["intel"], ["amd", "intel"])))


@planted("driver.imex", rack)
def imex_failed(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("nvidia-imex.log", {"imex.state": "failed", "imex.errors": ["Failed to connect to node 3"]})


@planted("driver.fabric-pending", lambda machine: rack(machine) or (board(machine) and machine.gpu["cc"] == "9.0"))
def fabric_still_starting(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu["fabric_state"] = Known(random.choice(("in progress", "not started")), "NVML")
    cuda_fails(draft, 802)


@planted("gpu.ecc", ampere)
def static_memory_worn_out(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"sram_threshold_exceeded": True})


@planted("gpu.ecc", ampere)
def as_many_rows_remapped_as_can_be(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"remapped_uncorrected": random.randrange(512, 600)})


@planted("gpu.ecc", lambda machine: machine.datacenter and bare(machine) and machine.old_hardware)
def as_many_pages_retired_as_can_be(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"retired_single_bit": 40, "retired_double_bit": random.randrange(23, 25)})


@planted("gpu.slow", lambda machine: machine.count > 2)
def one_gpu_slower_than_the_others(draft: Draft, machine: Machine, random: Random) -> None:
    slow = random.randrange(machine.count)
    rates = [{"gpu": index, "unit": "TFLOP/s", "value": 61.0, "others": 60.0} for index in range(machine.count)]
    rates[slow] = {**rates[slow], "value": 31.0}
    draft.rows("rate", "a measurement", rates)


@planted("container.toolkit", linux)
def runtime_whose_program_is_gone(draft: Draft, machine: Machine, random: Random) -> None:
    broken = "/etc/docker/daemon.json: the runtime nvidia names /usr/bin/nvidia-container-runtime, which is not there"
    draft.tell("the engines' configuration", {"container.broken": [broken]})


@planted("container.cdi-stale", linux)
def cdi_file_of_an_older_driver(draft: Draft, machine: Machine, random: Random) -> None:
    older = [driver.version for driver in tables.drivers() if driver.version != machine.driver.version]
    draft.tell(
        "/etc/cdi", {"container.cdi_specs": ["/etc/cdi/nvidia.yaml"], "container.cdi_driver": random.choice(older)}
    )


@planted("container.requirement", lambda machine: machine.place in ("docker", "podman"))
def image_of_a_newer_cuda(draft: Draft, machine: Machine, random: Random) -> bool:
    """NVIDIA_DISABLE_REQUIRE lets it start; its torch is of the newer CUDA, too."""
    major = int(machine.driver.cuda.split(".")[0])
    own = [one for one in tables.builds() if one.arch == machine.build.arch and one.cuda.startswith(f"{major + 1}.")]
    newer = [one for one in own if tables.has_code(one.archs, machine.gpu["cc"], machine.driver, one.cuda)]
    if not newer:
        return False
    build = random.choice(newer)
    fresh = draft_of(replace(machine, build=build, companions=(), toolkit=None))
    draft.facts, draft.groups = fresh.facts, fresh.groups
    draft.tell("environment", {"env.NVIDIA_REQUIRE_CUDA": f"cuda>={build.cuda}", "env.NVIDIA_DISABLE_REQUIRE": "1"})
    torch_sees_none(draft, "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old")
    return True


@planted("nccl.slow", board)
def peers_switched_off_on_an_nvlink_board(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("environment", {"env.NCCL_P2P_DISABLE": "1", "env.nccl_set": ["NCCL_P2P_DISABLE"]})


@planted("nccl.shm", lambda machine: bare(machine) and machine.count > 1)
def no_shared_memory_left(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/shm", {"limits.shm_free_mib": random.randrange(8)})


@planted("env.library-path", lambda machine: bool(wheels(machine)))
def libraries_that_clash(draft: Draft, machine: Machine, random: Random) -> None:
    """By the files alone: what one library wants, the copy in front of torch's own does not define."""
    front = "/usr/local/cuda-12.1/lib64/libnvJitLink.so.12"
    draft.tell("environment", {"env.LD_LIBRARY_PATH": "/usr/local/cuda-12.1/lib64"})
    draft.tell("environment", {"env.library_path": ["/usr/local/cuda-12.1/lib64"]})
    draft.tell(
        "LD_LIBRARY_PATH", {"libs.shadowing": [f"{front} instead of {SITE}/nvidia/nvjitlink/libnvJitLink.so.12"]}
    )
    wanted = "__nvJitLinkComplete_12_4"
    draft.tell("symbols", {"libs.clashes": [f"libcusparse.so.12 wants {wanted}, which {front} does not define"]})
    import_fails(draft, f"ImportError: libcusparse.so.12: undefined symbol: {wanted}, version libnvJitLink.so.12")

"""What the host, its driver, its limits and its container say on a sound machine."""

from gpudoctor.probes.environment import ASKED
from tests.generated import tables
from tests.generated.bus import NO_BUS
from tests.generated.draft import Draft
from tests.generated.gpus import identity
from tests.generated.machine import Machine

DRIVER_MODULE = (
    "driver.module_loaded driver.module_version driver.module_kind driver.module_on_disk driver.module_disk_version"
    " driver.module_kernels driver.module_params driver.headers driver.uvm_loaded driver.nouveau_loaded"
    " driver.nova_loaded driver.bound_count driver.excluded driver.gsp_files driver.gsp_firmware"
)
OF_THE_HOST = (
    "container.broken container.cdi_driver container.cdi_specs container.default_runtime container.engines"
    " container.no_cgroups container.runtimes container.toolkit container.toolkit_mode container.toolkit_version"
    " driver.dkms driver.dkms_error driver.fabric_manager driver.fabric_manager_version driver.gsp_files driver.headers"
    " driver.module_disk_version driver.module_kernels driver.module_on_disk driver.nouveau_blacklisted"
    " driver.nvidia_blacklisted driver.persistenced fabric.enabled fabric.errors fabric.installed_version"
    " fabric.subnet_manager fabric.switch_ports fabric.umad imex.enabled imex.errors imex.nodes imex.state imex.version"
    " fitness.time_service fitness.time_synchronized stuck host.secure_boot host.shim_validation"
)
LOG = (
    "aer link_loss mce oom sxid xid kernel_log.fallen_off kernel_log.init_failures kernel_log.module_refused"
    " kernel_log.sxid kernel_log.uvm_fatal"
)
IN_CONTAINER = (
    "container.capabilities container.device_access container.driver_in_image container.driver_mounts"
    " container.driver_version container.handover container.lacks container.requested"
)


def put(draft: Draft, machine: Machine) -> None:
    """All facts that are neither the GPUs' nor the Python environment's."""
    _system(draft, machine)
    _surroundings(draft, machine)
    _driver(draft, machine)
    _fabric(draft, machine)
    _engines(draft)
    _log(draft)
    if machine.contained:
        _inside(draft, machine)
    if machine.place == "wsl":
        _windows(draft, machine)


def _system(draft: Draft, machine: Machine) -> None:
    system = machine.system
    kernel = "6.6.87.2-microsoft-standard-WSL2" if machine.place == "wsl" else system.kernel
    release = {"host.distribution": system.distribution, "host.distribution_version": system.version or None}
    draft.tell("/etc/os-release", {**release, "host.os": f"{system.distribution} {system.version}".title()})
    draft.tell("/etc/os-release", {"host.package_manager": system.manager})
    draft.tell("/proc/sys/kernel", {"host.kernel": kernel, "host.arch": machine.build.arch, "host.platform": "linux"})
    draft.tell("libc.so.6", {"host.glibc": system.glibc})
    draft.tell("/proc", {"host.memory_mib": 524288, "host.uptime_s": 864000, "host.kernel_command_line": "ro quiet"})
    draft.tell("/proc/cpuinfo", {"host.cpu_vendor": "GenuineIntel" if machine.build.arch == "x86_64" else None})
    draft.tell("/sys", {"host.iommu": [], "host.lockdown": "none", "host.module_signatures": False})
    draft.tell("efivars", {"host.secure_boot": False, "host.shim_validation": True})
    draft.lack("no mark of it", "host.container host.jetson host.wsl host.virtual_machine")
    draft.lack("neither the kernel's release nor /dev/dxg shows WSL", "wsl.device wsl.driver wsl.loader")
    draft.lack("neither the kernel's release nor /dev/dxg shows WSL", "wsl.linux_driver wsl.linux_packages")
    if machine.place in ("vm", "vgpu", "wsl"):
        draft.tell("/sys/class/dmi/id", {"host.virtual_machine": "hyper-v" if machine.place == "wsl" else "kvm"})


def _surroundings(draft: Draft, machine: Machine) -> None:
    """Environment variables, limits, network, and how fit the host is."""
    draft.lack("not set", " ".join(f"env.{name}" for name in ASKED))
    draft.lack("LD_LIBRARY_PATH is not set", "env.library_path")
    draft.tell("environment", {"env.path": ["/usr/bin"], "env.nccl_set": []})
    limits = {"limits.cpus": 64, "limits.memlock_kib": -1, "limits.memory_mib": None, "limits.open_files": 1048576}
    draft.tell("/proc/self/limits", {**limits, "limits.processes": -1, "limits.stack_kib": 8192})
    draft.tell("/dev/shm", {"limits.shm_mib": 262144, "limits.shm_free_mib": 262100})
    _network(draft)
    draft.rows("rdma", "/sys/class/infiniband", [])
    draft.tell("/proc/self/status", {"rdma.may_lock": True, "rdma.verbs_loaded": False})
    draft.tell("/dev/infiniband", {"rdma.nodes_denied": [], "rdma.nodes_missing": []})
    draft.tell("/proc", {"fitness.load": 0.5, "fitness.clock_source": "tsc", "fitness.clock_sources": ["tsc"]})
    draft.tell("/proc/meminfo", {"fitness.memory_available_mib": 400000, "fitness.swap_mib": 0})
    draft.tell("/sys/kernel/mm/hugepages", {"fitness.hugepages_unused_mib": 0})
    draft.tell("/sys", {"fitness.memory_corrected": 0, "fitness.memory_uncorrected": 0, "topology.numa_nodes": 1})
    draft.tell("/run", {"fitness.time_service": "chronyd", "fitness.time_synchronized": None})
    space = {"mount": "/", "kind": "ext4", "folder": "/root", "read_only": False, "total_mib": 900000}
    draft.rows("space", "/proc/self/mountinfo", [{**space, "free_mib": 400000, "uses": ["home"]}])
    draft.rows("stuck", "/proc", [])


def _network(draft: Draft) -> None:
    """One interface that leads out, nothing that steers NCCL, and no job."""
    draft.tell("/sys/class/net", {"net.interfaces": ["eth0", "lo"], "net.unmatched": []})
    inner = {"kind": "loopback", "virtual": True, "addresses": ["127.0.0.1"], "mtu": 65536}
    outer = {"kind": "physical", "virtual": False, "addresses": ["192.0.2.2"], "mtu": 1500}
    up = {"up": True, "part_of": None}
    draft.rows("interface", "/sys/class/net", [{"name": "lo", **inner, **up}, {"name": "eth0", **outer, **up}])
    for user in ("nccl", "gloo"):
        told = {"interface": "eth0", "address": "192.0.2.2", "why": "the first that is up", "inner": False}
        draft.tell("/sys/class/net", {f"net.{user}_{name}": value for name, value in told.items()})
    draft.rows("setting", "environment", [])
    draft.lack("NCCL_IB_HCA is not set", "net.hca_inactive net.hca_unmatched")
    draft.lack("no launcher's variables say so", "net.job_nodes")
    draft.lack("MASTER_ADDR is not set", "net.master_error net.master_here net.port net.port_taken")
    draft.lack("no /sys/class/infiniband", "net.efa")
    draft.lack("the loader finds no libnccl-net.so", "net.plugin")
    draft.lack("no chain turns connections away", "net.firewall")
    draft.tell("/proc/sys/net/ipv4/ip_local_port_range", {"net.port_low": 32768, "net.port_high": 60999})
    draft.tell("getaddrinfo", {"net.host_loopback": False, "net.plugins_missing": []})


def _driver(draft: Draft, machine: Machine) -> None:
    version = machine.driver.version
    draft.tell("NVML", {"driver.cuda_version": machine.driver.cuda})
    draft.tell("/proc/driver/nvidia/version", {"driver.version": version, "driver.module_version": version})
    draft.tell("/proc/driver/nvidia/version", {"driver.module_kind": machine.module, "driver.module_params": {}})
    loaded = {"driver.installed": True, "driver.module_loaded": True, "driver.uvm_loaded": True}
    idle = {"driver.nouveau_loaded": False, "driver.nova_loaded": False, "driver.peermem_loaded": False}
    draft.tell("/proc/modules", {**loaded, **idle})
    on_disk = f"/lib/modules/{machine.system.kernel}/updates/dkms/nvidia.ko"
    draft.tell(on_disk, {"driver.module_on_disk": True, "driver.module_disk_version": version})
    draft.tell(on_disk, {"driver.headers": True, "driver.gsp_files": True})
    draft.lack("the running kernel has one", "driver.module_kernels")
    draft.lack("no build for the running kernel has failed", "driver.dkms_error")
    draft.tell("/var/lib/dkms", {"driver.dkms": "installed", "driver.recent_suspend": False})
    draft.tell("/proc/driver/nvidia/gpus", {"driver.bound_count": machine.count, "driver.excluded": []})
    draft.tell("/proc/driver/nvidia/gpus", {"driver.gsp_firmware": version if machine.module == "open" else None})
    libcuda = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}"
    draft.tell(libcuda, {"driver.library_version": version, "driver.library_versions": [version]})
    draft.tell(libcuda, {"driver.libraries_empty": []})
    draft.tell("/dev", {"driver.nodes_denied": [], "driver.nodes_missing": []})
    draft.tell("modprobe.d", {"driver.nouveau_blacklisted": True, "driver.nvidia_blacklisted": False})
    draft.tell("/run", {"driver.persistenced": machine.datacenter})
    nodes = ["nvidiactl", "nvidia-uvm", "nvidia-modeset", *(f"nvidia{index}" for index in range(machine.count))]
    draft.rows("node", "/dev", [{"path": f"/dev/{name}", "mode": "0666", "usable": True} for name in nodes])


def _fabric(draft: Draft, machine: Machine) -> None:
    nvlink5 = machine.nvswitch and tables.numbers(machine.gpu["cc"])[0] >= 10
    draft.tell("/sys/bus/pci/devices", {"driver.nvswitch": machine.nvswitch and not nvlink5})
    draft.tell("/sys/class/infiniband", {"fabric.switch_ports": ["mlx5_8", "mlx5_9"] if nvlink5 else []})
    draft.tell("/opt/nvidia/nvlsm", {"fabric.subnet_manager": "running" if nvlink5 else "not installed"})
    draft.tell("/sys/module", {"fabric.umad": nvlink5})
    if machine.nvswitch:
        version = machine.driver.version
        draft.tell("fabricmanager.log", {"driver.fabric_manager": "running", "driver.fabric_manager_version": version})
        draft.tell("/etc/systemd", {"fabric.enabled": True, "fabric.installed_version": version, "fabric.errors": []})
    else:
        draft.tell("no /usr/bin/nv-fabricmanager", {"driver.fabric_manager": "not installed"})
        absent = "driver.fabric_manager_version fabric.enabled fabric.installed_version fabric.errors"
        draft.lack("no /usr/bin/nv-fabricmanager", absent)
    if machine.gpu["name"].startswith(("GB200", "GB300")):
        draft.tell("/etc/nvidia-imex", {"imex.state": "running", "imex.nodes": 18, "imex.channels": 1})
        draft.tell(
            "/etc/nvidia-imex", {"imex.enabled": True, "imex.errors": [], "imex.version": machine.driver.version}
        )
    else:
        draft.tell("no /usr/bin/nvidia-imex", {"imex.state": "not installed"})
        draft.lack("no /usr/bin/nvidia-imex", "imex.enabled imex.errors imex.nodes imex.version imex.channels")


def _engines(draft: Draft) -> None:
    draft.lack("not in a container", IN_CONTAINER)
    draft.tell("programs in the usual folders", {"container.engines": ["docker"], "container.toolkit": True})
    draft.tell("/etc/docker/daemon.json", {"container.runtimes": ["docker"], "container.default_runtime": None})
    draft.tell("/etc/nvidia-container-runtime", {"container.toolkit_mode": "auto", "container.no_cgroups": False})
    draft.tell("dpkg", {"container.toolkit_version": "1.17.8", "container.broken": []})
    draft.tell("/etc/cdi", {"container.cdi_specs": [], "container.cdi_driver": None})


def _log(draft: Draft) -> None:
    for group in ("aer", "link_loss", "mce", "oom", "sxid", "xid"):
        draft.rows(group, "/dev/kmsg", [])
    draft.tell("/dev/kmsg", {"kernel_log.fallen_off": [], "kernel_log.init_failures": [], "kernel_log.sxid": []})
    draft.lack("/dev/kmsg has no such line", "kernel_log.module_refused kernel_log.uvm_fatal")


def _inside(draft: Draft, machine: Machine) -> None:
    """A container that was given the machine's GPUs: the host's own side is out of sight."""
    why = f"inside a container ({machine.place}) the host's cannot be seen"
    draft.blind(why, OF_THE_HOST)
    draft.blind("no /dev/kmsg; the kernel's log is the host's", LOG)
    draft.tell("/.dockerenv", {"host.container": machine.place})
    all_of = machine.place != "kubernetes"
    asked = "all" if all_of else ",".join(identity("GPU", index) for index in range(machine.count))
    draft.tell("environment", {"env.NVIDIA_VISIBLE_DEVICES": asked, "container.requested": asked.split(",")})
    draft.tell("environment", {"env.NVIDIA_DRIVER_CAPABILITIES": "compute,utility"})
    draft.tell("environment", {"container.capabilities": ["compute", "utility"]})
    draft.tell("/dev", {"container.device_access": True, "container.lacks": []})
    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{machine.driver.version}"
    handover = {"container.driver_mounts": [library], "container.driver_version": machine.driver.version}
    draft.tell("/proc/self/mountinfo", {**handover, "container.handover": "NVIDIA's runtime"})
    draft.tell("libraries of the driver that are no mounts", {"container.driver_in_image": []})
    draft.tell("/dev/shm", {"limits.shm_mib": 65536, "limits.shm_free_mib": 65530})


def _windows(draft: Draft, machine: Machine) -> None:
    """WSL 2: the Windows driver serves the GPU through /dev/dxg; nothing of a Linux driver is there."""
    why = "in WSL the Windows driver serves the GPU; no Linux module is loaded"
    draft.lack(why, f"{DRIVER_MODULE} driver.library_version driver.library_versions driver.nodes_missing driver.dkms")
    draft.lack("WSL boots without UEFI", "host.secure_boot host.shim_validation")
    draft.blind(NO_BUS, "driver.nvswitch")
    draft.tell("/usr/lib/wsl/lib/libcuda.so.1", {"driver.installed": True, "wsl.driver": True, "wsl.loader": True})
    draft.tell("/dev/dxg", {"wsl.device": True, "wsl.linux_driver": [], "wsl.linux_packages": []})
    draft.tell("/proc/sys/kernel/osrelease", {"host.wsl": 2})
    draft.tell("NVML", {"driver.version": machine.driver.version})
    draft.rows("node", "/dev", [])
    draft.tell("/dev/shm", {"limits.shm_mib": 15872, "limits.shm_free_mib": 15872})

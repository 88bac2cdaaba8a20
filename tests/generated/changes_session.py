"""Changes of the session and of where it runs: environment variables, libraries in front, containers, WSL."""

from random import Random

from tests.generated.changes import anywhere, live, planted
from tests.generated.consequences import cuda_fails, import_fails, no_libcuda, nvml_fails, says
from tests.generated.draft import Draft
from tests.generated.machine import Machine
from tests.generated.software import SITE, wheels


def hide(draft: Draft, value: str) -> None:
    """CUDA_VISIBLE_DEVICES leaves nothing to see."""
    draft.tell("environment", {"env.CUDA_VISIBLE_DEVICES": value})
    draft.tell("libcuda, asked again without it", {"cuda_driver.masked": True})
    cuda_fails(draft, 100)


def in_front(draft: Draft, folder: str) -> None:
    draft.tell("environment", {"env.LD_LIBRARY_PATH": folder, "env.library_path": [folder]})


@planted("env.visible-devices", anywhere)
def no_device_visible(draft: Draft, machine: Machine, random: Random) -> None:
    hide(draft, random.choice(("", "-1", "NoDevFiles", "-1,0")))


@planted("env.visible-devices", lambda machine: not machine.mig)
def visible_device_out_of_range(draft: Draft, machine: Machine, random: Random) -> None:
    hide(draft, str(machine.count + random.randrange(4)))


@planted("env.visible-devices", lambda machine: not machine.mig)
def visible_device_of_another_machine(draft: Draft, machine: Machine, random: Random) -> None:
    hide(draft, "GPU-deadbeef-0000-1111-2222-333344445555")


@planted("env.visible-devices-partial", lambda machine: machine.count > 1 and not machine.mig)
def visible_devices_end_at_a_wrong_number(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("environment", {"env.CUDA_VISIBLE_DEVICES": f"0,{machine.count + 3},1"})
    draft.tell("libcuda", {"cuda_driver.count": 1, "cuda_driver.masked": False})
    del draft.each("cuda_device")[1:], draft.each("live_gpu")[1:]
    if live(machine):
        draft.tell("torch", {"live.device_count": 1})


@planted("env.library-path", lambda machine: live(machine) and bool(wheels(machine)))
def library_path_wins_over_the_wheels(draft: Draft, machine: Machine, random: Random) -> None:
    folder = "/usr/local/cuda/lib64"
    name = random.choice(("libcublas.so.12", "libnvJitLink.so.12", "libcudnn.so.9"))
    in_front(draft, folder)
    draft.tell("LD_LIBRARY_PATH", {"libs.shadowing": [f"{folder}/{name} instead of {SITE}/nvidia/lib/{name}"]})
    symbol = "undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"
    import_fails(draft, f"ImportError: {SITE}/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: {symbol}")


@planted("env.stub-libcuda", lambda machine: machine.place == "bare")
def stub_in_front_of_the_driver(draft: Draft, machine: Machine, random: Random) -> None:
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so.1"
    in_front(draft, "/usr/local/cuda/lib64/stubs")
    draft.tell(stub, {"libs.libcuda": stub, "libs.libcuda_kind": "stub", "libs.libcuda_version": None})
    draft.tell(stub, {"cuda_driver.library": stub, "cuda_driver.kind": "stub"})
    cuda_fails(draft, 34)


@planted("env.forward-compat", lambda machine: machine.place in ("bare", "docker") and not machine.datacenter)
def compat_libcuda_on_a_geforce(draft: Draft, machine: Machine, random: Random) -> bool:
    compat = "/usr/local/cuda/compat/libcuda.so.1"
    in_front(draft, "/usr/local/cuda/compat")
    draft.tell(compat, {"libs.libcuda": compat, "libs.libcuda_kind": "compat", "libs.libcuda_version": "615.12.01"})
    draft.tell(compat, {"libs.compat_on_path": True, "cuda_driver.library": compat, "cuda_driver.kind": "compat"})
    cuda_fails(draft, 804)
    return True


@planted("nccl.interface", anywhere)
def nccl_told_an_interface_that_is_not_there(draft: Draft, machine: Machine, random: Random) -> None:
    name = random.choice(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"))
    draft.tell("environment", {f"env.{name}": "eno9", "env.nccl_set": [name]})
    draft.tell("/sys/class/net", {"net.unmatched": [f"{name}=eno9"]})


@planted("nccl.infiniband", lambda machine: machine.place == "bare" and machine.datacenter)
def nccl_told_an_adapter_that_is_not_there(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("environment", {"env.NCCL_IB_HCA": "mlx5_9", "net.hca_unmatched": "mlx5_9"})
    port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "InfiniBand"}
    draft.rows("rdma", "/sys/class/infiniband", [port])


def contained(machine: Machine) -> bool:
    return machine.contained


@planted("container.no-gpu", contained)
def container_without_gpus(draft: Draft, machine: Machine, random: Random) -> None:
    """The host's bus and module are seen through /sys and /proc, nothing of the driver is inside."""
    draft.tell("/proc/self/mountinfo", {"container.driver_mounts": [], "container.driver_version": None})
    draft.lack("nothing of the driver is in this container", "container.handover container.device_access")
    draft.lack("no library of the driver is mounted", "container.driver_in_image")
    lacks = ["the driver's libraries", "/dev/nvidiactl", "/dev/nvidia0 (or another GPU's)"]
    draft.tell("/dev", {"container.lacks": lacks, "driver.nodes_missing": ["/dev/nvidiactl", "/dev/nvidia0"]})
    names = ("env.NVIDIA_VISIBLE_DEVICES", "env.NVIDIA_DRIVER_CAPABILITIES")
    if random.random() < 0.5:
        draft.tell("not set", {**dict.fromkeys(names), "container.requested": []})
    draft.lack("no libcuda.so.<version> in the usual folders", "driver.library_version driver.library_versions")
    draft.rows("node", "/dev", [])
    message = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
    nvml_fails(draft, "library not found", None, message, machine_has_bus=False)
    no_libcuda(draft)


@planted("container.capabilities", lambda machine: machine.place in ("docker", "podman"))
def container_without_compute(draft: Draft, machine: Machine, random: Random) -> None:
    value = random.choice(("utility", "utility,video", "graphics,utility"))
    draft.tell("environment", {"env.NVIDIA_DRIVER_CAPABILITIES": value, "container.capabilities": value.split(",")})
    no_libcuda(draft)


@planted("container.shm-small", contained)
def container_with_little_shared_memory(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/shm", {"limits.shm_mib": 64, "limits.shm_free_mib": 64})


@planted("container.shm", contained)
def container_whose_shared_memory_is_full(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/shm", {"limits.shm_mib": random.choice((64, 1024)), "limits.shm_free_mib": 2})


@planted("container.cgroup-lost", lambda machine: machine.place == "docker")
def container_lost_its_devices(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/nvidiactl", {"container.device_access": False})
    nvml_fails(draft, "unknown error", 999, "Unknown Error")
    says(draft, "nvidia-smi", "Failed to initialize NVML: Unknown Error")
    cuda_fails(draft, 999)


@planted("container.driver-in-image", contained)
def driver_libraries_of_the_image(draft: Draft, machine: Machine, random: Random) -> None:
    other = "418.40.04"
    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{other}"
    draft.tell("/proc/self/mountinfo", {"container.driver_in_image": [library]})
    draft.tell(library, {"libs.libcuda": library, "libs.libcuda_kind": "driver", "libs.libcuda_version": other})
    draft.tell(library, {"driver.library_version": other, "driver.library_versions": [other, machine.driver.version]})
    nvml_fails(draft, "version mismatch", 18, "Driver/library version mismatch")
    cuda_fails(draft, 803)


def windows(machine: Machine) -> bool:
    return machine.place == "wsl"


@planted("wsl.linux-driver", windows)
def linux_driver_inside_wsl(draft: Draft, machine: Machine, random: Random) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    draft.tell("/var/lib/dpkg/status", {"wsl.linux_packages": ["libnvidia-compute-535"], "wsl.linux_driver": [library]})
    draft.tell(library, {"libs.libcuda": library, "libs.libcuda_kind": "driver", "libs.libcuda_version": "535.288.01"})
    draft.blind("the nvidia module is not loaded", "driver.version")
    nvml_fails(draft, "driver not loaded", 9, "Driver Not Loaded", machine_has_bus=False)
    cuda_fails(draft, 100)


@planted("wsl.libcuda", windows)
def wsl_folder_not_searched(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/etc/ld.so.conf.d", {"wsl.loader": False})
    draft.blind("NVML is not loaded", "driver.version")
    message = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
    nvml_fails(draft, "library not found", None, message, machine_has_bus=False)
    no_libcuda(draft)


@planted("wsl.libcuda", windows)
def wsl_device_missing(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev", {"wsl.device": False})
    draft.blind("NVML: GPU access blocked by the operating system", "driver.version")
    nvml_fails(draft, "gpu access blocked by the operating system", 17, "blocked by the OS", machine_has_bus=False)
    cuda_fails(draft, 100)

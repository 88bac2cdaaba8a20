"""Harmless things about sessions, containers and Python environments."""

from __future__ import annotations

from random import Random

from tests.generated import bus, tables
from tests.generated.circumstances import fewer, harmless, live
from tests.generated.consequences import says
from tests.generated.draft import Draft, row
from tests.generated.gpus import identity
from tests.generated.machine import Machine
from tests.generated.software import LIVE, SITE, companions


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

"""Changes of the Python environment and of the toolkit that builds for it."""

from dataclasses import replace
from random import Random

from tests.generated import tables
from tests.generated.changes import anywhere, live, planted
from tests.generated.consequences import import_fails, kernels_fail, says, torch_sees_none
from tests.generated.draft import Draft, row
from tests.generated.machine import Machine
from tests.generated.software import LIVE, SITE, companions, wheels
from tests.generated.sound import draft_of
from tests.generated.tables import Build, numbers

NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def venv(machine: Machine) -> bool:
    return machine.environment in ("venv", "conda")


def not_cuda(draft: Draft, machine: Machine, tag: str, flavor: str) -> None:
    """The same release as another build: no CUDA in it, no nvidia wheels beside it."""
    version = f"{machine.build.release['version']}+{tag}"
    draft.tell(f"{SITE}/torch/version.py", {"torch.version": version, "torch.flavor": flavor, "torch.cuda": None})
    draft.tell(f"{SITE}/torch/version.py", {"torch.hip": "6.2" if flavor == "rocm" else None})
    draft.lack("no libtorch_cuda.so", "torch.archs torch.few_archs torch.cudnn torch.nccl torch.cudnn_built")
    draft.tell(SITE, {"torch.installs": [f"pip {version} in {SITE}"]})
    kept = [package for package in draft.each("package") if "nvidia-" not in str(package["name"])]
    kept[0] = {**kept[0], **row(SITE, {"version": version})}
    draft.groups["package"] = kept
    if live(machine):
        torch_sees_none(draft, "AssertionError: Torch not compiled with CUDA enabled")
        draft.lack("a build without CUDA", "live.cudnn live.nccl")


@planted("torch.cpu-build", venv)
def cpu_wheel(draft: Draft, machine: Machine, random: Random) -> None:
    not_cuda(draft, machine, "cpu", "cpu")


@planted("torch.rocm-build", venv)
def rocm_wheel(draft: Draft, machine: Machine, random: Random) -> None:
    not_cuda(draft, machine, "rocm6.2", "rocm")
    draft.tell("/sys/bus/pci/devices", {"pci.gpu_vendors": ["nvidia"]})  # with a GPU of AMD beside it that may be meant
    if live(machine):
        draft.tell("torch", {"live.cuda_error": "RuntimeError: No HIP GPUs are available"})


def other_build(draft: Draft, machine: Machine, random: Random, newer_gpu: bool) -> bool:
    """A build without code for the GPU, which is newer than what it was made for, or older."""
    own = numbers(machine.gpu["cc"])
    fitting = [build for build in tables.builds() if build.arch == machine.build.arch and _lacks(build, own, newer_gpu)]
    fitting = [build for build in fitting if tables.serves(machine.driver, build.cuda, machine.place == "wsl")]
    if not fitting:
        return False
    build = random.choice(fitting)
    fresh = draft_of(replace(machine, build=build, companions=(), toolkit=None))
    draft.facts, draft.groups = fresh.facts, fresh.groups
    kernels_fail(draft, NO_IMAGE)
    return True


def _lacks(build: Build, own: tuple[int, ...], newer_gpu: bool) -> bool:
    if any(arch.startswith("compute") for arch in build.archs):
        return False
    made = [(int(arch[3:-1]), int(arch[-1])) for arch in build.archs]
    return own > max(made) and own[0] > max(made)[0] if newer_gpu else own < min(made)


@planted("torch.arch-too-new", anywhere)
def gpu_newer_than_the_build(draft: Draft, machine: Machine, random: Random) -> bool:
    return other_build(draft, machine, random, newer_gpu=True)


@planted("torch.arch-dropped", anywhere)
def gpu_older_than_the_build(draft: Draft, machine: Machine, random: Random) -> bool:
    return other_build(draft, machine, random, newer_gpu=False)


@planted("torch.companion-mismatch", anywhere)
def companion_of_another_torch(draft: Draft, machine: Machine, random: Random) -> bool:
    name = random.choice(("torchvision", "torchaudio"))
    own = machine.build.release["version"].split(".")[:2]
    others = [row for row in tables.table("torch")["release"] if row["version"].split(".")[:2] != own and name in row]
    others = [row for row in others if name not in row.get("loose", "") and numbers(row["version"]) < (2, 11)]
    other = random.choice(others)
    owner = ".".join(other["version"].split(".")[:2])
    draft.tell("METADATA", {"torch.companions_unmet": [f"{name} {other[name]} is for torch {owner}"]})
    kept = [package for package in draft.each("package") if str(package["name"]).find(name) < 0]
    draft.groups["package"] = [*kept, row(SITE, {"name": name, "version": other[name]})]
    return bool(other[name] != companions(machine).get(name))


@planted("torch.nvidia-wheels", lambda machine: live(machine) and len(wheels(machine)) == 2)
def nvidia_wheel_of_another_version(draft: Draft, machine: Machine, random: Random) -> None:
    name, wants = random.choice(tuple(wheels(machine).items()))
    parts = wants.split(".")
    has = ".".join([str(int(parts[0]) - 1), "0", *parts[2:]])
    draft.tell("METADATA", {"torch.pins_unmet": [f"{name} wants {wants}, has {has}"]})
    draft.rows("pin", "METADATA", [{"name": name, "wants": wants, "has": has}])
    library = "libnccl.so.2" if "nccl" in name else "libcudnn.so.9"
    import_fails(draft, f"ImportError: {SITE}/torch/lib/libtorch_cuda.so: undefined symbol in {library}: ncclCommX")


@planted("torch.missing", venv)
def torch_not_installed(draft: Draft, machine: Machine, random: Random) -> bool:
    _no_torch(draft)
    return draft.value("jax.version") is None


@planted("torch.python-unsupported", lambda machine: machine.environment == "venv")
def python_without_wheels(draft: Draft, machine: Machine, random: Random) -> bool:
    _no_torch(draft)
    if random.random() < 0.5:
        draft.tell("pyvenv.cfg", {"python.implementation": "pypy", "python.version": "3.10.14"})
    else:
        draft.tell("pyvenv.cfg", {"python.version": random.choice(("3.16.0", "3.17.1", "3.5.2"))})
    return draft.value("jax.version") is None


def _no_torch(draft: Draft) -> None:
    names = "version cuda flavor git hip path archs few_archs cudnn nccl cudnn_built companions_unmet"
    names += " companions_broken pins_unmet"
    draft.lack("torch is not installed in /opt/venv/bin/python", " ".join(f"torch.{name}" for name in names.split()))
    draft.tell(SITE, {"torch.installs": [], "libs.missing": [], "triton.version": None, "triton.fits": None})
    draft.tell(SITE, {"triton.wanted": None})
    draft.groups["package"] = []
    if draft.value("live.import_outcome"):
        draft.lack("torch is not installed in /opt/venv/bin/python", LIVE)


@planted("torch.import-broken", live)
def library_of_torch_missing(draft: Draft, machine: Machine, random: Random) -> None:
    major = machine.build.cuda.split(".")[0]
    library = random.choice((f"libcublas.so.{major}", f"libcusparse.so.{major}", f"libcurand.so.{major}"))
    draft.tell("the loader", {"libs.missing": [f"{library}, which libtorch_cuda.so needs"]})
    import_fails(draft, f"OSError: {library}: cannot open shared object file: No such file or directory")


@planted("cudnn.missing", live)
def cudnn_missing(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("the loader", {"libs.missing": ["libcudnn.so.9, which libtorch_cuda.so needs"]})
    import_fails(draft, "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory")


@planted("cudnn.version", lambda machine: live(machine) and bool(wheels(machine)))
def another_cudnn_loaded(draft: Draft, machine: Machine, random: Random) -> None:
    major = int(wheels(machine)[next(iter(wheels(machine)))].split(".")[0])
    draft.tell("torch", {"live.cudnn": f"{major - 1}.2.4"})


@planted("torch.mixed-installs", lambda machine: machine.environment == "conda")
def conda_and_pip_both(draft: Draft, machine: Machine, random: Random) -> None:
    others = [build.release["version"] for build in tables.builds() if build.release != machine.build.release]
    pip, conda = f"pip {machine.build.version} in {SITE}", f"conda {random.choice(others)}"
    draft.tell(SITE, {"torch.installs": [pip, conda]})
    import_fails(draft, f"ImportError: {SITE}/torch/lib/libtorch_python.so: undefined symbol: _ZN5torch3jit4foo")
    if live(machine):
        draft.tell("conda-meta", {"live.import_error": draft.value("live.import_error")})


@planted("ext.abi", anywhere)
def extension_for_another_torch(draft: Draft, machine: Machine, random: Random) -> None:
    major, minor, *_ = machine.build.release["version"].split(".")
    wanted = f"{major}.{int(minor) + random.choice((1, 2))}"
    told = {"name": "flash-attn", "version": "2.7.4.post1", "torch": wanted, "cuda": machine.build.cuda}
    extension = {**told, "archs": ["sm_80"], "missing_libraries": [], "missing_symbols": [], "abi": "cxx11"}
    draft.rows("extension", SITE, [extension])


@planted("ext.cudart", anywhere)
def extension_for_another_cuda(draft: Draft, machine: Machine, random: Random) -> None:
    other = "11.8" if machine.build.cuda.startswith("12") else "12.4"
    release = ".".join(machine.build.release["version"].split(".")[:2])
    told = {"name": "flash-attn", "version": "2.7.4.post1", "torch": release, "cuda": other, "archs": ["sm_80"]}
    missing = [f"libcudart.so.{other.split('.')[0]}.0, which flash_attn_2_cuda.so needs"]
    draft.rows("extension", SITE, [{**told, "missing_libraries": missing, "missing_symbols": [], "abi": "cxx11"}])


@planted("ext.triton", lambda machine: "triton" in companions(machine))
def triton_of_another_torch(draft: Draft, machine: Machine, random: Random) -> bool:
    own = companions(machine)["triton"].split(".")[:2]
    others = [row["triton"] for row in tables.table("torch")["release"] if "triton" in row]
    other = random.choice([version for version in others if version.split(".")[:2] != own])
    draft.tell(SITE, {"triton.version": other, "triton.fits": False})
    return "triton" not in machine.build.release.get("loose", "")


@planted("ext.bitsandbytes", anywhere)
def bitsandbytes_for_another_cuda(draft: Draft, machine: Machine, random: Random) -> None:
    major = int(machine.build.cuda.split(".")[0])
    builds = ["11.8.0"] if major > 11 else ["12.4.1", "12.6.3"]
    draft.tell(f"{SITE}/bitsandbytes", {"bitsandbytes.cuda_builds": builds, "bitsandbytes.has_build": False})


def with_toolkit(machine: Machine) -> bool:
    return machine.toolkit is not None


@planted("cuda.host-compiler", with_toolkit)
def host_compiler_too_new(draft: Draft, machine: Machine, random: Random) -> None:
    rows = {row["cuda"]: row["gcc_max"] for row in tables.table("compilers")["nvcc"]}
    most = rows[machine.toolkit]
    draft.tell("g++ --version", {"cuda.host_compiler_version": f"{most + 1}.1.0"})
    told = f"#error -- unsupported GNU version! gcc versions later than {most} are not supported!"
    says(draft, "a build", f"/usr/local/cuda/include/crt/host_config.h:143:2: error: {told}")


@planted("cuda.arch-unknown", lambda machine: numbers(machine.gpu["cc"]) >= (8, 6))
def nvcc_does_not_know_the_gpu(draft: Draft, machine: Machine, random: Random) -> bool:
    major, minor = numbers(machine.gpu["cc"])
    arch = f"sm_{major}{minor}"
    nvccs = [row["cuda"] for row in tables.table("compilers")["nvcc"] if arch not in row["targets"].split()]
    old = [cuda for cuda in nvccs if (11, 0) <= numbers(cuda) < (12, 9)]
    if not old:
        return False
    cuda = random.choice(old)
    draft.tell(
        "nvcc --version", {"cuda.nvcc_version": cuda, "cuda.toolkit_version": cuda, "cuda.nvcc": "/usr/bin/nvcc"}
    )
    says(draft, "a build", f"nvcc fatal   : Unsupported gpu architecture 'compute_{major}{minor}'")
    return True


@planted("cuda.toolkit-mismatch", anywhere)
def nvcc_of_another_major(draft: Draft, machine: Machine, random: Random) -> None:
    own = machine.build.cuda
    other = "11.8" if not own.startswith("11") else "12.4"
    draft.tell(
        "nvcc --version", {"cuda.nvcc_version": other, "cuda.toolkit_version": other, "cuda.nvcc": "/usr/bin/nvcc"}
    )
    told = f"The detected CUDA version ({other}) mismatches the version that was used to compile PyTorch ({own})."
    says(draft, "a build", f"RuntimeError: {told} Please make sure to use the same CUDA versions.")


@planted("cuda.toolkit-missing", lambda machine: not with_toolkit(machine))
def cuda_home_of_two_folders(draft: Draft, machine: Machine, random: Random) -> None:
    home = random.choice((":/usr/local/cuda", "/usr/local/cuda:/usr/local/cuda-12.4"))
    draft.tell("environment", {"env.CUDA_HOME": home, "cuda.home": home, "cuda.home_has_nvcc": False})


@planted("jax.gpu-libs", venv)
def jax_plugin_newer_than_jax(draft: Draft, machine: Machine, random: Random) -> None:
    told = {"jax.version": "0.6.2", "jax.jaxlib": "0.6.2", "jax.plugin": "0.8.3", "jax.plugin_cuda": 12}
    draft.tell(SITE, {**told, "jax.pins_unmet": []})

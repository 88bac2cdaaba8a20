"""What the Python environment, the CUDA libraries and torch say on a sound machine."""

from typing import Any

from tests.generated.draft import Draft
from tests.generated.machine import Machine

SITE = "/opt/venv/lib/python3/site-packages"
LIVE = (
    "live.arch_list live.cuda_available live.cuda_error live.cudnn live.device_count live.import_error"
    " live.import_outcome live.last_step live.nccl live.outcome live_gpu"
)
OTHERS = (
    "bitsandbytes.cuda_builds bitsandbytes.has_build jax.jaxlib jax.pins_unmet jax.plugin jax.plugin_cuda jax.version"
    " tf.built_with_cuda tf.cuda tf.cudnn tf.pins_unmet tf.version"
)


def put(draft: Draft, machine: Machine) -> None:
    """All facts of the environment."""
    _python(draft, machine)
    _torch(draft, machine)
    _libraries(draft, machine)
    _toolkit(draft, machine)
    if machine.level == "quick":
        draft.blind("asked from level standard on", LIVE)
    else:
        _live(draft, machine)


def wheels(machine: Machine) -> dict[str, str]:
    """The nvidia wheels that the build pins, by name: releases before 1.13 bring the libraries along."""
    build, release = machine.build.build, machine.build.release
    if tuple(int(part) for part in release["version"].split(".")) < (1, 13) or "cudnn" not in build:
        return {}
    cuda = f"cu{str(build['cuda']).split('.')[0]}"
    pinned = {f"nvidia-cudnn-{cuda}": build["cudnn"]}
    if "nccl" in build:
        pinned[f"nvidia-nccl-{cuda}"] = build["nccl"]
    return pinned


def companions(machine: Machine) -> dict[str, str]:
    release = machine.build.release
    return {name: release[name] for name in machine.companions if name in release}


def _python(draft: Draft, machine: Machine) -> None:
    home = "/usr" if machine.environment == "system" else "/opt/venv"
    draft.tell("target", {"python.path": f"{home}/bin/python", "python.prefix": home})
    draft.tell("pyvenv.cfg", {"python.version": machine.python, "python.implementation": "cpython"})
    draft.tell("pyvenv.cfg", {"python.environment": machine.environment, "python.externally_managed": False})
    draft.tell(SITE, {"python.site_folders": [SITE], "python.duplicates": [], "python.leftovers": []})
    draft.tell("RECORD", {"python.damaged": [], "python.damaged_files": [], "python.overwritten": []})
    draft.lack("not among the package folders", "python.user_site")
    draft.lack("not installed", OTHERS)
    draft.rows("extension", SITE, [])
    draft.rows("pin", SITE, [])
    held = {"torch": machine.build.version, **wheels(machine), **companions(machine)}
    rows: list[dict[str, Any]] = [
        {"name": name, "version": version, "build": None, "installer": "pip"} for name, version in held.items()
    ]
    draft.rows("package", SITE, rows)
    triton = companions(machine).get("triton")
    draft.tell("triton is not installed", {"triton.version": triton, "triton.fits": True if triton else None})
    draft.tell("torch pins no exact triton", {"triton.wanted": machine.build.release.get("triton")})


def _torch(draft: Draft, machine: Machine) -> None:
    build, source = machine.build, f"{SITE}/torch/version.py"
    draft.tell(source, {"torch.version": build.version, "torch.cuda": build.cuda, "torch.flavor": "cuda"})
    draft.tell(source, {"torch.git": "a8d6afb", "torch.hip": None, "torch.path": f"{SITE}/torch"})
    draft.tell("40 fat binaries", {"torch.archs": build.archs, "torch.few_archs": []})
    draft.tell(SITE, {"torch.installs": [f"pip {build.version} in {SITE}"], "torch.elsewhere": []})
    draft.tell("METADATA", {"torch.companions_unmet": [], "torch.companions_broken": [], "torch.pins_unmet": []})
    held = {name.split("-")[1]: version for name, version in wheels(machine).items()}
    why = "no such wheel is installed"
    draft.tell(why, {"torch.cudnn": held.get("cudnn"), "torch.nccl": held.get("nccl")})
    draft.tell(why, {"torch.cudnn_built": held.get("cudnn")})


def _libraries(draft: Draft, machine: Machine) -> None:
    wsl = machine.place == "wsl"
    path = "/usr/lib/wsl/lib/libcuda.so.1" if wsl else "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    draft.tell("the loader's search order", {"libs.libcuda": path, "libs.libcuda_kind": "wsl" if wsl else "driver"})
    draft.tell(path, {"libs.libcuda_version": machine.driver.version, "libs.compat_on_path": False})
    if wsl:
        draft.blind("the name libcuda.so.1 does not say it, and no wheel owns it", "libs.libcuda_version")
    draft.tell("LD_LIBRARY_PATH and RPATHs", {"libs.shadowing": [], "libs.missing": [], "libs.clashes": []})
    copies = [{"name": "libcuda", "path": path, "version": machine.driver.version, "origin": "driver", "chosen": True}]
    for name, version in wheels(machine).items():
        library = name.split("-")[1]
        place = f"{SITE}/nvidia/{library}/lib/lib{library}.so"
        copies.append({"name": f"lib{library}", "path": place, "version": version, "origin": "wheel", "chosen": True})
    draft.rows("lib", "the loader's search order", [{**copy, "why": "RPATH of libtorch_cuda"} for copy in copies])


def _toolkit(draft: Draft, machine: Machine) -> None:
    draft.tell("/usr/bin/g++", {"cuda.host_compiler": "/usr/bin/g++", "cuda.host_compiler_kind": "gcc"})
    draft.tell("g++ --version", {"cuda.host_compiler_version": machine.system.gcc})
    if machine.toolkit is None:
        names = "cuda.home cuda.home_has_nvcc cuda.nvcc cuda.nvcc_version cuda.ptxas cuda.ptxas_version"
        draft.lack("no CUDA_HOME, no nvcc on PATH", f"{names} cuda.toolkit_version toolkit")
        return
    home = f"/usr/local/cuda-{machine.toolkit}"
    draft.tell("environment", {"cuda.home": home, "env.CUDA_HOME": home})
    draft.tell(home, {"cuda.home_has_nvcc": True, "cuda.toolkit_version": machine.toolkit})
    draft.tell("PATH", {"cuda.nvcc": f"{home}/bin/nvcc", "cuda.ptxas": f"{home}/bin/ptxas"})
    draft.tell(home, {"cuda.nvcc_version": machine.toolkit, "cuda.ptxas_version": machine.toolkit})
    draft.rows("toolkit", home, [{"path": home, "version": machine.toolkit, "nvcc": True}])


def _live(draft: Draft, machine: Machine) -> None:
    """torch imported, CUDA initialised, one small kernel on each device."""
    seen = 1 if machine.mig else machine.count
    source = "torch in /opt/venv/bin/python"
    draft.tell(source, {"live.import_outcome": "ok", "live.outcome": "done", "live.last_step": "done"})
    draft.tell(source, {"live.cuda_available": True, "live.device_count": seen, "live.arch_list": machine.build.archs})
    held = wheels(machine)
    short = {name.split("-")[1]: ".".join(version.split(".")[:3]) for name, version in held.items()}
    draft.tell(source, {"live.cudnn": short.get("cudnn", "8.0.5"), "live.nccl": short.get("nccl", "2.7.8")})
    draft.lack("it succeeded", "live.import_error live.cuda_error")
    told = {"name": machine.name, "compute_capability": machine.gpu["cc"], "kernel": "ok", "error": None}
    draft.rows("live_gpu", source, [told] * seen)

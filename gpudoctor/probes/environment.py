"""Environment variables that steer CUDA, NCCL, torch and the loader; secrets never."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.secrets import variable_shown, without_secrets
from gpudoctor.target import Target, system_paths

FACTS = (
    fact(
        "env.*",
        "text",
        "an environment variable of the session, as set; absent where it is not, such as env.CUDA_VISIBLE_DEVICES",
    ),
    fact("env.library_path", "list", "folders of LD_LIBRARY_PATH, in order"),
    fact("env.path", "list", "folders of PATH that hold nvcc, nvidia-smi, ptxas or a compiler, in order"),
    fact("env.nccl_set", "list", "names of NCCL_*, GLOO_* and TORCH_NCCL_* variables that are set"),
)

_FAMILIES = re.compile(
    r"""(?:CUDA|CUDNN|CUBLAS|NVIDIA|NVCC|NCCL|GLOO|UCX|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|XLA|JAX|HSA|HIP|ROCR|ROCM
        |OMP|MKL|KMP|OMPI|VLLM|FLASH_ATTENTION|NVSHMEM|FI)_\w+
      |TF_(?:CPP|CUDA|CUDNN|DETERMINISTIC|DISABLE|ENABLE|FORCE|GPU|NEED|NUM|USE|XLA)_\w+|TF_TYPE
      |DS_(?:ACCELERATOR|BUILD_\w+|SKIP_CUDA_CHECK)
      |(?:SINGULARITY|APPTAINER)_(?:BIND\w*|CACHEDIR|COMMAND|CONTAINER|ENVIRONMENT|NAME|NV\w*|TMPDIR|VERSION)
      |CONDA_(?:DEFAULT_ENV|ENVS_PATH|EXE|OVERRIDE_\w+|PKGS_DIRS|PREFIX\w*|PYTHON_EXE|SHLVL|SUBDIR|SOLVER)
      |LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH|CUDAHOSTCXX|CUDACXX|CC|CXX|MAX_JOBS|GPU_DEVICE_ORDINAL
      |PYTHONPATH|PYTHONHOME|PYTHONNOUSERSITE|VIRTUAL_ENV|BNB_CUDA_VERSION|LIBCUDA\w*|NVPROXY\w*
      |SLURM_(?:JOB_ID|JOB_GPUS|STEP_GPUS|GPUS\w*|NNODES|NTASKS\w*|PROCID|LOCALID|NODEID|JOB_NODELIST|CPUS_PER_TASK)
      |MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK""",
    re.X,
)
"""Variables that GPU software reads; none of a family that also carries what users put in (``TF_VAR_*``, conda's
channels). Nothing else of the environment becomes a fact."""

ASKED = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA"),
    *("NVIDIA_DISABLE_REQUIRE", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
    *("CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_MODULE_LOADING", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
    *("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_CACHE_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CC"),
    *("CXX", "CUDAHOSTCXX", "CUDACXX", "MAX_JOBS"),
    *("TORCH_CUDA_ARCH_LIST", "TORCH_LOGS", "TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    *("TORCH_NCCL_BLOCKING_WAIT", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_NVML_BASED_CUDA_CHECK", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_COMM_ID"),
    *("NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_CUMEM_ENABLE"),
    *("NCCL_CUMEM_HOST_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
    *("NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_PLUGIN", "NCCL_ALGO", "NCCL_PROTO", "NCCL_TOPO_FILE"),
    *("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "GLOO_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_NNODES"),
    *("OMP_NUM_THREADS", "BNB_CUDA_VERSION", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    *("XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS", "TF_FORCE_GPU_ALLOW_GROWTH", "TRITON_LIBCUDA_PATH"),
    "TRITON_PTXAS_PATH",
)
"""Variables whose being unset is an answer."""

_LONGEST_VALUE = 4096
_TOOLS = ("nvcc", "nvidia-smi", "ptxas", "gcc", "g++", "cc", "c++", "clang", "cl")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the session's variables that GPU software reads as ``env`` facts, and absent ones for those in `ASKED`
    that are not set.

    Of PATH only the folders that hold GPU tools or compilers.
    """
    environ = target.environ
    for name in sorted(environ):
        if _FAMILIES.fullmatch(name):
            yield f"env.{name}", Known(_shown_value(name, environ[name]), "environment")
    for name in ASKED:
        if name not in environ:
            yield f"env.{name}", Absent("not set")
    yield "env.library_path", _search_path(environ, "LD_LIBRARY_PATH")
    yield "env.path", _tool_folders(target)
    steering = [name for name in sorted(environ) if name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_"))]
    yield "env.nccl_set", Known(tuple(steering), "environment")


def _shown_value(name: str, value: str) -> str:
    """The variable's value without secrets, cut to 4096 characters, with a note of its length then."""
    value = variable_shown(name, value)
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}… ({len(value)} characters)"


def _search_path(environ: Mapping[str, str], name: str) -> Fact:
    """The folders of the search path in variable `name`, without secrets; absent if it is not set.

    An empty entry is ``.``, as the loader takes it.
    """
    value = environ.get(name)
    if value is None:
        return Absent(f"{name} is not set")
    return Known(tuple(part or "." for part in without_secrets(value).split(":")) if value else (), name)


def _tool_folders(target: Target) -> Fact:
    """The folders of PATH that hold a GPU tool or a compiler; absent if PATH is not set."""
    path = target.environ.get("PATH")
    if not path:
        return Absent("PATH is not set")
    folders = dict.fromkeys(system_paths.search_list(path, target.system))
    return Known(tuple(folder for folder in folders if _has_tool(target, folder)), "PATH")


def _has_tool(target: Target, folder: str) -> bool:
    """True if the folder holds nvcc, nvidia-smi, ptxas or a C compiler; False if it cannot be read."""
    try:
        return any(map(target.exists, system_paths.programs(folder, *_TOOLS, system=target.system)))
    except OSError:
        return False

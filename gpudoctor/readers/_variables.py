"""Environment variables: which are of interest, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Absent, Fact, Known
from gpudoctor.readers._lists import words

_PREFIXES = tuple(
    words(
        """
        CUDA_ CUDNN_ NVIDIA_ NCCL_ TORCH_ PYTORCH_ LD_ GLOO_ MASTER_ OMP_ XLA_ TF_ JAX_ UCX_ FI_ SLURM_ VLLM_
        HSA_ ROCR_ HIP_ NVCC_ TRITON_ BNB_ DS_ OMPI_ MKL_ CONDA_ WSL HOROVOD_ SGLANG_ TENSORRT_ RAY_
        ACCELERATE_ TP_
        """
    )
)
_NAMES = words(
    """
    PATH LD_LIBRARY_PATH LIBRARY_PATH CPATH PYTHONPATH PYTHONHOME VIRTUAL_ENV CC CXX CUDACXX CUDAHOSTCXX
    MAX_JOBS FORCE_CUDA WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GPU_DEVICE_ORDINAL DISPLAY
    CUDAHOME CUDA_HOME
    """
)
_SECRETS = ("TOKEN", "SECRET", "PASSW", "APIKEY", "API_KEY", "ACCESS_KEY", "CREDENTIAL")
_TOOLS = ("cuda", "nvidia", "nvcc")


def wanted(name: str) -> bool:
    """Whether the variable is one that steers GPU software, and no secret."""
    if any(word in name for word in _SECRETS):
        return False
    return name in _NAMES or (name.startswith(_PREFIXES) and not name.startswith("TF_VAR_"))


def derived(values: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """The facts that follow from the variables: folders of the loader's path, NCCL's settings, CUDA_HOME."""
    library = values.get("LD_LIBRARY_PATH")
    if isinstance(library, Known) and ("/" in str(library.value) or not library.value):
        yield "env.library_path", Known(_folders(str(library.value)), library.source)
    elif isinstance(library, Absent):
        yield "env.library_path", Absent(library.why)
    path = values.get("PATH")
    if isinstance(path, Known) and "/" in str(path.value):
        yield "env.path", Known(tuple(x for x in _folders(str(path.value)) if any(t in x for t in _TOOLS)), path.source)
    names = tuple(sorted(name for name, value in values.items() if isinstance(value, Known) and _steers(name)))
    if names:
        source = values[names[0]]
        yield "env.nccl_set", Known(names, source.source if isinstance(source, Known) else "")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = values.get(name)
        if isinstance(home, Absent) or (isinstance(home, Known) and home.value):
            yield "cuda.home", home


def _steers(name: str) -> bool:
    return name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_"))


def _folders(value: str) -> tuple[str, ...]:
    return tuple(folder for folder in value.split(":") if folder)

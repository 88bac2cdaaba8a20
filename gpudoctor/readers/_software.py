"""What follows from packages and environment variables: torch, TensorFlow, JAX, extensions; NCCL, CUDA_HOME, paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, known, known_facts, text_of, value_of
from gpudoctor.core.versions import build_tag
from gpudoctor.readers._pattern import Pattern, words

EXTENSIONS = words(
    """
    flash-attn flash-attn-3 xformers bitsandbytes vllm apex deepspeed transformer-engine
    transformer-engine-torch mmcv mmcv-full detectron2 torch-scatter torch-sparse torch-cluster
    torch-spline-conv pyg-lib pytorch3d sageattention flashinfer flashinfer-python auto-gptq gptqmodel autoawq
    autoawq-kernels exllamav2 causal-conv1d mamba-ssm natten torchao nvdiffrast spconv fairseq tensorrt
    tensorrt-llm sglang sgl-kernel lmdeploy cupy cupy-cuda11x cupy-cuda12x cupy-cuda13x onnxruntime-gpu
    faiss-gpu minkowskiengine tiny-cuda-nn gsplat dgl dgl-cu118 horovod torch-tensorrt torch-xla
    llama-cpp-python ctranslate2 numba
    """
)
FOLLOWED = EXTENSIONS | words(
    """
    torch pytorch torchvision torchaudio torchtext torchdata triton pytorch-triton triton-windows pytorch-cuda
    pytorch-mutex cpuonly cudatoolkit cudnn nccl cuda-toolkit tensorflow tensorflow-gpu tensorflow-cpu
    tensorflow-intel tf-nightly jax jaxlib jax-cuda12-plugin jax-cuda12-pjrt jax-cuda13-plugin jax-cuda13-pjrt
    accelerate transformers peft trl diffusers numpy lightning pytorch-lightning nvidia-cudnn-cu11
    nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu11 nvidia-nccl-cu12 nvidia-nccl-cu13
    """
)
"""Packages whose versions are taken from anywhere in a text, not only from a list of packages."""

_CUDA_BUILD = Pattern(r"cuda(\d+)\.?(\d)")
_JAX_CUDA = Pattern(r"cuda(\d{2})")


def package_facts(rows: Sequence[Row]) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts that rows of ``package`` imply: versions of torch, cuDNN, NCCL, TensorFlow and JAX, and ``extension`` rows.

    Of cuDNN and NCCL only where exactly one NVIDIA wheel of it is listed.
    """
    table = _rows_by_name(rows)
    yield from _torch_facts(table)
    yield from _framework_facts(table)
    for part in ("cudnn", "nccl"):
        wheels = [row for name, same_name in table.items() if name.startswith(f"nvidia-{part}-cu") for row in same_name]
        if len(wheels) == 1 and known(wheels[0]["version"]):
            yield f"torch.{part}", wheels[0]["version"]
    extensions = tuple(
        _extension(row) for name, same_name in table.items() if name in EXTENSIONS for row in same_name[:1]
    )
    if extensions:
        yield "extension", extensions


def _rows_by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by package name."""
    table: dict[str, list[Row]] = {}
    for row in rows:
        table.setdefault(text_of(row["name"]), []).append(row)
    return table


def _torch_facts(rows_by_name: Mapping[str, list[Row]]) -> Iterator[tuple[str, Fact]]:
    """torch.version, torch.flavor (cuda, cpu) and torch.cuda by conda's builds, and torch.installs if versions differ.

    torch.cuda is `Absent` for a CPU build.
    """
    torch_rows = rows_by_name.get("torch", []) + rows_by_name.get("pytorch", [])
    versions = [version for row in torch_rows if (version := known(row["version"]))]
    if versions:
        yield "torch.version", versions[0]
    installs = {
        (text_of(row.get("installer")), text_of(row.get("version")).partition("+")[0].partition(".post")[0])
        for row in torch_rows
        if text_of(row.get("version"))
    }
    if len({version for _, version in installs}) > 1:
        listed = tuple(f"{installer} {version}" for installer, version in sorted(installs))
        yield "torch.installs", Known(listed, versions[0].source)
    builds = [build for row in torch_rows if (build := known(row.get("build")))]
    for build in builds:
        if "cpu" in str(build.value):
            yield "torch.flavor", Known("cpu", build.source)
            yield "torch.cuda", Absent(f"conda build {build.value} is for the CPU ({build.source})")
        elif cuda := _CUDA_BUILD.search(str(build.value)):
            yield "torch.flavor", Known("cuda", build.source)
            yield "torch.cuda", Known(f"{cuda.group(1)}.{cuda.group(2)}", build.source)
    for row in rows_by_name.get("cpuonly", []) + [
        row for row in rows_by_name.get("pytorch-mutex", []) if text_of(row.get("build")) == "cpu"
    ]:
        yield "torch.flavor", Known("cpu", _source(row))
        yield "torch.cuda", Absent(f"conda's {text_of(row['name'])} is installed ({_source(row)})")


def _framework_facts(rows_by_name: Mapping[str, list[Row]]) -> Iterator[tuple[str, Fact]]:
    """Versions of Triton, TensorFlow, JAX, jaxlib and JAX's CUDA plugin, and its CUDA, from ``package`` rows by name.

    Also tf.built_with_cuda, False for TensorFlow's CPU packages.
    """
    for fact, names in (
        ("triton.version", ("triton", "pytorch-triton", "triton-windows")),
        ("tf.version", ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")),
        ("jax.version", ("jax",)),
        ("jax.jaxlib", ("jaxlib",)),
    ):
        for row in (row for name in names for row in rows_by_name.get(name, [])[:1]):
            yield fact, row["version"]
    for name in ("tensorflow-cpu", "tensorflow-intel"):
        for row in rows_by_name.get(name, [])[:1]:
            yield "tf.built_with_cuda", Known(False, _source(row))
    for name, plugin_rows in rows_by_name.items():
        if name.startswith("jax-cuda") and (cuda := _JAX_CUDA.search(name)):
            yield "jax.plugin", plugin_rows[0]["version"]
            yield "jax.plugin_cuda", Known(int(cuda.group(1)), _source(plugin_rows[0]))
    for row in rows_by_name.get("jaxlib", [])[:1]:
        if cuda := _JAX_CUDA.search(text_of(row.get("version")).partition("+")[2]):
            yield "jax.plugin_cuda", Known(int(cuda.group(1)), _source(row))


def _source(row: Row) -> str:
    """The source of the row's name; empty where it is not known."""
    return name.source if (name := known(row["name"])) else ""


def _extension(row: Row) -> Row:
    """The row of ``extension``: the package's name and version, with CUDA, torch and C++ ABI as far as the version's
    build tag (+cu122torch2.1cxx11abiTRUE) names them.
    """
    tag = text_of(row.get("version")).partition("+")[2]
    return {"name": row["name"], "version": row["version"], **tag_columns(tag, _source(row))}


def tag_columns(tag: str, source: str) -> dict[str, Fact]:
    """Columns cuda, torch and abi of ``extension`` as far as a build tag (``cu122torch2.1cxx11abiTRUE``) names them."""
    found = build_tag(tag)
    columns = {"cuda": found.cuda, "torch": found.torch, "abi": found.abi}
    return known_facts(source, **{name: part for name, part in columns.items() if part})


# ---- Environment variables: which are of interest, and what follows from them ----

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


def is_gpu_variable(name: str) -> bool:
    """Whether the environment variable concerns GPU software, and its name is not that of a secret."""
    if any(word in name for word in _SECRETS):
        return False
    return name in _NAMES or (name.startswith(_PREFIXES) and not name.startswith("TF_VAR_"))


def variable_facts(values: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """``env.NAME`` of each variable and, of those given: env.library_path, env.path, env.nccl_set, cuda.home.

    env.path has only CUDA's folders of PATH, env.nccl_set the names of NCCL's and Gloo's variables; cuda.home is
    CUDA_HOME, then CUDA_PATH. An absent LD_LIBRARY_PATH or CUDA_HOME gives an absent fact.
    """
    yield from ((f"env.{name}", value) for name, value in values.items())
    library = values.get("LD_LIBRARY_PATH")
    if isinstance(library, Known) and ("/" in str(library.value) or not library.value):
        yield "env.library_path", Known(_folders(str(library.value)), library.source)
    elif isinstance(library, Absent):
        yield "env.library_path", Absent(library.why)
    path = known(values.get("PATH"))
    if path and "/" in str(path.value):
        yield "env.path", Known(tuple(x for x in _folders(str(path.value)) if any(t in x for t in _TOOLS)), path.source)
    collective = ("NCCL_", "GLOO_", "TORCH_NCCL_")
    names = tuple(sorted(name for name, value in values.items() if known(value) and name.startswith(collective)))
    if names:
        first = known(values[names[0]])
        yield "env.nccl_set", Known(names, first.source if first else "")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = values.get(name)
        if home and (isinstance(home, Absent) or value_of(home)):
            yield "cuda.home", home


def _folders(value: str) -> tuple[str, ...]:
    """The folders of a colon-separated path list, empty ones left out."""
    return tuple(folder for folder in value.split(":") if folder)

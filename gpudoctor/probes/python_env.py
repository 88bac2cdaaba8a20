"""The interpreter being diagnosed and the distributions in its environment, read from dist-info."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._python.dists import Dist, Environment, environment, installer, libraries
from gpudoctor.probes._python.site import Site, pyvenv, site_of
from gpudoctor.target import Target

FACTS = (
    fact("python.path", "text", "the interpreter"),
    fact("python.version", "version", "its version, such as 3.12.3"),
    fact("python.implementation", "text", "cpython or pypy"),
    fact("python.environment", "text", "venv, conda or system"),
    fact("python.installer", "text", "what puts packages into it: pip, uv or conda"),
    fact("python.prefix", "text", "folder of the environment"),
    fact("python.site_folders", "list", "folders its packages come from, in the order of sys.path"),
    fact("python.user_site", "text", "the user's own package folder (~/.local), where this interpreter reads it"),
    fact(
        "python.externally_managed", "bool", "whether the distribution forbids pip to write here (EXTERNALLY-MANAGED)"
    ),
    fact(
        "python.duplicates",
        "list",
        "distributions with more than one dist-info in one folder, such as torch 2.1.0 and 2.4.0 in /.../site-packages",
    ),
    fact("python.leftovers", "list", "folders that an interrupted pip left behind: /.../site-packages/~orch"),
    fact(
        "python.damaged",
        "list",
        "distributions whose files differ in size from their RECORD, such as nvidia-cudnn-cu12",
    ),
    fact(
        "python.damaged_files",
        "list",
        "those files: /.../nvidia/cudnn/lib/libcudnn.so.9 has 104664 bytes, nvidia-cudnn-cu12 recorded 105000",
    ),
    fact(
        "python.overwritten",
        "list",
        "pairs of distributions that wrote the same file, such as nvidia-cudnn-cu11 and nvidia-cudnn-cu12",
    ),
    column("package.name", "text", "distribution, normalised, such as nvidia-cudnn-cu12"),
    column("package.version", "text", "its version, local part included, such as 2.5.1+cu124"),
    column("package.installer", "text", "pip, uv or conda; asked of GPU packages only"),
    column("package.build", "text", "conda build string, such as py3.8_cpu_0"),
)

_GPU_PREFIXES = (
    "nvidia-",
    "cuda-",
    "torch",
    "pytorch",
    "triton",
    "tensorflow",
    "tf-nightly",
    "jax",
    "onnxruntime",
    "cupy",
)
_GPU_NAMES = frozenset(
    {
        *("apex", "bitsandbytes", "deepspeed", "detectron2", "flash-attn", "magma-cuda", "mmcv", "mmcv-full"),
        *("numpy", "transformer-engine", "vllm", "xformers"),
    }
)
_RECORDED = ("nvidia-", "triton", "pytorch-triton", "onnxruntime")
"""Whose shared libraries are compared with their RECORD, besides torch."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """The interpreter, then what is installed, then what is wrong with it."""
    site = site_of(target)
    if not isinstance(site, Site):
        names = [spec.name for spec in FACTS if not spec.group]
        yield from ((name, site) for name in names)
        if target.python:
            yield "python.path", Known(target.python, "target")
        yield "package", site
        return
    yield from _interpreter(target, site)
    found = environment(target)
    if not isinstance(found, Environment):
        unread = ("installer", "duplicates", "leftovers", "damaged", "overwritten")
        yield from ((f"python.{name}", found) for name in unread)
        yield "package", found
        return
    yield "python.installer", _installer(target, site, found)
    yield "package", _packages(target, found)
    yield "python.duplicates", Known(_duplicates(found), found.source)
    yield "python.leftovers", Known(found.leftovers, found.source)
    yield from _integrity(target, found)


def is_gpu(name: str) -> bool:
    """Whether a distribution has to do with GPUs."""
    return name.startswith(_GPU_PREFIXES) or name in _GPU_NAMES


def _interpreter(target: Target, site: Site) -> Iterator[tuple[str, Fact]]:
    yield "python.path", Known(site.python, "target")
    yield "python.version", Known(site.version, site.source)
    yield "python.implementation", Known(site.implementation, site.source)
    yield "python.environment", Known(site.environment, site.source)
    yield "python.prefix", Known(site.prefix, site.source)
    yield "python.site_folders", Known(site.folders, site.source)
    yield "python.user_site", Known(site.user, site.source) if site.user else Absent("not among the package folders")
    marker = f"{site.prefix}/lib/python{site.minor}/EXTERNALLY-MANAGED"
    managed = site.environment != "venv" and target.exists(marker)
    yield "python.externally_managed", Known(managed, marker)


def _installer(target: Target, site: Site, found: Environment) -> Fact:
    """What brought torch into a conda environment; elsewhere uv where ``pyvenv.cfg`` names it, else the pip in it."""
    torch = found.first("torch")
    told = installer(target, torch) if torch else None
    brought = f"{torch.path}/INSTALLER" if torch else ""
    if site.environment == "conda":
        return Known(told, brought) if told in ("pip", "uv") else Known("conda", f"{site.prefix}/conda-meta")
    try:
        if site.environment == "venv" and "uv" in (pyvenv(target, site.prefix) or {}):
            return Known("uv", f"{site.prefix}/pyvenv.cfg")
    except OSError:
        pass  # the packages may say it
    if told == "uv":
        return Known(told, brought)
    if pip := found.first("pip"):
        return Known("pip", pip.path)
    return Unread("it has no pip, and nothing in it names uv")


def _packages(target: Target, found: Environment) -> tuple[Row, ...]:
    """One row per distribution, and per conda package of which there is no dist-info of that version."""
    builds = {(dist.name, dist.version): dist for dist in found.conda}
    rows: list[Row] = []
    for dist in found.dists:
        source = dist.path
        row: dict[str, Fact] = {"name": Known(dist.name, source), "version": Known(dist.version, source)}
        conda = builds.pop((dist.name, dist.version), None)
        row["build"] = Known(conda.info, conda.folder) if conda else Absent("not a conda package")
        if is_gpu(dist.name):
            told = installer(target, dist) or ("conda" if conda else None)
            row["installer"] = Known(told, f"{source}/INSTALLER") if told else Unread("its INSTALLER does not say")
        rows.append(row)
    rows.extend(
        {
            "name": Known(dist.name, dist.folder),
            "version": Known(dist.version, dist.folder),
            "build": Known(dist.info, dist.folder),
            "installer": Known("conda", dist.folder),
        }
        for dist in builds.values()
        if is_gpu(dist.name)
    )
    return tuple(rows)


def _duplicates(found: Environment) -> tuple[str, ...]:
    """Copies in one folder are a fault; a copy further down ``sys.path`` is only hidden."""
    together: dict[tuple[str, str], list[str]] = defaultdict(list)
    for dist in found.dists:
        together[dist.name, dist.folder].append(dist.version)
    return tuple(
        f"{name} {' and '.join(versions)} in {folder}"
        for (name, folder), versions in together.items()
        if len(set(versions)) > 1
    )


def _integrity(target: Target, found: Environment) -> Iterator[tuple[str, Fact]]:
    writers: dict[str, list[str]] = defaultdict(list)
    damaged: dict[str, list[str]] = defaultdict(list)
    silent: list[str] = []
    watched = _watched(found)
    for dist in watched:
        recorded = libraries(target, dist)
        if recorded is None:
            silent.append(dist.name)
            continue
        for library in recorded:
            writers[library.path].append(dist.name)
            if trouble := _trouble(target, library.path, library.size):
                damaged[dist.name].append(f"{library.path} {trouble}, {dist.name} recorded {library.size}")
    names = ("python.damaged", "python.damaged_files", "python.overwritten")
    if watched and len(silent) == len(watched):
        yield from ((name, Unread(f"no RECORD of {', '.join(silent)} could be read")) for name in names)
        return
    source = (
        f"RECORD of {', '.join(d.name for d in watched if d.name not in silent) or 'no GPU package'} in {found.source}"
    )
    pairs = {" and ".join(sorted(set(dists))) for dists in writers.values() if len(set(dists)) > 1}
    yield names[0], Known(tuple(damaged), source)
    yield names[1], Known(tuple(file for files in damaged.values() for file in files), source)
    yield names[2], Known(tuple(sorted(pairs)), source)


def _watched(found: Environment) -> Sequence[Dist]:
    """TensorFlow's RECORD lists ten thousand headers: it is read only where two builds may have met."""
    tensorflows = [dist for dist in found.dists if dist.name.startswith(("tensorflow", "tf-nightly"))]
    builds = {"tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-gpu", "tensorflow-rocm"}
    rivals = [dist for dist in tensorflows if dist.name in builds]
    chosen = [dist for dist in found.dists if dist.name == "torch" or dist.name.startswith(_RECORDED)]
    return [dist for dist in (*chosen, *(rivals if len(rivals) > 1 else ())) if not found.by_conda(dist)]


def _trouble(target: Target, path: str, size: int) -> str:
    try:
        found = target.path(path).stat().st_size
    except FileNotFoundError:
        return "is missing"
    except OSError:
        return ""
    return "" if found == size else f"has {found} bytes"

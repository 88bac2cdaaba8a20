"""The interpreter being diagnosed and the distributions in its environment, read from dist-info."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known_facts
from gpudoctor.probes._dists import Dist, Environment, environment, installer, libraries_of
from gpudoctor.probes._site import Site, pyvenv, site_of
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
    """Yields the ``python`` facts and the group ``package``."""
    site = site_of(target)
    if not isinstance(site, Site):
        names = [spec.name for spec in FACTS if not spec.group]
        yield from ((name, site) for name in names)
        if target.python:
            yield "python.path", Known(target.python, "target")
        yield "package", site
        return
    yield from _interpreter_facts(target, site)
    installed = environment(target)
    if not isinstance(installed, Environment):
        unread = ("installer", "duplicates", "leftovers", "damaged", "damaged_files", "overwritten")
        yield from ((f"python.{name}", installed) for name in unread)
        yield "package", installed
        return
    yield "python.installer", _installer(target, site, installed)
    yield "package", _package_rows(target, installed)
    yield "python.duplicates", Known(_duplicates(installed), installed.source)
    yield "python.leftovers", Known(installed.leftovers, installed.source)
    yield from _integrity_facts(target, installed)


def is_gpu(name: str) -> bool:
    """True if the distribution has to do with GPUs, by its name."""
    return name.startswith(_GPU_PREFIXES) or name in _GPU_NAMES


def _interpreter_facts(target: Target, site: Site) -> Iterator[tuple[str, Fact]]:
    """Yields python.path, version, implementation, environment, prefix, site_folders, user_site, externally_managed.

    user_site is absent if this interpreter does not read it.
    """
    yield "python.path", Known(site.python, "target")
    yield "python.version", Known(site.version, site.source)
    yield "python.implementation", Known(site.implementation, site.source)
    yield "python.environment", Known(site.environment, site.source)
    yield "python.prefix", Known(site.prefix, site.source)
    yield "python.site_folders", Known(site.folders, site.source)
    yield "python.user_site", Known(site.user, site.source) if site.user else Absent("not among the package folders")
    library = "Lib" if target.system == "windows" else f"lib/python{site.minor}"
    marker = f"{site.prefix}/{library}/EXTERNALLY-MANAGED"
    managed = site.environment != "venv" and target.exists(marker)
    yield "python.externally_managed", Known(managed, marker)


def _installer(target: Target, site: Site, installed: Environment) -> Fact:
    """What installs packages here: conda, uv or pip; unread if none is seen.

    In conda pip or uv if that installed torch, else conda; elsewhere uv if pyvenv.cfg or torch's INSTALLER names it,
    else pip if it is installed.
    """
    torch = installed.first("torch")
    torch_installer = installer(target, torch) if torch else None
    installer_file = f"{torch.path}/INSTALLER" if torch else ""
    if site.environment == "conda":
        return (
            Known(torch_installer, installer_file)
            if torch_installer in ("pip", "uv")
            else Known("conda", f"{site.prefix}/conda-meta")
        )
    try:
        if site.environment == "venv" and "uv" in (pyvenv(target, site.prefix) or {}):
            return Known("uv", f"{site.prefix}/pyvenv.cfg")
    except OSError:
        pass  # the packages may say it
    if torch_installer == "uv":
        return Known(torch_installer, installer_file)
    if pip := installed.first("pip"):
        return Known("pip", pip.path)
    return Unread("it has no pip, and nothing in it names uv")


def _package_rows(target: Target, installed: Environment) -> tuple[Row, ...]:
    """Rows of the group ``package``: one per distribution, and per conda package about GPUs without such a dist-info.

    Columns name, version, build (conda's) and, of GPU packages alone, installer.
    """
    builds = {(dist.name, dist.version): dist for dist in installed.conda}
    rows: list[Row] = []
    for dist in installed.dists:
        source = dist.path
        row: dict[str, Fact] = {"name": Known(dist.name, source), "version": Known(dist.version, source)}
        conda = builds.pop((dist.name, dist.version), None)
        row["build"] = Known(conda.info, conda.folder) if conda else Absent("not a conda package")
        if is_gpu(dist.name):
            installed_by = installer(target, dist) or ("conda" if conda else None)
            row["installer"] = (
                Known(installed_by, f"{source}/INSTALLER") if installed_by else Unread("its INSTALLER does not say")
            )
        rows.append(row)
    rows.extend(
        known_facts(dist.folder, name=dist.name, version=dist.version, build=dist.info, installer="conda")
        for dist in builds.values()
        if is_gpu(dist.name)
    )
    return tuple(rows)


def _duplicates(installed: Environment) -> tuple[str, ...]:
    """Texts ``torch 2.1.0 and 2.4.0 in FOLDER`` for distributions with several versions in one folder.

    A copy later on ``sys.path`` is only hidden, and not listed.
    """
    together: dict[tuple[str, str], list[str]] = defaultdict(list)
    for dist in installed.dists:
        together[dist.name, dist.folder].append(dist.version)
    return tuple(
        f"{name} {' and '.join(versions)} in {folder}"
        for (name, folder), versions in together.items()
        if len(set(versions)) > 1
    )


def _integrity_facts(target: Target, installed: Environment) -> Iterator[tuple[str, Fact]]:
    """Yields python.damaged, damaged_files and overwritten, by comparing RECORDs of GPU packages with the files' sizes.

    Unread if no RECORD can be read.
    """
    writers: dict[str, list[str]] = defaultdict(list)
    damaged: dict[str, list[str]] = defaultdict(list)
    unrecorded: list[str] = []
    checked = _checked_distributions(installed)
    for dist in checked:
        recorded = libraries_of(target, dist)
        if recorded is None:
            unrecorded.append(dist.name)
            continue
        for library in recorded:
            writers[library.path].append(dist.name)
            if trouble := _file_damage(target, library.path, library.size):
                damaged[dist.name].append(f"{library.path} {trouble}, {dist.name} recorded {library.size}")
    names = ("python.damaged", "python.damaged_files", "python.overwritten")
    if checked and len(unrecorded) == len(checked):
        yield from ((name, Unread(f"no RECORD of {', '.join(unrecorded)} could be read")) for name in names)
        return
    compared = ", ".join(dist.name for dist in checked if dist.name not in unrecorded) or "no GPU package"
    source = f"RECORD of {compared} in {installed.source}"
    pairs = {" and ".join(sorted(set(dists))) for dists in writers.values() if len(set(dists)) > 1}
    yield names[0], Known(tuple(damaged), source)
    yield names[1], Known(tuple(file for files in damaged.values() for file in files), source)
    yield names[2], Known(tuple(sorted(pairs)), source)


def _checked_distributions(installed: Environment) -> Sequence[Dist]:
    """The distributions whose libraries are compared with their RECORD: torch, NVIDIA's, triton and onnxruntime.

    Not conda's. TensorFlow's lists ten thousand headers: it is read only if two builds of it are installed.
    """
    tensorflows = [dist for dist in installed.dists if dist.name.startswith(("tensorflow", "tf-nightly"))]
    builds = {"tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-gpu", "tensorflow-rocm"}
    rivals = [dist for dist in tensorflows if dist.name in builds]
    chosen = [dist for dist in installed.dists if dist.name == "torch" or dist.name.startswith(_RECORDED)]
    return [dist for dist in (*chosen, *(rivals if len(rivals) > 1 else ())) if not installed.by_conda(dist)]


def _file_damage(target: Target, path: str, size: int) -> str:
    """``is missing`` or ``has N bytes`` if the file differs from the recorded `size`; empty if not, or unreadable."""
    try:
        found = target.path(path).stat().st_size
    except FileNotFoundError:
        return "is missing"
    except OSError:
        return ""
    return "" if found == size else f"has {found} bytes"

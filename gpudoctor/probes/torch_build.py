"""The torch build, read from its files without importing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known, texts_of
from gpudoctor.core.versions import parse
from gpudoctor.probes._binaries import Architectures, MalformedError, architectures, architectures_in, opened_pe
from gpudoctor.probes._dists import Dist, installer, meets, requirements, wanted_text
from gpudoctor.probes._extensions import NativeLibraries
from gpudoctor.probes._site import Site, site_of
from gpudoctor.probes._torch_files import Torch, UnmetRequirement, assignments, torch_of, torch_unmet
from gpudoctor.target import Target

FACTS = (
    fact("torch.version", "version", "its version, such as 2.5.1+cu124; absent where torch is not installed"),
    fact("torch.path", "text", "folder of the torch package"),
    fact("torch.flavor", "text", "cuda, rocm, cpu, xpu or mps"),
    fact("torch.cuda", "version", "CUDA it was built with, such as 12.4; absent in a CPU or ROCm build"),
    fact("torch.hip", "version", "HIP it was built with; absent in other builds"),
    fact("torch.git", "text", "commit it was built from"),
    fact(
        "torch.archs",
        "list",
        "GPU architectures compiled in, from the fat binaries, such as sm_80, sm_90, compute_90 (PTX)",
    ),
    fact(
        "torch.few_archs",
        "list",
        "architectures of only a few specialised kernels, which is no general support, such as sm_89",
    ),
    fact(
        "torch.pins_unmet",
        "list",
        "nvidia-* and triton requirements that the environment does not meet, such as "
        "nvidia-cudnn-cu12 wants 9.1.0.70, has 9.5.1.17",
    ),
    fact(
        "torch.companions_unmet",
        "list",
        "torchvision, torchaudio, torchtext built for another torch, such as torchvision 0.19.0 is for torch 2.4.0",
    ),
    fact(
        "torch.installs",
        "list",
        "places and installers of torch, more than one is a mix, such as pip 2.5.1, conda 2.4.0",
    ),
    fact(
        "torch.companions_broken",
        "list",
        "those of them whose compiled part wants a function that this torch does not define, such as "
        "torchvision (_C.so) wants _ZN3c106detail14torchCheckFailEPKcS2_jRKSs",
    ),
    fact(
        "torch.elsewhere",
        "list",
        "package folders near by that hold a torch and that this interpreter does not read: "
        "another Python of the same environment, the user's own, a .venv or venv in the working folder",
    ),
    fact("torch.cudnn", "version", "cuDNN version of the nvidia-cudnn wheel installed beside it"),
    fact("torch.nccl", "version", "NCCL version of the nvidia-nccl wheel installed beside it"),
    column(
        "pin.name",
        "text",
        "a wheel that torch requires and the environment has not, one row each, such as nvidia-nccl-cu12",
    ),
    column("pin.wants", "version", "the exact or lowest version that torch requires"),
    column("pin.has", "version", "the version installed; absent where it is not"),
)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``torch`` facts and the group ``pin``; the fat binaries come last, as a cold disk is slow."""
    torch = torch_of(target)
    if not isinstance(torch, Torch):
        yield from ((spec.name, torch) for spec in FACTS if not spec.group)
        yield "pin", torch
        yield "torch.elsewhere", _elsewhere(target, ())
        return
    yield "torch.version", Known(torch.version, torch.source)
    yield (
        "torch.path",
        Known(torch.path, torch.source) if torch.path else Absent("no torch/version.py beside its dist-info"),
    )
    yield from _version_file_facts(target, torch)
    yield "torch.elsewhere", _elsewhere(target, torch.site.folders)
    yield "torch.installs", Known(tuple(_installs(target, torch)), torch.environment.source)
    yield "torch.cudnn", _bundled_version(torch, "cudnn")
    yield "torch.nccl", _bundled_version(torch, "nccl")
    yield from _pin_facts(target, torch)
    yield "torch.companions_unmet", _sentences_fact(torch, companions_unmet(target, torch), "METADATA")
    if torch.path:
        yield "torch.companions_broken", _sentences_fact(torch, companions_broken(target, torch), "names in libraries")
    yield from _architectures(target, torch)


def _version_file_facts(target: Target, torch: Torch) -> Iterator[tuple[str, Fact]]:
    """Yields torch.flavor (cuda, rocm, xpu, mps or cpu), cuda, hip and git, from torch's version.py; unread without it.

    Versions that version.py gives as None are absent.
    """
    version_texts = torch.version_texts
    if not version_texts:
        trouble = Unread("torch has a dist-info but no version.py to read")
        yield from ((f"torch.{name}", trouble) for name in ("flavor", "cuda", "hip", "git"))
        return
    builds = (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu"))
    flavor = next((name for key, name in builds if key in version_texts), "cpu")
    if flavor == "cpu" and target.exists(f"{torch.path}/lib/libtorch_cpu.dylib"):
        flavor = "mps"
    yield "torch.flavor", Known(flavor, torch.source)
    for name, key in (("cuda", "cuda"), ("hip", "hip"), ("git", "git_version")):
        value = version_texts.get(key)
        yield f"torch.{name}", Known(value, torch.source) if value else Absent(f"version.py says {key} = None")


def _elsewhere(target: Target, searched: Sequence[str]) -> Fact:
    """Package folders near by that hold a torch and are not among `searched`.

    Unread if one cannot be read, or on Windows. Another Python's, the user's own, or those of an environment (.venv,
    venv) that is not activated.
    """
    if target.system == "windows":
        return Unread("not read on Windows yet")
    site = site_of(target)
    environ = target.environ
    prefixes = [site.prefix, "/usr", "/usr/local"] if isinstance(site, Site) else ["/usr", "/usr/local"]
    prefixes += [f"{environ['HOME']}/.local"] if environ.get("HOME") else []
    prefixes += [f"{environ['PWD']}/{name}" for name in (".venv", "venv") if environ.get("PWD")]
    found: list[str] = []
    try:
        for prefix in dict.fromkeys(prefixes):
            for name in target.listing(f"{prefix}/lib"):
                folders = [f"{prefix}/lib/{name}/{kind}-packages" for kind in ("site", "dist")]
                found += [folder for folder in folders if name.startswith("python3") and folder not in searched]
        holding = tuple(folder for folder in found if target.exists(f"{folder}/torch/version.py"))
    except OSError as error:
        return Unread(f"{error.filename or 'a folder'} could not be read: {error.strerror or error}")
    return Known(holding, f"package folders in {', '.join(dict.fromkeys(prefixes))}")


def _installs(target: Target, torch: Torch) -> Iterator[str]:
    """Yields each installed copy of torch: ``pip 2.5.1 in FOLDER``, conda's, or ``source tree 2.5.1 in FOLDER``."""
    conda = next((dist for dist in torch.environment.conda if dist.name == "pytorch"), None)
    own = False
    for dist in torch.environment.all("torch"):
        installed_by = installer(target, dist)
        is_conda = conda is not None and installed_by in (None, "conda") and dist.version.startswith(conda.version)
        own = own or is_conda
        yield f"{'conda' if is_conda else installed_by or 'unknown installer'} {dist.version} in {dist.folder}"
    if conda and not own:
        yield f"conda {conda.version} ({conda.info}) in {conda.folder}"
    if not conda and not torch.environment.all("torch"):
        yield f"source tree {torch.version} in {torch.path}"


def _bundled_version(torch: Torch, library: str) -> Fact:
    """The version of the library's NVIDIA wheel, else conda package, in torch's environment; absent without either."""
    major = torch.version_texts.get("cuda", "").partition(".")[0]
    wheel = torch.environment.first(f"nvidia-{library}-cu{major}", f"nvidia-{library}")
    if wheel is None:
        wheel = next((dist for dist in torch.environment.conda if dist.name == library), None)
    return Known(wheel.version, wheel.path) if wheel else Absent(f"no nvidia-{library} wheel is installed beside it")


def _pin_facts(target: Target, torch: Torch) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields torch.pins_unmet and the group ``pin``: requirements on NVIDIA wheels and triton that are not met.

    Absent if torch has no dist-info, unread if its METADATA cannot be read.
    """
    if torch.dist is None:
        nothing = Absent("torch has no dist-info, so it pins nothing")
        yield from (("torch.pins_unmet", nothing), ("pin", nothing))
        return
    source = f"{torch.dist.path}/METADATA"
    try:
        unmet = torch_unmet(target, torch, torch.dist)
    except OSError as error:
        trouble = Unread(f"{source} could not be read: {error.strerror or error}")
        yield from (("torch.pins_unmet", trouble), ("pin", trouble))
        return
    yield "torch.pins_unmet", Known(tuple(need.sentence for need in unmet), source)
    yield "pin", tuple(_pin_row(need, source) for need in unmet)


def _pin_row(need: UnmetRequirement, source: str) -> Row:
    """The row of an unmet requirement: name, wants (lowest version) and has, each absent if there is none."""
    return {
        "name": Known(need.name, source),
        "wants": Known(need.lowest_version, source) if need.lowest_version else Absent("it names no lowest version"),
        "has": Known(need.has, need.name) if need.has else Absent(f"{need.name} is not installed"),
    }


def _sentences_fact(torch: Torch, sentences: Iterator[str], what: str) -> Fact:
    """The sentences as a known list; unread if reading them raises `OSError`. `what` names what they were read from."""
    try:
        return Known(tuple(sentences), f"{what} in {torch.environment.source}")
    except OSError as error:
        return Unread(f"{what} could not be read: {error}")


_LIBRARIES = ("libtorch_cuda.so", "libtorch_cuda_cu.so", "libtorch.so")
_LIBRARIES_OF_WINDOWS = ("torch_cuda.dll", "torch_cuda_cu.dll")


def _architectures_of(path: Path) -> Architectures:
    """GPU architectures in a library's fat binaries, ELF or ``.dll``; raises `OSError` or `MalformedError`."""
    if path.suffix != ".dll":
        return architectures(path)
    with opened_pe(path) as library:
        return architectures_in(library, library.sections())


def _architectures(target: Target, torch: Torch) -> Iterator[tuple[str, Fact]]:
    """Yields torch.archs and torch.few_archs, the GPU architectures of the first library that holds fat binaries.

    Absent for a CPU build, unread for ROCm or without such a library. Older torch keeps them in libtorch_cuda_cu.so or
    libtorch.so.
    """
    names = ("torch.archs", "torch.few_archs")
    if torch.version_texts and "cuda" not in torch.version_texts:
        kind = Unread("ROCm code objects are not read") if "hip" in torch.version_texts else Absent("not a CUDA build")
        yield from ((name, kind) for name in names)
        return
    libraries = _LIBRARIES_OF_WINDOWS if target.system == "windows" else _LIBRARIES
    trouble = f"no {libraries[0]} in {torch.path}/lib" if torch.path else "torch has no package folder"
    for library in libraries:
        path = f"{torch.path}/lib/{library}"
        try:
            found = _architectures_of(target.path(path))
        except FileNotFoundError:
            continue
        except (OSError, MalformedError) as error:  # TimeoutError is an OSError
            trouble = f"the fat binaries of {path} could not be read: {error}"
            break
        if found.containers:
            source = f"{found.containers} fat binaries in {path}"
            yield names[0], Known(found.main, source)
            yield names[1], Known(found.few, source)
            return
        trouble = f"{path} holds no fat binaries"
    yield from ((name, Unread(trouble)) for name in names)


# Whether torchvision, torchaudio and torchtext belong to the installed torch, by their own METADATA and version.py.

_COMPANIONS = ("torchvision", "torchaudio", "torchtext")


def companions_unmet(target: Target, torch: Torch) -> Iterator[str]:
    """Yields a sentence per companion (torchvision, ...) built for another torch or CUDA; raises `OSError`."""
    for name in _COMPANIONS:
        dist = torch.environment.first(name)
        if dist:
            yield from _torch_mismatch(target, torch, dist)
            yield from _cuda_mismatch(target, torch, dist)


def companions_broken(target: Target, torch: Torch) -> Iterator[str]:
    """Yields a sentence per companion (torchvision, ...) that needs a function torch lacks; raises `OSError`."""
    for name in _COMPANIONS:
        dist = torch.environment.first(name)
        found = NativeLibraries(target, torch, dist).missing_symbols() if dist else None
        if isinstance(found, Unread):
            raise OSError(f"{name}: {found.why}")
        if (fact := known(found)) and (symbols := texts_of(fact)):
            yield f"{name} ({fact.source}) wants {symbols[0]}"


def cuda_tag(local: str) -> str | None:
    """``12.4`` for a local version ``cu124`` or ``cu12.4``, ``cpu`` for ``cpu``, None for anything else."""
    if local == "cpu":
        return "cpu"
    match = re.fullmatch(r"cu(\d{1,2})\.?(\d)", local)
    return f"{match[1]}.{match[2]}" if match else None


def _torch_mismatch(target: Target, torch: Torch, dist: Dist) -> Iterator[str]:
    """Yields a sentence if the companion `dist` requires another torch version. Raises `OSError`."""
    for need in requirements(target, torch.site, dist, lambda name: name == "torch"):
        if parse(torch.version) and not meets(torch.version, need):
            yield f"{dist.name} {dist.version} is for torch {wanted_text(need)}"


def _cuda_mismatch(target: Target, torch: Torch, dist: Dist) -> Iterator[str]:
    """Yields a sentence if the companion `dist` names another CUDA than torch's, or, of torchvision, if only one of
    both is a CPU build.

    Another major counts, for torchaudio before 2.9 also another minor. Nothing for torchtext, or beside a torch for
    ROCm or XPU.
    """
    tag = cuda_tag(_local_version(target, dist))
    built = torch.version_texts.get("cuda", "")
    if (
        tag is None
        or dist.name == "torchtext"
        or not torch.version_texts
        or "hip" in torch.version_texts
        or "xpu" in torch.version_texts
    ):
        return
    if dist.name == "torchaudio" and not (built and tag != "cpu"):
        return  # its Python code serves any torch
    if tag == "cpu":
        if built:
            yield f"{dist.name} {dist.version} is a CPU build, torch is built with CUDA {built}"
    elif not built:
        yield f"{dist.name} {dist.version} is for CUDA {tag}, torch is a CPU build"
    else:
        version = parse(dist.version)
        strict = dist.name == "torchaudio" and version is not None and version.release < (2, 9)
        if tag != built if strict else tag.split(".")[0] != built.split(".")[0]:
            yield f"{dist.name} {dist.version} is for CUDA {tag}, torch is built with CUDA {built}"


def _local_version(target: Target, dist: Dist) -> str:
    """The local part of its version such as ``cu121``, by its dist-info, else its version.py; else empty."""
    if "+" in dist.version:
        return dist.version.partition("+")[2]
    try:
        version_texts = assignments(target.read(f"{dist.folder}/{dist.name}/version.py", 1 << 14))
    except OSError:
        return ""
    return version_texts.get("__version__", "").partition("+")[2]

"""Every copy of the CUDA libraries, and which one the loader would take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._binaries import DefinedSymbols, Elf, MalformedError, opened, undefined_symbols
from gpudoctor.probes._dists import Dist, Environment, environment
from gpudoctor.probes._loader import (
    LibraryCopy,
    LibraryObject,
    Loader,
    libcuda_kind,
    library_copies,
    no_libcuda_reason,
    version_of,
    wheel_owners,
)
from gpudoctor.probes._site import Site, site_of
from gpudoctor.probes._torch_files import Torch, loaded_torch, torch_of, torch_unmet
from gpudoctor.target import Target

NOT_YET = "windows"
FACTS = (
    fact("libs.libcuda", "text", "the libcuda.so.1 that the loader would take"),
    fact("libs.libcuda_kind", "text", "driver, stub, compat or wsl; absent where there is no libcuda"),
    fact("libs.libcuda_version", "version", "driver version of that libcuda"),
    fact("libs.compat_on_path", "bool", "whether a cuda-compat folder comes before the driver's libcuda"),
    fact(
        "libs.shadowing",
        "list",
        "libraries of LD_LIBRARY_PATH that come before torch's own of the same name: path instead of path",
    ),
    fact(
        "libs.missing",
        "list",
        "CUDA libraries that torch needs and the loader finds nowhere, such as libcudnn.so.9, for libtorch_cuda.so",
    ),
    fact(
        "libs.clashes",
        "list",
        "functions that one loaded library wants and the copy loaded of another lacks, such as "
        "libcusparse.so.12 wants __nvJitLinkAddData_12_1, which /.../libnvJitLink.so.12 does not define",
    ),
    column("lib.name", "text", "library: libcudnn, libnccl, libcublas, libcudart, libnvJitLink, libcuda"),
    column("lib.path", "text", "where it is"),
    column("lib.version", "version", "its version, from its file name, its wheel or its text"),
    column("lib.origin", "text", "wheel, torch, conda, toolkit, driver, system or environment"),
    column("lib.chosen", "bool", "whether torch in the target interpreter would load this copy"),
    column("lib.why", "text", "why it is chosen or not: RPATH of libtorch_cuda, LD_LIBRARY_PATH entry 1, ld.so.cache"),
)

_NVIDIA = re.compile(r"lib(cu(?!da\.)|nv(?!idia)|nccl)")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``libs`` facts and the group ``lib``; the driver's library first, as it needs no interpreter."""
    site = site_of(target)
    torch = torch_of(target)
    known_site = site if isinstance(site, Site) else None
    loader = loaded_torch(target)
    yield from _libcuda_facts(target, loader)
    found = library_copies(target, loader, known_site)
    installed = environment(target)
    owners = wheel_owners(target, installed if isinstance(installed, Environment) else None)
    yield "lib", tuple(_library_row(copy, owners, torch, loader, target) for copy in found)
    yield "libs.shadowing", _shadowing(target, torch, loader)
    yield "libs.missing", _missing_libraries(torch, loader)
    yield "libs.clashes", _clashes_fact(target, torch, loader)


def _libcuda_facts(target: Target, loader: Loader) -> Iterator[tuple[str, Fact]]:
    """Yields libs.libcuda (path), libcuda_kind, libcuda_version and compat_on_path, of the copy the loader takes.

    Absent if there is none, unread if ld.so.cache cannot be read.
    """
    names = ("libs.libcuda", "libs.libcuda_kind", "libs.libcuda_version", "libs.compat_on_path")
    found = loader.resolve("libcuda.so.1", None)
    if found is None:
        yield from ((name, no_libcuda_reason(loader)) for name in names)
        return
    real = target.link(found.path)
    kind = libcuda_kind(found.path, real)
    yield names[0], Known(found.path, found.why)
    yield names[1], Known(kind, real)
    yield names[2], version_of(LibraryCopy("libcuda", found.path, real, "driver"), {})
    yield names[3], Known(kind == "compat", found.path)


def _library_row(
    copy: LibraryCopy, owners: dict[str, Dist], torch: Torch | Absent | Unread, loader: Loader, target: Target
) -> dict[str, Fact]:
    """The row of one copy: name, path, version, origin, chosen (whether torch would load it) and why.

    The last two are absent or unread as torch is, but for libcuda.
    """
    row: dict[str, Fact] = {
        "name": Known(copy.name, copy.path),
        "path": Known(copy.path, copy.path),
        "version": version_of(copy, owners),
        "origin": Known(copy.origin, copy.path),
    }
    if copy.name == "libcuda":
        taken = loader.resolve("libcuda.so.1", None)
    elif not isinstance(torch, Torch):
        return {**row, "chosen": torch, "why": torch}
    else:
        taken = loader.loaded.get(copy.file)
    chosen = taken is not None and target.link(taken.path) == copy.real
    if chosen and taken:
        why = taken.why
    elif taken:
        why = f"{taken.path} comes first ({taken.why})"
    else:
        why = f"torch does not ask for {copy.file}"
    return {**row, "chosen": Known(chosen, "the loader's search order"), "why": Known(why, copy.path)}


def _shadowing(target: Target, torch: Torch | Absent | Unread, loader: Loader) -> Fact:
    """Sentences ``PATH instead of PATH`` for libraries of LD_LIBRARY_PATH that torch would load in place of its own.

    Only what torch would load counts: a copy that an RPATH beats does no harm. Absent or unread as torch is.
    """
    if not isinstance(torch, Torch):
        return torch
    own = _own_files(target, torch)
    sentences = []
    for name, taken in loader.loaded.items():
        torch_copy = own.get(name)
        if torch_copy and taken.by_variable and target.link(taken.path) != target.link(torch_copy):
            sentences.append(f"{taken.path} instead of {torch_copy}")
    return Known(tuple(dict.fromkeys(sentences)), f"LD_LIBRARY_PATH and the RPATHs in {torch.path}/lib")


def _own_files(target: Target, torch: Torch) -> dict[str, str]:
    """File name to path of the libraries that came with torch: in its own folder, NVIDIA's wheels, and conda's."""
    folders = [f"{torch.path}/lib"]
    for site in torch.site.folders:
        folders += [f"{site}/nvidia/{part}/lib" for part in target.listing(f"{site}/nvidia")]
    if torch.site.environment == "conda":
        folders.append(f"{torch.site.prefix}/lib")
    return {
        name: f"{folder}/{name}" for folder in reversed(folders) for name in target.listing(folder) if ".so" in name
    }


def _missing_libraries(torch: Torch | Absent | Unread, loader: Loader) -> Fact:
    """Sentences ``NAME, which FILE needs`` for CUDA libraries that torch needs and the loader finds nowhere.

    The driver's are left out. Absent or unread as torch is.
    """
    if not isinstance(torch, Torch):
        return torch
    if not torch.path:
        return Unread("torch has no package folder")
    names = tuple(
        f"{name}, which {needed_by.file} needs"
        for name, needed_by in loader.missing.items()
        if not name.startswith(("libcuda.so", "libnvidia-"))  # the driver's, which other facts tell of
    )
    return Known(names, f"the libraries in {torch.path}/lib and the loader's search order")


def _clashes_fact(target: Target, torch: Torch | Absent | Unread, loader: Loader) -> Fact:
    """Sentences for functions that one loaded library needs and another's loaded copy lacks.

    Absent or unread as torch is. If every library is the wheel that torch pins, they fit, and no names are read.
    """
    if not isinstance(torch, Torch):
        return torch
    sites = tuple(f"{folder}/" for folder in torch.site.folders)
    foreign_libraries = [
        found for name, found in loader.loaded.items() if _NVIDIA.match(name) and not found.path.startswith(sites)
    ]
    try:
        pinned = torch.dist is not None and not torch_unmet(target, torch, torch.dist)
        if pinned and not foreign_libraries:
            return Known((), "every library loaded is a wheel that torch pins")
        return Known(tuple(missing_functions(target, loader)), "the names that the loaded libraries want and define")
    except (OSError, MalformedError) as error:
        return Unread(f"the names in the libraries could not be read: {error}")


# ---- Whether the CUDA libraries that would be loaded together fit ----
# Each function that one wants of another is there. An import fails with ``undefined symbol: __nvJitLinkAddData_12_1``
# or ``ncclCommWindowRegister`` where an older copy of a library comes before the one that its caller was linked to.
# Names tell that without loading anything.

_PROVIDERS = {
    "nccl": "libnccl.so",
    "cudnn": "libcudnn.so",
    "cublasLt": "libcublasLt.so",
    "cublas": "libcublas.so",
    "cusparseLt": "libcusparseLt.so",
    "cusparse": "libcusparse.so",
    "cusolver": "libcusolver.so",
    "cufft": "libcufft.so",
    "curand": "libcurand.so",
    "nvrtc": "libnvrtc.so",
    "nvJitLink": "libnvJitLink.so",
    "cuda": "libcudart.so",
}
"""Whose functions begin how; the longer beginning first."""

_NVIDIAS = ("libcu", "libnv", "libnccl")
_NAME = pattern(rb"_{0,2}(" + "|".join(_PROVIDERS).encode() + rb")[A-Z_]")


def missing_functions(target: Target, loader: Loader) -> Iterator[str]:
    """Yields a sentence per pair of loaded libraries that do not fit; raises `OSError` or `MalformedError`.

    ``libcusparse.so.12 wants __nvJitLinkAddData_12_1, which /.../libnvJitLink.so.12 does not define``
    """
    objects = {found.path: found for found in loader.loaded.values()}.values()
    nvidia_libraries = [found for found in objects if found.file.startswith(_NVIDIAS)]
    reported: set[tuple[str, str]] = set()
    with ExitStack() as open_files:
        names = [DefinedSymbols(_open(target, found, open_files)) for found in nvidia_libraries]
        for caller in objects:
            if caller not in nvidia_libraries and not caller.file.startswith("libtorch_cuda"):
                continue
            for name in undefined_symbols(_open(target, caller, open_files), _NAME):
                provider = _provider(name, nvidia_libraries)
                if provider is None or any(name in defined for defined in names):
                    continue
                if (caller.path, provider.path) not in reported:
                    reported.add((caller.path, provider.path))
                    yield f"{caller.file} wants {name}, which {provider.path} does not define"


def _provider(name: str, loaded: Sequence[LibraryObject]) -> LibraryObject | None:
    """The loaded library that should define the CUDA function, by its name's beginning; None if it is not loaded."""
    match = _NAME.match(name.encode())
    assert match
    library = _PROVIDERS[match[1].decode()]
    return next((found for found in loaded if found.file.startswith(library)), None)


def _open(target: Target, library: LibraryObject, open_files: ExitStack) -> Elf:
    """The library as `Elf`, open until the stack is closed."""
    return open_files.enter_context(opened(target.path(library.path)))

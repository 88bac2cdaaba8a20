"""Extensions built against torch: what they were built for, and what their libraries ask of torch and of CUDA."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known, value_of
from gpudoctor.core.pattern import pattern
from gpudoctor.core.versions import BuildTag, build_tag
from gpudoctor.probes._binaries import (
    DefinedSymbols,
    Elf,
    MalformedError,
    architectures,
    in_order,
    opened,
    undefined_symbols,
)
from gpudoctor.probes._dists import Dist, Environment, exact_pins, libraries_of, requirements
from gpudoctor.probes._loader import LibraryObject
from gpudoctor.probes._site import Site
from gpudoctor.probes._torch_files import Torch, loaded_torch
from gpudoctor.target import Target

_NAMES = frozenset(
    {
        *("apex", "auto-gptq", "autoawq", "autoawq-kernels", "bitsandbytes", "causal-conv1d", "deepspeed"),
        *("detectron2", "exllamav2", "flash-attn", "flash-attn-3", "flashinfer-python", "gptqmodel"),
        *("mamba-ssm", "mmcv", "mmcv-full", "natten", "nvdiffrast", "pyg-lib", "pytorch3d", "sageattention"),
        *("sgl-kernel", "spconv", "torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv"),
        *("torchao", "transformer-engine", "transformer-engine-torch", "vllm", "xformers"),
    }
)
_BITSANDBYTES = pattern(r"libbitsandbytes_cuda(\d{2})(\d)(?:_nocublaslt)?\.so")


def extensions(target: Target, site: Site, environment: Environment, torch: Torch | Absent | Unread) -> Iterator[Row]:
    """Yields a row per installed distribution of `_NAMES` (known extensions of torch): name, version, torch, cuda and
    abi (that it was built for).

    Also missing_symbols, missing_libraries and archs of its libraries.
    """
    seen: set[str] = set()
    for dist in environment.dists:
        if dist.name in _NAMES and dist.name not in seen:
            seen.add(dist.name)
            yield {**_tag_columns(target, site, dist), **_library_columns(target, torch, dist)}


def bitsandbytes_builds(target: Target, environment: Environment) -> Fact:
    """CUDA releases of bitsandbytes' libraries: ``12.4`` for ``libbitsandbytes_cuda124.so``.

    Absent if it is not installed, unread if its folder cannot be listed.
    """
    dist = environment.first("bitsandbytes")
    if dist is None:
        return Absent("bitsandbytes is not installed")
    folder = f"{dist.folder}/bitsandbytes"
    try:
        names = target.listing(folder)
    except OSError as error:
        return Unread(f"{folder} could not be listed: {error.strerror or error}")
    builds = {(int(match[1]), int(match[2])) for name in names if (match := _BITSANDBYTES.fullmatch(name))}
    return Known(tuple(f"{major}.{minor}" for major, minor in sorted(builds)), folder)


def _tag_columns(target: Target, site: Site, dist: Dist) -> Row:
    """The columns name and version, and torch, cuda and abi that it was built for, by its build tag.

    torch is else the version that its metadata pins; absent where nothing says it.
    """
    tag, source = _build_tag(target, dist)
    return {
        "name": Known(dist.name, dist.path),
        "version": Known(dist.version, dist.path),
        "torch": Known(tag.torch, source) if tag.torch else _pinned_torch(target, site, dist),
        "cuda": Known(tag.cuda, source) if tag.cuda else Absent("neither its version nor its wheel's name says it"),
        "abi": Known(tag.abi, source) if tag.abi else Absent("neither its version nor its wheel's name says it"),
    }


def _library_columns(target: Target, torch: Torch | Absent | Unread, dist: Dist) -> Row:
    """The columns missing_symbols, missing_libraries and archs of its libraries; absent or unread as torch is."""
    if isinstance(torch, Torch) and torch.path:
        return dict(NativeLibraries(target, torch, dist).facts())
    why = torch if not isinstance(torch, Torch) else Unread("torch has no package folder")
    return dict.fromkeys(("missing_symbols", "missing_libraries", "archs"), why)


def _build_tag(target: Target, dist: Dist) -> tuple[BuildTag, str]:
    """(build tag in the version, else in the name of the wheel that was installed; the file it was read from)."""
    tag = parse_build_tag(dist.version)
    if tag != BuildTag():
        return tag, dist.path
    source = f"{dist.path}/direct_url.json"
    try:
        url = json.loads(target.read(source, 1 << 16)).get("url", "")
    except (OSError, ValueError, AttributeError):
        return tag, dist.path
    return parse_build_tag(str(url).rpartition("/")[2]), source


def _pinned_torch(target: Target, site: Site, dist: Dist) -> Fact:
    """The exact torch version that the METADATA requires; absent if it pins none, unread if it cannot be read."""
    try:
        found = list(requirements(target, site, dist, lambda name: name == "torch"))
    except OSError as error:
        return Unread(f"its METADATA could not be read: {error}")
    pins = [version for need in found for version in exact_pins(need)]
    return Known(pins[0], f"{dist.path}/METADATA") if pins else Absent("it pins no torch")


def parse_build_tag(text: str) -> BuildTag:
    """The build tag after the ``+`` of a version or wheel file name: ``+cu122torch2.3cxx11abiFALSE``; all fields empty
    without one.
    """
    return build_tag(text.replace("%2B", "+").replace("%2b", "+").partition("+")[2].partition("-cp")[0])


# ---- What an extension's own libraries ask, held against what is installed, without loading any ----

_TORCHS = ("libc10", "libtorch", "libcaffe2")
_MOST_LIBRARIES = 24
"""Libraries looked at per distribution: vllm has about ten, xformers three."""

_MOST_SHOWN = 8

_ONE_OF_MANY = pattern(r"/libbitsandbytes_\w+\.so$")
"""Built for every CUDA release, of which the program takes one: the others miss theirs rightly."""

_DRIVERS = ("libcuda.so", "libnvidia-")


class NativeLibraries:
    """The compiled libraries of one distribution, at most 24, compared with the installed torch and CUDA libraries."""

    def __init__(self, target: Target, torch: Torch, dist: Dist) -> None:
        """Reads the distribution's RECORD; `trouble` is set if it cannot be read."""
        self._target = target
        self._torch = torch
        recorded = libraries_of(target, dist)
        self.trouble = Unread(f"{dist.path}/RECORD could not be read") if recorded is None else None
        paths = (library.path for library in recorded or ())
        self.paths = [path for path in paths if not _ONE_OF_MANY.search(path)][:_MOST_LIBRARIES]

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """Yields missing_symbols, missing_libraries and archs (absent if its libraries hold no GPU code).

        Absent without a library that is always loaded, unread if one cannot be read.
        """
        for name, collect in (
            ("missing_symbols", self._missing_symbols),
            ("missing_libraries", self._missing_libraries),
            ("archs", self._archs),
        ):
            fact = self._collected(collect())
            no_gpu_code = name == "archs" and known(fact) and not value_of(fact)
            yield name, Absent("its libraries hold no GPU code") if no_gpu_code else fact

    def missing_symbols(self) -> Fact:
        """Up to 8 functions of torch that the libraries need and the installed torch does not define, mangled.

        Absent without a library that is always loaded, unread if one cannot be read.
        """
        return self._collected(self._missing_symbols())

    def _collected(self, texts: Iterator[str]) -> Fact:
        """The texts, each once, as a known list; absent if the distribution has no library that is always loaded.

        Unread if its RECORD, or a library while `texts` are generated, cannot be read or is malformed.
        """
        if self.trouble:
            return self.trouble
        if not self.paths:
            return Absent("it has no compiled library that it always loads")
        try:
            return Known(tuple(dict.fromkeys(texts)), ", ".join(path.rpartition("/")[2] for path in self.paths))
        except (OSError, MalformedError) as error:
            return Unread(f"its libraries could not be read: {error}")

    def _missing_symbols(self) -> Iterator[str]:
        """Yields up to 8 torch functions that libraries linked to torch need, but neither torch nor this distribution's
        libraries define.

        Raises `OSError` or `MalformedError`.
        """
        with ExitStack() as open_files:

            def open_(path: str) -> Elf:
                """Open the library until the stack is closed."""
                return open_files.enter_context(opened(self._target.path(path)))

            own_libraries = [(path, open_(path)) for path in self.paths]
            torch_users = [
                elf for _, elf in own_libraries if any(name.startswith(_TORCHS) for name in elf.dynamic().needed)
            ]
            wanted_symbols = dict.fromkeys(name for elf in torch_users for name in undefined_symbols(elf))
            if not wanted_symbols:
                return
            folder = f"{self._torch.path}/lib"
            torch_libraries = [
                name for name in self._target.listing(folder) if name.startswith(_TORCHS) and ".so" in name
            ]
            torch_symbols = [
                DefinedSymbols(open_(f"{folder}/{name}"))
                for name in torch_libraries
                if name != "libtorch_global_deps.so"
            ]
            if not torch_symbols:
                raise MalformedError(f"no libtorch in {folder}")
            missing = [name for name in wanted_symbols if not any(name in names for names in torch_symbols)]
            siblings = [DefinedSymbols(elf) for _, elf in own_libraries] if missing else []
            yield from [name for name in missing if not any(name in names for names in siblings)][:_MOST_SHOWN]

    def _missing_libraries(self) -> Iterator[str]:
        """Yields ``NAME, which FILE needs`` for CUDA libraries that the loader would not find after torch's import.

        The driver's are left out. Raises `OSError` or `MalformedError`.
        """
        loader = loaded_torch(self._target)
        here = {path.rpartition("/")[2] for path in self.paths}
        for path in self.paths:
            with opened(self._target.path(path)) as elf:
                caller = LibraryObject(path, "imported", elf.dynamic())
            for name in caller.dynamic.needed:
                if not name.startswith(("libcu", "libnv", "libnccl")) or name.startswith(_DRIVERS):
                    continue
                if name not in loader.loaded and name not in here and loader.resolve(name, caller) is None:
                    yield f"{name}, which {caller.file} needs"

    def _archs(self) -> Iterator[str]:
        """Yields each GPU architecture its libraries hold code for, sorted; raises `OSError`, `MalformedError`."""
        found: set[str] = set()
        for path in self.paths:
            found.update(architectures(self._target.path(path), 1.0).counts)
        yield from in_order(found)

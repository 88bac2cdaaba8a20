"""Whether the CUDA libraries that would be loaded together fit: each function that one wants of another is there.

An import fails with ``undefined symbol: __nvJitLinkAddData_12_1`` or ``ncclCommWindowRegister`` where an older copy of
a library comes before the one that its caller was linked to. Names tell that without loading anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.elf import Elf, opened
from gpudoctor.probes._libraries.loader import Loader, Object
from gpudoctor.probes._libraries.symbols import Names, wanted
from gpudoctor.target import Target

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


def clashes(target: Target, loader: Loader) -> Iterator[str]:
    """``libcusparse.so.12 wants __nvJitLinkAddData_12_1, which /.../libnvJitLink.so.12 does not define``, one a pair.

    Raises `OSError` or `MalformedError`.
    """
    objects = {found.path: found for found in loader.loaded.values()}.values()
    theirs = [found for found in objects if found.file.startswith(_NVIDIAS)]
    told: set[tuple[str, str]] = set()
    with ExitStack() as open_files:
        names = [Names(_open(target, found, open_files)) for found in theirs]
        for caller in objects:
            if caller not in theirs and not caller.file.startswith("libtorch_cuda"):
                continue
            for name in wanted(_open(target, caller, open_files), _NAME):
                provider = _provider(name, theirs)
                if provider is None or any(name in defined for defined in names):
                    continue
                if (caller.path, provider.path) not in told:
                    told.add((caller.path, provider.path))
                    yield f"{caller.file} wants {name}, which {provider.path} does not define"


def _provider(name: str, loaded: Sequence[Object]) -> Object | None:
    """The library that should define it; None where none of that name would be loaded, which is another fault."""
    match = _NAME.match(name.encode())
    assert match
    library = _PROVIDERS[match[1].decode()]
    return next((found for found in loaded if found.file.startswith(library)), None)


def _open(target: Target, found: Object, open_files: ExitStack) -> Elf:
    return open_files.enter_context(opened(target.path(found.path)))

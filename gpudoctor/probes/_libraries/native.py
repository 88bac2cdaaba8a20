"""What an extension's own libraries ask of torch and of CUDA, held against what is installed, without loading any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.elf import Elf, MalformedError, opened
from gpudoctor.probes._libraries.fatbin import architectures, in_order
from gpudoctor.probes._libraries.loader import Object
from gpudoctor.probes._libraries.symbols import Names, wanted
from gpudoctor.probes._python.dists import Dist, libraries
from gpudoctor.probes._python.torch_files import Torch
from gpudoctor.probes._python.torch_load import loaded_torch
from gpudoctor.target import Target

_TORCHS = ("libc10", "libtorch", "libcaffe2")
_MOST = 24
"""Libraries looked at per distribution: vllm has about ten, xformers three."""

_SHOWN = 8

_ONE_OF_MANY = pattern(r"/libbitsandbytes_\w+\.so$")
"""Built for every CUDA release, of which the program takes one: the others miss theirs rightly."""

_DRIVERS = ("libcuda.so", "libnvidia-")


class Native:
    """The libraries of one distribution that are linked to torch, or hold code for GPUs."""

    def __init__(self, target: Target, torch: Torch, dist: Dist) -> None:
        self._target = target
        self._torch = torch
        recorded = libraries(target, dist)
        self.trouble = Unread(f"{dist.path}/RECORD could not be read") if recorded is None else None
        self.paths = [library.path for library in recorded or () if not _ONE_OF_MANY.search(library.path)][:_MOST]

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """``missing_symbols``, ``missing_libraries`` and ``archs``."""
        for name, ask in (
            ("missing_symbols", self._symbols),
            ("missing_libraries", self._needed),
            ("archs", self._archs),
        ):
            fact = self._fenced(ask())
            none = name == "archs" and isinstance(fact, Known) and not fact.value
            yield name, Absent("its libraries hold no GPU code") if none else fact

    def missing_symbols(self) -> Fact:
        """Functions of torch that its libraries want and the installed torch does not define."""
        return self._fenced(self._symbols())

    def _fenced(self, found: Iterator[str]) -> Fact:
        if self.trouble:
            return self.trouble
        if not self.paths:
            return Absent("it has no compiled library that it always loads")
        try:
            return Known(tuple(dict.fromkeys(found)), ", ".join(path.rpartition("/")[2] for path in self.paths))
        except (OSError, MalformedError) as error:
            return Unread(f"its libraries could not be read: {error}")

    def _symbols(self) -> Iterator[str]:
        """Functions that neither torch nor a sibling defines, the first few: one is enough to fail an import."""
        with ExitStack() as open_files:

            def open_(path: str) -> Elf:
                return open_files.enter_context(opened(self._target.path(path)))

            theirs = [(path, open_(path)) for path in self.paths]
            asking = [elf for _, elf in theirs if any(name.startswith(_TORCHS) for name in elf.dynamic().needed)]
            asked = dict.fromkeys(name for elf in asking for name in wanted(elf))
            if not asked:
                return
            folder = f"{self._torch.path}/lib"
            torchs = [name for name in self._target.listing(folder) if name.startswith(_TORCHS) and ".so" in name]
            own = [Names(open_(f"{folder}/{name}")) for name in torchs if name != "libtorch_global_deps.so"]
            if not own:
                raise MalformedError(f"no libtorch in {folder}")
            missing = [name for name in asked if not any(name in names for names in own)]
            siblings = [Names(elf) for _, elf in theirs] if missing else []
            yield from [name for name in missing if not any(name in names for names in siblings)][:_SHOWN]

    def _needed(self) -> Iterator[str]:
        """CUDA libraries that it is linked to and the loader would not find, with torch imported before it."""
        loader = loaded_torch(self._target)
        here = {path.rpartition("/")[2] for path in self.paths}
        for path in self.paths:
            with opened(self._target.path(path)) as elf:
                asking = Object(path, "imported", elf.dynamic())
            for name in asking.dynamic.needed:
                if not name.startswith(("libcu", "libnv", "libnccl")) or name.startswith(_DRIVERS):
                    continue
                if name not in loader.loaded and name not in here and loader.resolve(name, asking) is None:
                    yield f"{name}, which {asking.file} needs"

    def _archs(self) -> Iterator[str]:
        """Every architecture that any of them holds code for."""
        found: set[str] = set()
        for path in self.paths:
            found.update(architectures(self._target.path(path), 1.0).counts)
        yield from in_order(found)

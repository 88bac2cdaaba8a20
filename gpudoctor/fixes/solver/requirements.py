"""What must go beside torch, as requirements: parsed, merged by package, and asked which versions they take."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.core.errors import UsageError
from gpudoctor.core.frozen import frozen, replace
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.stack import Wishes
from gpudoctor.core.versions import normal
from gpudoctor.fixes.solver.builds import Build, builds, cpu_builds
from gpudoctor.fixes.solver.machine import Machine

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

FOLLOWED = (
    "vllm",
    "torchvision",
    "torchaudio",
    "triton",
    "xformers",
    "flash-attn",
    "bitsandbytes",
    "tensorflow",
    "jax",
)
"""The packages whose releases the tables have; the one that pins the others comes first."""
_RENAMED = {"pytorch": "torch"}
_PLAIN = pattern(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(==\d+(?:\.\d+)*(?:\.\*|\+[a-z0-9]+)?)?")
"""A name, or a name and the one version that is wanted."""


@lru_cache(maxsize=1 << 15)
def inside(specifier: str, version: str) -> bool:
    """True if the version satisfies the specifier, prereleases included; a bare version means exactly that one."""
    return not specifier or parsed(specifier).contains(version, prereleases=True)


@lru_cache(maxsize=1 << 10)
def parsed(specifier: str) -> SpecifierSet:
    """SpecifierSet of a text, cached; raises `InvalidSpecifier`."""
    from packaging.specifiers import SpecifierSet  # 20 ms: a cure for any torch compares nothing

    return SpecifierSet(f"=={specifier}" if specifier[:1].isdigit() else specifier)


@frozen
class Want:
    """One wanted package. `texts` are its requirements as given; `specifier` combines them."""

    name: str
    specifier: str
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The requirements as given, joined by commas: ``torch>=2.6``."""
        return ", ".join(self.texts)

    def takes(self, version: str) -> bool:
        """True if the version satisfies the want, prereleases included."""
        return inside(self.specifier, version)

    def exact(self) -> tuple[str, ...]:
        """Versions that the want names with ``==``, without wildcards."""
        every = parsed(self.specifier)
        return tuple(spec.version for spec in every if spec.operator == "==" and not spec.version.endswith("*"))


@frozen
class Wants:
    """All wanted packages: torch, those in the tables (in the order of `FOLLOWED`), and others as given.
    `minor` (x, y), if set, replaces torch's own specifier.
    """

    torch: Want
    beside: tuple[Want, ...] = ()
    others: tuple[Want, ...] = ()
    minor: tuple[int, ...] = ()

    @property
    def builds(self) -> tuple[Build, ...]:
        """Builds that the want for torch takes, newest first; ``+cpu`` asks for CPU builds."""
        return builds_taken(self.torch.specifier, self.minor, any("+cpu" in text for text in self.torch.texts))

    def without(self, name: str) -> Wants:
        """The wants without that package; without torch means any torch."""
        if name == "torch":
            return replace(self, torch=ANY_TORCH)
        return replace(self, beside=tuple(want for want in self.beside if want.name != name))


@lru_cache(maxsize=1024)
def builds_taken(specifier: str, minor: tuple[int, ...], without_cuda: bool) -> tuple[Build, ...]:
    """Builds that the specifier takes, or, if given, those of the `minor` (x, y), newest first; CPU builds if
    `without_cuda`.
    """
    every = cpu_builds() if without_cuda else builds()
    if minor:
        return tuple(build for build in every if build.version.release[:2] == minor)
    return tuple(build for build in every if inside(specifier, f"{build.torch}+{build.name}"))


ANY_TORCH = Want("torch", "", ())


def wants_of(wishes: Wishes, machine: Machine) -> Wants:
    """Packages that the wishes ask for on that machine; an invalid requirement raises `UsageError`."""
    given = [*wishes.wants, *wishes.extras, *([torch_requirement(wishes.torch)] if wishes.torch.strip() else [])]
    merged: dict[str, Want] = {}
    others: list[Want] = []
    for text in given:
        asked = _parse_requirement(text, machine)
        if asked is None:
            continue
        name = normal(asked.name)
        name = _RENAMED.get(name, name)
        if asked.elsewhere or name not in ("torch", *FOLLOWED):
            others.append(Want(name, asked.specifier, (text,)))
            continue
        before = merged.get(name, Want(name, "", ()))
        both = ",".join(filter(None, (before.specifier, asked.specifier)))
        merged[name] = Want(name, both, (*before.texts, text))
    return Wants(
        merged.get("torch", ANY_TORCH),
        tuple(merged[name] for name in FOLLOWED if name in merged),
        tuple(others),
    )


def torch_requirement(written: str) -> str:
    """Requirement for a torch release: ``torch==2.9.*`` for ``2.9``, ``torch==2.8.0`` for that, ``torch>=2`` for
    ``>=2``.
    """
    written = written.strip()
    if not written[0].isdigit():
        return f"torch{written}"
    return f"torch=={written}" if written.count(".") > 1 or "+" in written else f"torch=={written}.*"


class _ParsedRequirement(NamedTuple):
    """Name and specifier of a requirement; `elsewhere` if it names its own URL."""

    name: str
    specifier: str
    elsewhere: bool = False


def _parse_requirement(text: str, machine: Machine) -> _ParsedRequirement | None:
    """Name and specifier of a requirement; None if its marker does not hold on the machine, `UsageError` if invalid."""
    if plain := _PLAIN.fullmatch(text):
        return _ParsedRequirement(plain[1], plain[2] or "")
    from packaging.requirements import InvalidRequirement, Requirement  # 25 ms: only for what is not plain

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise UsageError(
            say("{text} is no requirement; write it as for pip: torch>=2.6", text=repr(text[:60]))
        ) from None
    if not _applies(requirement, machine):
        return None
    return _ParsedRequirement(requirement.name, str(requirement.specifier), bool(requirement.url))


def _applies(requirement: Requirement, machine: Machine) -> bool:
    """True if the requirement's marker holds on the machine, or depends on what is not known."""
    windows = machine.wheels == "windows"
    python = f"{machine.python_numbers[0]}.{machine.python_numbers[1]}"
    environment = {
        "sys_platform": "win32" if windows else "linux",
        "platform_system": "Windows" if windows else "Linux",
        "os_name": "nt" if windows else "posix",
        "platform_machine": "aarch64" if machine.wheels == "aarch64" else "AMD64" if windows else "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }
    if not machine.python and "python" in str(requirement.marker):
        return True
    return requirement.marker is None or requirement.marker.evaluate(environment)

"""What must go beside torch, as requirements: parsed, merged by package, and asked which versions they take."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.model.distribution import normal
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.pattern import pattern
from gpudoctor.model.stack import Wishes
from gpudoctor.setup.builds import Build, builds, cpu_builds
from gpudoctor.setup.machine import Machine
from gpudoctor.setup.specifiers import inside, parsed

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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


@frozen
class Want:
    """One package that is asked for. `texts` are the requirements as they were given, for one package maybe several."""

    name: str
    specifier: str
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it was given: ``torch>=2.6``."""
        return ", ".join(self.texts)

    def takes(self, version: str) -> bool:
        """Whether it takes that version, prereleases too."""
        return inside(self.specifier, version)

    def exact(self) -> tuple[str, ...]:
        """The versions that it names with ``==``."""
        every = parsed(self.specifier)
        return tuple(one.version for one in every if one.operator == "==" and not one.version.endswith("*"))


@frozen
class Wants:
    """All of them: torch's own, those that the tables follow in the order of `FOLLOWED`, and the others as given.

    `minor` is the torch x.y that counts in place of what was asked for.
    """

    torch: Want
    beside: tuple[Want, ...] = ()
    others: tuple[Want, ...] = ()
    minor: tuple[int, ...] = ()

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds that they take, the newest first: ``torch==2.9.1+cu128`` takes only one.

        ``+cpu`` asks for those without CUDA.
        """
        return taken(self.torch.specifier, self.minor, any("+cpu" in text for text in self.torch.texts))

    def without(self, name: str) -> Wants:
        """With that package left out; torch is then any."""
        if name == "torch":
            return replace(self, torch=ANY_TORCH)
        return replace(self, beside=tuple(want for want in self.beside if want.name != name))


@lru_cache(maxsize=1024)
def taken(specifier: str, minor: tuple[int, ...], without_cuda: bool) -> tuple[Build, ...]:
    """The builds of those versions of torch, or of that x.y, the newest first."""
    every = cpu_builds() if without_cuda else builds()
    if minor:
        return tuple(build for build in every if build.version.release[:2] == minor)
    return tuple(build for build in every if inside(specifier, f"{build.torch}+{build.name}"))


ANY_TORCH = Want("torch", "", ())


def wants_of(wishes: Wishes, machine: Machine) -> Wants:
    """What these wishes ask for on that machine; raises `UsageError` for a text that is no requirement."""
    given = [*wishes.wants, *wishes.extras, *([torch_requirement(wishes.torch)] if wishes.torch.strip() else [])]
    merged: dict[str, Want] = {}
    others: list[Want] = []
    for text in given:
        asked = _asked(text, machine)
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
    """The wish for a torch release as a requirement: ``torch==2.9.*`` of ``2.9``, ``torch==2.8.0`` of ``2.8.0``."""
    written = written.strip()
    if not written[0].isdigit():
        return f"torch{written}"
    return f"torch=={written}" if written.count(".") > 1 or "+" in written else f"torch=={written}.*"


class _Asked(NamedTuple):
    """A requirement as far as it counts here; `elsewhere` where it names its own place to come from."""

    name: str
    specifier: str
    elsewhere: bool = False


def _asked(text: str, machine: Machine) -> _Asked | None:
    """The requirement; none where its marker does not hold on that machine."""
    if plain := _PLAIN.fullmatch(text):
        return _Asked(plain[1], plain[2] or "")
    from packaging.requirements import InvalidRequirement, Requirement  # costs, and mostly a name is all that is given

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise UsageError(f"{text[:60]!r} is no requirement; write it as for pip: torch>=2.6") from None
    if not _applies(requirement, machine):
        return None
    return _Asked(requirement.name, str(requirement.specifier), bool(requirement.url))


def _applies(requirement: Requirement, machine: Machine) -> bool:
    """Whether its marker holds on that machine; a marker that asks for what is not known does."""
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

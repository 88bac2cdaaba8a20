"""A torch stack: what was wished for which machine, what fits it, and why that and nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gpudoctor.model.distribution import normal
from gpudoctor.model.fact import Absent, Json, Known, listed
from gpudoctor.model.frozen import field, frozen, replace
from gpudoctor.model.plan import Plan, PlanStep
from gpudoctor.model.snapshot import Snapshot

Standing = Literal["chosen", "fits", "rejected"]
MACHINE = ("gpus", "driver", "python", "os", "arch", "libc", "distribution")
"""The wishes that are about the machine: read from it, or said for another one."""
_TEXTS = (*MACHINE[1:], "torch")
_SEVERAL = ("extras", "wants")
TOOLS = ("pip", "uv", "conda")
EMITS = ("command", "requirements", "pyproject", "dockerfile", "environment", "pixi")
EXTRAS = ("torchvision", "torchaudio", "flash-attn", "xformers", "vllm")


@frozen
class GPU:
    """So many GPUs of one model; `compute_capability` is ``9.0``, empty where it is not known."""

    name: str
    compute_capability: str = ""
    count: int = 1


@frozen
class Wishes:
    """The machine, and what is wanted on it. Empty is not known, or left to the solver.

    `python` is ``3.12.3``, or ``3.13t`` for one without the global lock; `os` is linux, windows or wsl; `libc` is
    ``glibc 2.36`` or ``musl``; `distribution` is ``ubuntu 24.04``. `torch` is ``2.9`` or empty for the newest that
    fits, `extras` are names of packages that must go beside it, `wants` are requirements, ``torch>=2.6``. `said` names
    the fields that the user set; the others were read.
    """

    gpus: tuple[GPU, ...] = ()
    driver: str = ""
    python: str = ""
    os: str = ""
    arch: str = ""
    torch: str = ""
    extras: tuple[str, ...] = ()
    tool: str = "pip"
    emit: str = "command"
    said: frozenset[str] = frozenset()
    libc: str = ""
    distribution: str = ""
    wants: tuple[str, ...] = ()

    @property
    def elsewhere(self) -> bool:
        """Whether it is for a machine other than the one that was read."""
        return any(name in self.said for name in MACHINE)

    def saying(self, name: str, value: object) -> Wishes:
        """With that field as the user set it."""
        fields: dict[str, Any] = {name: value, "said": self.said | {name}}
        return replace(self, **fields)

    def remedied(self, remedy: Remedy) -> Wishes:
        """With that change made, and those that it takes besides."""
        changed = self
        for one in (remedy, *remedy.also):
            changed = changed._changed(one.field, one.value)
        return changed

    def _changed(self, name: str, value: str) -> Wishes:
        if name == "wants":
            extras = tuple(item for item in self.extras if item != value)
            wants = tuple(item for item in self.wants if not _asks_for(item, value))
            return replace(self, extras=extras, wants=wants, said=self.said | set(_SEVERAL))
        if name == "gpus":
            return self.saying("gpus", tuple(gpu for gpu in self.gpus if gpu.name in value.split("+")))
        if name == "torch":
            rest = tuple(item for item in self.wants if not _asks_for(item, "torch"))
            return replace(self, wants=rest).saying("torch", value)
        return self.saying(name, value)

    def alike(self, other: Wishes) -> bool:
        """Whether one stack answers both: how it is installed and written down makes no difference to what fits."""
        same = (*MACHINE, "torch")
        several = all(set(getattr(self, name)) == set(getattr(other, name)) for name in _SEVERAL)
        return several and all(getattr(self, name) == getattr(other, name) for name in same)


def _asks_for(requirement: str, package: str) -> bool:
    """Whether a requirement is for that package, as the index spells its name."""
    match = re.match(r"\s*([\w.-]*\w)", requirement)
    return match is not None and normal(match[1]) in (package, f"py{package}")


def wanted(text: str) -> tuple[str, ...]:
    """The requirements of a text: ``torch>=2.6 flash-attn`` and ``torch >= 2.6`` as well."""
    return tuple(filter(None, re.split(r"[\s;]+(?=[A-Za-z])", text.strip())))


GRANTED = "taken for granted, for --for names no other"
"""The source of what a machine that is only described was taken to be."""


def read_from(snapshot: Snapshot) -> Wishes:
    """The machine of a snapshot, as far as its facts tell; the tool is the one that its environment is kept with.

    Where no module is loaded for the GPUs on the bus, the driver is that of the libraries on the disk.
    """

    def known(name: str) -> str:
        state = snapshot.get(name)
        return str(state.value) if isinstance(state, Known) else ""

    unloaded = isinstance(snapshot.get("driver.version"), Absent) and known("pci.nvidia_count") not in ("", "0")
    counted: dict[tuple[str, str], int] = {}
    for row in listed(snapshot.rows("gpu")):
        name, capability = row.get("name"), row.get("compute_capability")
        if isinstance(name, Known):
            key = (str(name.value), str(capability.value) if isinstance(capability, Known) else "")
            counted[key] = counted.get(key, 0) + 1
    installer, glibc = known("python.installer"), known("host.glibc")
    return Wishes(
        gpus=tuple(GPU(name, capability, count) for (name, capability), count in counted.items()),
        driver=known("driver.library_version" if unloaded else "driver.version"),
        python=known("python.version"),
        os="wsl" if known("host.wsl") else known("host.platform"),
        arch=known("host.arch"),
        libc=f"glibc {glibc}" if glibc else "",
        distribution=" ".join(filter(None, (known("host.distribution"), known("host.distribution_version")))),
        tool=installer if installer in TOOLS else "pip",
    )


@frozen
class Reason:
    """Why one candidate was chosen, fits as well, or was rejected: ``CUDA 13.0``, rejected, ``needs driver 580``."""

    candidate: str
    standing: Standing
    because: str


@frozen
class Need:
    """What the stack asks of the machine and what that has: driver, ``525 or newer``, ``535.183.06``, met."""

    what: str
    needed: str
    have: str
    met: bool


@frozen
class Remedy:
    """A smallest change with which something fits: the field of the wishes, its value, and in words.

    `least` is the bound from which on it would do, where the value goes beyond it: driver ``570``, of which the
    distribution ships ``580``. `also` are the changes that it takes besides. The value of ``wants`` is the name of the
    package to leave out, that of ``gpus`` the names that stay, joined by a plus.
    """

    field: str
    value: str
    text: str
    least: str = ""
    also: tuple[Remedy, ...] = ()


@frozen
class Stack:
    """What fits. `torch` is empty where nothing does; then `smallest` says what would have to change.

    `packages` are name and version, torch first; `libraries` are CUDA, cuDNN and NCCL with where they come from.
    `commands` has for each tool its commands, `files` for each other form (requirements, dockerfile, ...) its text.
    `offers` has for each field of the wishes the values that one may ask for.
    """

    wishes: Wishes
    torch: str
    packages: tuple[tuple[str, str], ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()
    needs: tuple[Need, ...] = ()
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""
    """What the reasons are about: ``torch 2.9 comes for CUDA 12.6, 12.8 and 13.0``."""
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()
    smallest: tuple[Remedy, ...] = ()
    downloads_mib: float | None = None
    sources: tuple[str, ...] = ()
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    makes: Mapping[str, Json] = field(default_factory=dict)
    """The facts that hold once it is installed, as a plan's step has them."""

    def written(self, tool: str, emit: str) -> str:
        """The commands as one types them, or the file of that form; empty where the stack has none such."""
        if emit != "command":
            return self.files.get(emit, "")
        return "\n".join(shlex.join(argv) for argv in self.commands.get(tool, ()))

    def plan(self, tool: str, machine: str, environment: str, hindrance: str = "") -> Plan:
        """Its commands as a plan for that environment, or for the new one that the first of them makes.

        `hindrance` is why they cannot be run from here.
        """
        commands = self.commands.get(tool, ())
        installed = ", ".join(f"{name} {version}" for name, version in self.packages)
        steps = [
            PlanStep(
                id=str(number),
                title=_title(argv),
                argv=argv,
                needs=("network",) if "install" in argv else (),
                touches="environment",
                makes_true=installed if number == len(commands) else "",
                hindrance=hindrance,
                makes=tuple(self.makes.items()) if number == len(commands) else (),
            )
            for number, argv in enumerate(commands, 1)
        ]
        return Plan(
            title=f"torch {self.torch}",
            machine=machine,
            steps=tuple(steps),
            environment=commands[0][-1] if commands and "venv" in commands[0] else environment,
            downloads_mib=self.downloads_mib,
        )


def _title(argv: Sequence[str]) -> str:
    """A command in few words: without the path of its program, and of its packages the first two."""
    words = list(argv[2:] if argv[1:2] == ("-m",) else argv)
    packages = [word for word in words[2:] if "==" in word]
    few = f"{' '.join(packages[:2])}{' …' if packages[2:] else ''}" if packages else " ".join(words[2:4])
    return " ".join([*words[: 3 if words[0] == "uv" else 2], few])

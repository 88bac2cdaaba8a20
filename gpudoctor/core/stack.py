"""A torch stack: what was wished for which machine, what fits it, and why that and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from gpudoctor.core.document import object_to_json
from gpudoctor.core.fact import Absent, Json, known, listed, text_of
from gpudoctor.core.frozen import field, frozen, replace
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.system import shell_line
from gpudoctor.core.versions import normal

Standing = Literal["chosen", "fits", "rejected"]
MACHINE = ("gpus", "driver", "python", "os", "arch", "libc", "distribution")
"""The wishes that are about the machine: read from it, or said for another one."""
_SEVERAL = ("extras", "wants")
TOOLS = ("pip", "uv", "conda")
EMITS = ("command", "requirements", "pyproject", "dockerfile", "environment", "pixi")
EXTRAS = ("torchvision", "torchaudio", "flash-attn", "xformers", "vllm")


@frozen
class GPU:
    """A number of GPUs of one model; `compute_capability` is ``9.0``, empty where unknown."""

    name: str
    compute_capability: str = ""
    count: int = 1


@frozen
class Wishes:
    """The machine, and what is wanted on it. Empty is not known, or left to the solver.

    `python` is ``3.12.3``, or ``3.13t`` for one without the global lock; `os` is linux, windows or wsl; `libc` is
    ``glibc 2.36`` or ``musl``; `distribution` is ``ubuntu 24.04``. `torch` is ``2.9`` or empty for the newest that
    fits, `extras` are names of packages that must go beside it, `wants` are requirements, ``torch>=2.6``.
    `set_by_user` names the fields that the user set; the others were read.
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
    set_by_user: frozenset[str] = frozenset()
    libc: str = ""
    distribution: str = ""
    wants: tuple[str, ...] = ()

    @property
    def elsewhere(self) -> bool:
        """Whether the stack is for another machine: the user set a field about it (GPUs, driver, Python, ...)."""
        return any(name in self.set_by_user for name in MACHINE)

    def with_wish(self, name: str, value: object) -> Wishes:
        """A copy with that field set, and noted in `set_by_user`."""
        fields: dict[str, Any] = {name: value, "set_by_user": self.set_by_user | {name}}
        return replace(self, **fields)

    def remedied(self, remedy: Remedy) -> Wishes:
        """A copy with the remedy's change made, and those it requires."""
        changed = self
        for change in (remedy, *remedy.also):
            changed = changed._with_remedy_change(change.field, change.value)
        return changed

    def _with_remedy_change(self, name: str, value: str) -> Wishes:
        """A copy with one change of a remedy made, and noted as set by the user.

        ``wants``: the package `value` is no longer wanted; ``gpus``: only those named in it (``A+B``) stay; ``torch``:
        `value` replaces what was wanted of torch; any other field is set to `value`.
        """
        if name == "wants":
            extras = tuple(item for item in self.extras if item != value)
            wants = tuple(item for item in self.wants if not _asks_for(item, value))
            return replace(self, extras=extras, wants=wants, set_by_user=self.set_by_user | set(_SEVERAL))
        if name == "gpus":
            return self.with_wish("gpus", tuple(gpu for gpu in self.gpus if gpu.name in value.split("+")))
        if name == "torch":
            rest = tuple(item for item in self.wants if not _asks_for(item, "torch"))
            return replace(self, wants=rest).with_wish("torch", value)
        return self.with_wish(name, value)

    def to_json(self) -> dict[str, Json]:
        """The machine's fields, torch, tool, emit, extras and wants; ``said`` lists those set by the user."""
        names = " ".join((*MACHINE, "torch tool emit extras wants"))
        return {**object_to_json(self, names), "said": cast(Json, sorted(self.set_by_user))}

    def alike(self, other: Wishes) -> bool:
        """True if the same stack fits both: equal machine, torch and packages; tool and output form do not count."""
        same = (*MACHINE, "torch")
        several = all(set(getattr(self, name)) == set(getattr(other, name)) for name in _SEVERAL)
        return several and all(getattr(self, name) == getattr(other, name) for name in same)


def _asks_for(requirement: str, package: str) -> bool:
    """Whether the requirement (``torch>=2.6``) is for that package or ``py`` and its name, spelling normalized."""
    match = re.match(r"\s*([\w.-]*\w)", requirement)
    return match is not None and normal(match[1]) in (package, f"py{package}")


def parse_requirements(text: str) -> tuple[str, ...]:
    """The requirements in ``torch>=2.6 flash-attn``, split at blanks and ``;``; operators may have blanks around."""
    return tuple(filter(None, re.split(r"[\s;]+(?=[A-Za-z])", text.strip())))


def wishes_from_snapshot(snapshot: Snapshot) -> Wishes:
    """The machine's fields from a snapshot, empty where unknown; its tool is the installer, else pip.

    Where the driver's version is Absent although NVIDIA devices are on the PCI bus, the driver is that of the installed
    libraries.
    """
    unloaded = isinstance(snapshot.get("driver.version"), Absent) and snapshot.text("pci.nvidia_count") not in ("", "0")
    counted = Counter(
        (text_of(row["name"]), text_of(row.get("compute_capability")))
        for row in listed(snapshot.rows("gpu"))
        if known(row.get("name"))
    )
    installer, glibc = snapshot.text("python.installer"), snapshot.text("host.glibc")
    return Wishes(
        gpus=tuple(GPU(name, capability, count) for (name, capability), count in counted.items()),
        driver=snapshot.text("driver.library_version" if unloaded else "driver.version"),
        python=snapshot.text("python.version"),
        os="wsl" if snapshot.text("host.wsl") else snapshot.text("host.platform"),
        arch=snapshot.text("host.arch"),
        libc=f"glibc {glibc}" if glibc else "",
        distribution=" ".join(
            filter(None, (snapshot.text("host.distribution"), snapshot.text("host.distribution_version")))
        ),
        tool=installer if installer in TOOLS else "pip",
    )


@frozen
class Reason:
    """Why a candidate was chosen, fits too, or was rejected: ``CUDA 13.0``, rejected, ``needs driver 580``."""

    candidate: str
    standing: Standing
    because: str


@frozen
class Need:
    """One requirement of the stack and what the machine has: driver, ``525 or newer``, ``535.183.06``, met.

    `because` names what sets it, where several could: ``CUDA 12.8``, ``RTX 5090``.
    """

    what: str
    needed: str
    have: str
    met: bool
    because: str = ""


@frozen
class Remedy:
    """A smallest change with which something fits: the field of the wishes, its value, and in words.

    `least` is the bound from which on it would do, where the value goes beyond it: driver ``570``, of which the
    distribution ships ``580``. `also` are the changes that it takes besides. The value of ``wants`` is the name of the
    package to leave out, that of ``gpus`` the names that stay, joined by a plus. `commands` are what to type for it,
    in order, each an argv; empty where no command of gpudoctor makes the change. `installs` are the commands of pip
    that install what fits then, by the tables.
    """

    field: str
    value: str
    text: str
    least: str = ""
    also: tuple[Remedy, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    installs: tuple[tuple[str, ...], ...] = ()


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
        """For ``command`` the tool's commands, one a line, else the text of that file; empty where there is none."""
        if emit != "command":
            return self.files.get(emit, "")
        return "\n".join(shell_line(argv) for argv in self.commands.get(tool, ()))

    def plan(self, tool: str, machine: str, environment: str, hindrance: str = "") -> Plan:
        """The tool's commands as a plan for that environment, or for the new one that the first of them makes.

        `hindrance` is why they cannot be run from here.
        """
        commands = self.commands.get(tool, ())
        installed = ", ".join(f"{name} {version}" for name, version in self.packages)
        steps = [
            PlanStep(
                id=str(number),
                title=_command_title(argv),
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


def _command_title(argv: Sequence[str]) -> str:
    """A short title of a command, ``pip install torch==2.9.0 numpy==2.1 …``: no ``python -m``, two packages at most."""
    words = list(argv[2:] if argv[1:2] == ("-m",) else argv)
    packages = [word for word in words[2:] if "==" in word]
    few = f"{' '.join(packages[:2])}{' …' if packages[2:] else ''}" if packages else " ".join(words[2:4])
    return " ".join([*words[: 3 if words[0] == "uv" else 2], few])


# ---- As a document ----

SCHEMA = "gpudoctor-stack/1"


def to_json(stack: Stack) -> dict[str, Json]:
    """The document ``gpudoctor-stack/1`` with all fields of the stack."""
    return {"schema": SCHEMA, **object_to_json(stack)}

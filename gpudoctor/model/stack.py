"""A torch stack: what was wished for which machine, what fits it, and why that and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Json, Known
from gpudoctor.model.plan import Plan, PlanStep, text, texts
from gpudoctor.model.snapshot import Snapshot

SCHEMA = "gpudoctor-stack/1"
Standing = Literal["chosen", "fits", "rejected"]
MACHINE = ("gpus", "driver", "python", "os", "arch")
"""The wishes that are about the machine: read from it, or said for another one."""
TOOLS = ("pip", "uv", "conda")
EMITS = ("command", "requirements", "dockerfile")
EXTRAS = ("torchvision", "torchaudio", "triton", "flash-attn", "xformers", "vllm")


@dataclass(frozen=True, slots=True)
class GPU:
    """So many GPUs of one model; `compute_capability` is ``9.0``, empty where it is not known."""

    name: str
    compute_capability: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Wishes:
    """The machine, and what is wanted on it. Empty is not known, or left to the solver.

    `torch` is ``2.9`` or empty for the newest that fits. `said` names the fields that the user set; the others were
    read.
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

    @property
    def elsewhere(self) -> bool:
        """Whether it is for a machine other than the one that was read."""
        return any(name in self.said for name in MACHINE)

    def saying(self, name: str, value: object) -> Wishes:
        """With that field as the user set it."""
        fields: dict[str, Any] = {name: value, "said": self.said | {name}}
        return replace(self, **fields)

    def alike(self, other: Wishes) -> bool:
        """Whether one stack answers both: how it is installed and written down makes no difference to what fits."""
        same = (*MACHINE, "torch")
        return all(getattr(self, name) == getattr(other, name) for name in same) and set(self.extras) == set(
            other.extras
        )

    def to_json(self) -> dict[str, Json]:
        """A document that `wishes_from_json` takes back."""
        gpus = [
            {"name": gpu.name, "compute_capability": gpu.compute_capability, "count": gpu.count} for gpu in self.gpus
        ]
        return {
            "gpus": cast(Json, gpus),
            **{name: getattr(self, name) for name in ("driver", "python", "os", "arch", "torch", "tool", "emit")},
            "extras": list(self.extras),
            "said": cast(Json, sorted(self.said)),
        }


def read_from(snapshot: Snapshot) -> Wishes:
    """The machine of a snapshot, as far as its facts tell; the tool is the one that its environment is kept with."""

    def known(name: str) -> str:
        state = snapshot.get(name)
        return str(state.value) if isinstance(state, Known) else ""

    counted: dict[tuple[str, str], int] = {}
    rows = snapshot.rows("gpu")
    for row in rows if isinstance(rows, tuple) else ():
        name, capability = row.get("name"), row.get("compute_capability")
        if isinstance(name, Known):
            key = (str(name.value), str(capability.value) if isinstance(capability, Known) else "")
            counted[key] = counted.get(key, 0) + 1
    installer = known("python.installer")
    return Wishes(
        gpus=tuple(GPU(name, capability, count) for (name, capability), count in counted.items()),
        driver=known("driver.version"),
        python=known("python.version"),
        os=known("host.platform"),
        arch=known("host.arch"),
        tool=installer if installer in TOOLS else "pip",
    )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one candidate was chosen, fits as well, or was rejected: ``CUDA 13.0``, rejected, ``needs driver 580``."""

    candidate: str
    standing: Standing
    because: str


@dataclass(frozen=True, slots=True)
class Need:
    """What the stack asks of the machine and what that has: driver, ``525 or newer``, ``535.183.06``, met."""

    what: str
    needed: str
    have: str
    met: bool


@dataclass(frozen=True, slots=True)
class Remedy:
    """The smallest change with which something fits: the field of the wishes, its value, and in words."""

    field: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Stack:
    """What fits. `torch` is empty where nothing does; then `smallest` says what would have to change.

    `packages` are name and version, torch first; `libraries` are CUDA, cuDNN and NCCL with where they come from.
    `commands` has for each tool its commands, `files` for each other form (requirements, dockerfile) its text.
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

    def written(self, tool: str, emit: str) -> str:
        """The commands as one types them, or the file of that form; empty where the stack has none such."""
        if emit != "command":
            return self.files.get(emit, "")
        return "\n".join(shlex.join(argv) for argv in self.commands.get(tool, ()))

    def plan(self, tool: str, machine: str, environment: str, hindrance: str = "") -> Plan:
        """Its commands as a plan for that environment; `hindrance` is why they cannot be run from here."""
        steps = [
            PlanStep(
                id=str(number),
                title=" ".join(argv[:4]) if len(argv) > 4 else shlex.join(argv),
                argv=argv,
                needs=("network",),
                touches="environment",
                makes_true=", ".join(f"{name} {version}" for name, version in self.packages),
                hindrance=hindrance,
            )
            for number, argv in enumerate(self.commands.get(tool, ()), 1)
        ]
        return Plan(
            title=f"torch {self.torch}",
            machine=machine,
            steps=tuple(steps),
            environment=environment,
            downloads_mib=self.downloads_mib,
        )

    def to_json(self) -> dict[str, Json]:
        """A document that `from_json` takes back."""
        return {
            "schema": SCHEMA,
            "wishes": cast(Json, self.wishes.to_json()),
            "torch": self.torch,
            "packages": cast(Json, [list(item) for item in self.packages]),
            "libraries": cast(Json, [list(item) for item in self.libraries]),
            "needs": [
                {"what": need.what, "needed": need.needed, "have": need.have, "met": need.met} for need in self.needs
            ],
            "commands": {tool: cast(Json, [list(argv) for argv in argvs]) for tool, argvs in self.commands.items()},
            "files": dict(self.files),
            "heading": self.heading,
            "reasons": [
                {"candidate": item.candidate, "standing": item.standing, "because": item.because}
                for item in self.reasons
            ],
            "remarks": list(self.remarks),
            "smallest": [{"field": item.field, "value": item.value, "text": item.text} for item in self.smallest],
            "downloads_mib": self.downloads_mib,
            "sources": list(self.sources),
            "offers": {name: list(values) for name, values in self.offers.items()},
        }


def from_json(raw: object) -> Stack:
    """The inverse of `Stack.to_json`; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != SCHEMA:
            raise DocumentError(f"schema {str(document['schema'])[:40]!r} is not {SCHEMA}")
        size = document.get("downloads_mib")
        return Stack(
            wishes=wishes_from_json(document["wishes"]),
            torch=text(document["torch"]),
            packages=_pairs(document.get("packages", ())),
            libraries=_pairs(document.get("libraries", ())),
            needs=tuple(
                Need(text(n["what"]), text(n["needed"]), text(n["have"]), bool(n["met"]))
                for n in document.get("needs", ())
            ),
            commands={
                str(tool): tuple(texts(argv) for argv in argvs) for tool, argvs in document.get("commands", {}).items()
            },
            files={str(name): text(content) for name, content in document.get("files", {}).items()},
            heading=text(document.get("heading", "")),
            reasons=tuple(_reason(item) for item in document.get("reasons", ())),
            remarks=texts(document.get("remarks", ())),
            smallest=tuple(
                Remedy(text(item["field"]), text(item["value"]), text(item["text"]))
                for item in document.get("smallest", ())
            ),
            downloads_mib=None if size is None else float(size),
            sources=texts(document.get("sources", ())),
            offers={str(name): texts(values) for name, values in document.get("offers", {}).items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole stack: {type(error).__name__} {error}") from error


def wishes_from_json(raw: object) -> Wishes:
    """The inverse of `Wishes.to_json`; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        return Wishes(
            gpus=tuple(
                GPU(text(gpu["name"]), text(gpu.get("compute_capability", "")), int(gpu.get("count", 1)))
                for gpu in document.get("gpus", ())
            ),
            **{name: text(document.get(name, "")) for name in ("driver", "python", "os", "arch", "torch")},
            tool=text(document.get("tool", "pip")),
            emit=text(document.get("emit", "command")),
            extras=texts(document.get("extras", ())),
            said=frozenset(texts(document.get("said", ()))),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not whole wishes for a stack: {type(error).__name__} {error}") from error


def _reason(raw: Mapping[str, Any]) -> Reason:
    if raw["standing"] not in get_args(Standing):
        raise ValueError(f"{str(raw['standing'])[:40]!r} is neither chosen, fits nor rejected")
    return Reason(text(raw["candidate"]), raw["standing"], text(raw["because"]))


def _pairs(raw: Sequence[Sequence[Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((text(name), text(value)) for name, value in raw)

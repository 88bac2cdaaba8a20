"""What facts there are: each probe and reader declares its own, by name, type, unit and meaning; its topic follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from typing import Literal

from gpudoctor.core.errors import RuleError, UsageError
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.frozen import frozen
from gpudoctor.core.snapshot import Snapshot

Kind = Literal["text", "version", "int", "float", "bool", "list", "map"]
_TYPES: Mapping[Kind, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "text"),
    "version": (str, "a version as text"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
    "list": (tuple, "a list"),
    "map": (Mapping, "an object"),
}


@frozen
class FactSpec:
    """One fact's name, type and meaning.

    `name` is dotted (``driver.version``). Where `group` is true the part before the last dot names a list of
    things and the last part a column of it (``gpu.name`` is the name of each GPU). ``env.*`` stands for any name.
    """

    name: str
    kind: Kind
    about: str
    unit: str = ""
    group: bool = False


def fact(name: str, kind: Kind, about: str, unit: str = "") -> FactSpec:
    """The declaration of a fact of the machine."""
    return FactSpec(name, kind, about, unit)


def column(name: str, kind: Kind, about: str, unit: str = "") -> FactSpec:
    """The declaration of a column of a group: ``gpu.name``."""
    return FactSpec(name, kind, about, unit, group=True)


class Catalog:
    """All declared facts by name; raises `RuleError` for two different declarations of one name or a Python keyword."""

    def __init__(self, specs: Iterable[FactSpec]) -> None:
        self.specs: dict[str, FactSpec] = {}
        for spec in specs:
            if any(iskeyword(part) for part in spec.name.split(".")):
                raise RuleError(f"fact {spec.name}: no condition could name it, for a part of it is a Python keyword")
            known = self.specs.setdefault(spec.name, spec)
            if known != spec:
                raise RuleError(f"fact {spec.name} is declared twice, differently")
        self.groups = frozenset(name.rpartition(".")[0] for name, spec in self.specs.items() if spec.group)

    def find(self, name: str) -> FactSpec | None:
        """The declaration of that fact, also through a wildcard such as ``env.*``; None where there is none."""
        return self.specs.get(name) or self.specs.get(name.rpartition(".")[0] + ".*")

    def misfits(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield messages on known facts whose value is not of the declared kind; undeclared names are allowed."""
        facts = list(snapshot.facts.items())
        for group, rows in snapshot.groups.items():
            for row in listed(rows):
                facts += [(f"{group}.{column}", state) for column, state in row.items()]
        for name, state in facts:
            spec = self.find(name)
            if spec and isinstance(state, Known) and not fits(state.value, spec.kind):
                yield f"{name} is {str(state.value)[:40]!r}, not {_TYPES[spec.kind][1]}"


def kind_name(kind: Kind) -> str:
    """The kind in words: ``a whole number`` for ``int``."""
    return _TYPES[kind][1]


def fits(value: object, kind: Kind) -> bool:
    """Whether the value is of that kind: a float may be whole, a list is a tuple, True and False are only bool."""
    return isinstance(value, _TYPES[kind][0]) and (kind == "bool" or not isinstance(value, bool))


# ---- Units ----
# What an operator writes (``64 GiB``) in the unit that a fact is in (``MiB``).

_METRIC = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def _family(base: str, *more: str, binary: bool = False) -> dict[str, float]:
    """Units of one family and their factors to the base, with metric and (`binary`) binary prefixes."""
    prefixes = {**_METRIC, **(_BINARY if binary else {})}
    return {f"{prefix}{name}": factor for name in (base, *more) for prefix, factor in prefixes.items()}


_FAMILIES: tuple[Mapping[str, float], ...] = (
    _family("B", binary=True),
    _family("B/s", binary=True),
    _family("b/s", "bit/s"),
    _family("Hz"),
    {**_family("W"), "mW": 1e-3},
    _family("FLOP/s", "FLOPS"),
    _family("OP/s"),
    {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    {"degrees C": 1.0, "°C": 1.0, "C": 1.0},
    {"%": 1.0},
    {"GT/s per lane": 1.0, "GT/s": 1.0},
)
_ALIASES = {"bytes": "B"}


def unit_factor(written: str, unit: str) -> float:
    """The factor that converts a number in the unit `written` to `unit`: 1024 for ``GiB`` to ``MiB``.

    1 where none is written. Raises `UsageError` where the units measure different things or are not known.
    """
    if not written or written == unit:
        return 1.0
    own = _ALIASES.get(unit, unit)
    for family in _FAMILIES:
        if written in family and own in family:
            return family[written] / family[own]
    if not unit:
        raise UsageError(f"{written} does not go with it, for it is a number without a unit")
    raise UsageError(f"{written} does not go with it, for it is in {unit}")


# ---- What facts are about ----
# By the first part of their names: the order in which they are listed and compared.

TOPICS: Mapping[str, tuple[str, ...]] = {
    "driver": (
        "driver",
        "nvml",
        "cuda_driver",
        "cuda_device",
        "node",
        "kernel_log",
        "xid",
        "sxid",
        "stuck",
        "driver_event",
    ),
    "gpu": ("gpu", "gpu_ecc", "gpu_process", "mig", "nvlink", "fabric", "imex", "p2p", "rate", "deviation"),
    "kernels": ("measured", "memory_fault", "rung", "soak", "best"),
    "bus": ("pci", "aer", "gpu_path", "gpu_pair", "topology"),
    "torch": ("torch", "live", "live_gpu", "pin", "triton"),
    "libraries": ("libs", "lib", "cuda", "toolkit", "extension", "bitsandbytes", "jax", "tf"),
    "environment": ("env", "container", "request", "service", "limits", "wsl", "kubernetes", "kubernetes_node"),
    "python": ("python", "package", "manifest", "requirement"),
    "network": ("nccl", "libnccl", "net", "interface", "setting", "rdma", "link_loss", "tried"),
    "cluster": (
        *(
            "fleet",
            "machine",
            "silence",
            "outlier",
            "split",
            "job",
            "rank",
            "rank_group",
            "job_host",
            "barrier",
            "suspect",
            "rail",
        ),
        *("link", "flow", "collective", "canary"),
    ),
    "run": ("run", "failure", "run_process", "run_gpu", "worker_end", "crash"),
    "host": (
        *("host", "windows", "display", "path_dll", "package_change", "mce", "oom", "fitness", "space", "write_error"),
        "slurm_node",
    ),
}
"""Where a fact is shown, by the first part of its name; the most telling first."""
OTHER = "other"
"""Where all other facts are shown."""

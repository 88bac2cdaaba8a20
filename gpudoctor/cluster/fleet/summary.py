"""What is kept of one host's document: the facts that are compared and its findings in short. The rest is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, cast, get_args

from gpudoctor.core.diagnosis import Verdict
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.rule import CONFIDENCES, LAYERS, SEVERITIES, Confidence, Role, Severity

Answers = Mapping[str, Any]
"""The ``facts`` of a document as JSON: entries with ``value``, ``absent`` or ``unread``, or lists of rows of these."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A fact that should be the same on hosts of one kind.

    `matters`: jobs over hosts that differ in it fail, or wait for the worse one. Numbers within `near` (a share) of
    the median count as equal to it.
    """

    fact: str
    about: str
    matters: bool = False
    near: float = 0.0


NOT_THERE = "not there"
"""What a host says of a fact that it knows not to be there: a variable that is not set, torch that is not installed."""

SCALARS = (
    Compared("driver.version", "driver", matters=True),
    Compared("driver.module_kind", "kind of kernel module"),
    Compared("driver.gsp_firmware", "GSP firmware"),
    Compared("driver.fabric_manager_version", "fabric manager", matters=True),
    Compared("driver.cuda_version", "CUDA of the driver"),
    Compared("driver.peermem_loaded", "nvidia_peermem loaded"),
    Compared("imex.version", "IMEX"),
    Compared("cuda.nvcc_version", "CUDA toolkit"),
    Compared("torch.version", "torch", matters=True),
    Compared("torch.cuda", "CUDA of torch", matters=True),
    Compared("torch.nccl", "NCCL", matters=True),
    Compared("torch.cudnn", "cuDNN"),
    Compared("libnccl.version", "NCCL library", matters=True),
    Compared("net.nccl_interface", "interface that NCCL takes", matters=True),
    Compared("net.gloo_interface", "interface that Gloo takes", matters=True),
    Compared("net.plugin", "network plugin of NCCL", matters=True),
    Compared("net.firewall", "firewall"),
    Compared("triton.version", "Triton"),
    Compared("python.version", "Python"),
    Compared("host.os", "operating system"),
    Compared("host.kernel", "kernel"),
    Compared("host.glibc", "C library"),
    Compared("host.iommu", "IOMMU"),
    Compared("host.memory_mib", "memory in MiB", near=0.02),
    Compared("limits.shm_mib", "/dev/shm in MiB", near=0.02),
    Compared("limits.memlock_kib", "memlock limit in KiB", matters=True),
    Compared("limits.open_files", "limit of open files"),
    Compared("limits.cpus", "processors"),
    Compared("topology.numa_nodes", "NUMA nodes"),
    Compared("topology.nvswitches", "NVSwitches"),
    Compared("fitness.hugepages", "huge pages"),
    Compared("fitness.transparent_hugepages", "transparent huge pages"),
    Compared("fitness.numa_balancing", "NUMA balancing"),
    Compared("fitness.clock_source", "clock source"),
    Compared("fitness.governors", "frequency governor"),
)
"""Facts of a machine. Their names are those of `gpudoctor explain`."""

COLUMNS = (
    Compared("gpu.name", "GPUs", matters=True),
    Compared("gpu.memory_mib", "GPU memory in MiB", matters=True),
    Compared("gpu.vbios", "VBIOS"),
    Compared("gpu.inforom", "InfoROM"),
    Compared("gpu.ecc", "ECC"),
    Compared("gpu.mig", "MIG"),
    Compared("gpu.persistence", "persistence mode"),
    Compared("gpu.power_limit_w", "power limit in W", matters=True),
    Compared("gpu.clock_max_mhz", "highest SM clock in MHz", matters=True),
    Compared("gpu.memory_clock_max_mhz", "highest memory clock in MHz", matters=True),
    Compared("gpu.application_clock_mhz", "application clock in MHz"),
    Compared("gpu.link_generation_max", "PCIe generation", matters=True),
    Compared("gpu.link_width_max", "PCIe lanes", matters=True),
    Compared("gpu.links", "NVLinks", matters=True),
    Compared("rdma.model", "network adapters", matters=True),
    Compared("rdma.firmware", "firmware of network adapters"),
    Compared("rdma.rate", "rate of network adapters", matters=True),
    Compared("rdma.state", "state of network adapters", matters=True),
)
"""Columns of groups: a host's value is every value there is, with how often: ``8 × 1980``."""

MTU = Compared("interface.mtu", "MTU of the interface that NCCL takes", matters=True)
"""Other interfaces lead to management networks and containers, and differ as they like."""

VARIABLES = ("env.NCCL_", "env.TORCH_NCCL_", "env.GLOO_")
"""Beginnings of the names of variables that every rank must have alike, also where a file sets them."""
_OWN = ("env.NCCL_DEBUG_FILE", "env.NCCL_HOSTID")
"""Of these, what each host has of its own."""

_BY_NAME = {how.fact: how for how in (*SCALARS, *COLUMNS, MTU)}


def comparison_of(fact: str) -> Compared:
    """How a fact is compared between hosts; one not in the tables is an environment variable, which always matters."""
    return _BY_NAME.get(fact) or Compared(fact, fact.removeprefix("env."), matters=True)


def compared_values(facts: Answers) -> Iterator[tuple[str, str]]:
    """(fact name, value as text) of each compared fact of a document, ``not there`` if absent; unread ones are left
    out.
    """
    for how in SCALARS:
        if (value := _fact_text(facts.get(how.fact))) is not None:
            yield how.fact, "unlimited" if value == "-1" and how.fact.startswith("limits.") else value
    for how in COLUMNS:
        if (value := _column_text(facts, how.fact)) is not None:
            yield how.fact, value
    if (mtu := _nccl_interface_mtu(facts)) is not None:
        yield MTU.fact, mtu
    yield from _communication_variables(facts).items()


def _nccl_interface_mtu(facts: Answers) -> str | None:
    """MTU of the interface that NCCL uses, as text; None if it is not known."""
    taken = value_in(facts.get("net.nccl_interface"))
    row = next((row for row in rows_of(facts, "interface") if taken and value_in(row.get("name")) == taken), None)
    return None if row is None else _fact_text(row.get("mtu"))


def _communication_variables(facts: Answers) -> dict[str, str]:
    """NCCL and Gloo variables in effect, by fact name: of the environment, else of a file such as /etc/nccl.conf;
    without those that each host has of its own (NCCL_DEBUG_FILE, NCCL_HOSTID).
    """
    found = {
        f"env.{name}": str(value_in(row.get("value")))
        for row in rows_of(facts, "setting")
        if (name := value_in(row.get("name"))) and f"env.{name}".startswith(VARIABLES)
    }
    for name, entry in facts.items():
        if name.startswith(VARIABLES) and (text := _fact_text(entry)) is not None and text != NOT_THERE:
            found[name] = text
    return {name: text for name, text in found.items() if name not in _OWN}


def value_in(entry: object) -> Any:
    """The ``value`` of a fact in JSON; None if it is absent, unread or no fact."""
    return entry.get("value") if isinstance(entry, Mapping) else None


def rows_of(facts: Answers, group: str) -> Sequence[Mapping[str, Any]]:
    """Rows of a group in JSON; empty if the group is absent or unread."""
    found = facts.get(group)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else ()


def _fact_text(entry: object) -> str | None:
    """A fact's value as text; `NOT_THERE` if absent, None if unread."""
    if not isinstance(entry, Mapping) or "unread" in entry:
        return None
    return NOT_THERE if "absent" in entry else _value_text(entry.get("value"))


def _column_text(facts: Answers, name: str) -> str | None:
    """Values of a group's column with their counts, ``8 × 1980``, most frequent first. `NOT_THERE` if the group is
    absent or empty, None if it, or the column in any row, is unread.
    """
    group, _, column = name.partition(".")
    found = facts.get(group)
    if not isinstance(found, list):
        return NOT_THERE if isinstance(found, Mapping) and "absent" in found else None
    counts: dict[str, int] = {}
    for row in rows_of(facts, group):
        text = _fact_text(row.get(column))
        if text is None:
            return None  # of some of them it is not known
        counts[text] = counts.get(text, 0) + 1
    return counts_phrase(counts) or NOT_THERE


def counts_phrase(counts: Mapping[str, int]) -> str:
    """Counts as text, most frequent first: ``7 × 1980, 1 × 1410``."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} × {text}" for text, count in ordered)


def _value_text(value: object) -> str:
    """JSON value as text: booleans as yes/no, lists joined by commas (``none`` if empty)."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value_text, value)) or "none"
    return str(value)


# ---- A host in short ----

_NAMES = ("gpu", "uuid", "address", "rank", "nic", "port", "interface", "process")
"""Keys of a subject that tell which part of the host it is."""
_MOST_SUBJECTS = 16
"""Subjects of one finding that are kept."""
LONGEST_TITLE = 300
"""Characters of a title that are kept."""


@dataclass(frozen=True, slots=True)
class HostFinding:
    """One finding of one host, shortened."""

    id: str
    layer: str
    severity: Severity
    role: Role
    confidence: Confidence
    title: str
    subjects: tuple[Mapping[str, str | int], ...] = field(default=(), compare=False)
    """The GPUs, ports and so on of that host that it is about."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate of the slowest GPU of a host in one kernel; `gpu` is its index, -1 if all were measured together."""

    value: float
    unit: str
    gpu: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What is kept of one host; `because`: why there is no readable answer; all other fields are empty then."""

    host: str
    because: str = ""
    verdict: Verdict = "unknown"
    level: str = ""
    tool: str = ""
    findings: tuple[HostFinding, ...] = ()
    passed: Mapping[str, int] = field(default_factory=dict)
    """How many rules passed, by layer."""
    unjudged: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """The facts that are compared, by name; of what could not be read there is no entry."""
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """By kernel."""
    gpus: int = 0
    gpu: str = ""
    """Their name; several are separated by commas. Only hosts with the same are compared."""
    switch: str = ""

    @property
    def answered(self) -> bool:
        """True if the host gave a readable answer."""
        return not self.because


def unanswered_summary(host: str, because: str) -> Summary:
    """Summary of a host without a readable answer, for that reason (``no answer`` if empty)."""
    return Summary(host, because or "no answer")


def summary_of(document: Mapping[str, Any], layers: Mapping[str, str], host: str = "") -> Summary:
    """Summary of a diagnosis document (JSON). `layers` maps rule ids to layers; `host` overrides the name in it.
    Raises `DocumentError` for a document that does not follow the schema. Repeated strings are interned to save memory.
    """
    try:
        facts = cast(Answers, document["facts"])
        target = document["target"]
        gpus = rows_of(facts, "gpu")
        names = sorted({str(name) for row in gpus if (name := value_in(row.get("name")))})
        return Summary(
            host=intern(host or target["name"]),
            verdict=_checked_choice(document["verdict"], get_args(Verdict)),
            level=intern(target["level"]),
            tool=intern(document["tool"]["version"]),
            findings=tuple(_host_finding(item) for item in document["findings"]),
            passed=_count_by_layer(document.get("passed", ()), layers),
            unjudged=_count_by_layer((item["id"] for item in document["unjudged"]), layers),
            values={intern(name): intern(each) for name, each in compared_values(facts)},
            rates=dict(_slowest_rates(facts)),
            gpus=len(gpus),
            gpu=intern(", ".join(names)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole diagnosis document: {type(error).__name__} {error}") from error


def _host_finding(raw: Mapping[str, Any]) -> HostFinding:
    """A finding in short from its JSON: title cut at 300 characters, at most 16 subjects. Missing fields raise
    KeyError, invalid ones ValueError.
    """
    rule = intern(raw["id"])
    return HostFinding(
        rule,
        intern(raw.get("layer") or rule.partition(".")[0]),
        _checked_choice(raw["severity"], SEVERITIES),
        _checked_choice(raw["role"], get_args(Role)),
        _checked_choice(raw["confidence"], CONFIDENCES),
        intern(str(raw["title"])[:LONGEST_TITLE]),
        tuple(filter(None, map(_subject_keys, (raw.get("subjects") or [raw.get("subject")])[:_MOST_SUBJECTS]))),
    )


def _subject_keys(subject: Mapping[str, Any] | None) -> dict[str, str | int]:
    """The keys of a subject that identify a part of the host (gpu, uuid, rank, port, ...); empty for None."""
    known = {name: (subject or {}).get(name) for name in _NAMES}
    return {name: value for name, value in known.items() if isinstance(value, (str, int))}


def _checked_choice(value: Any, allowed: Iterable[Any]) -> Any:
    """The value if it is one of `allowed`, else ValueError."""
    if value not in allowed:
        raise ValueError(f"{str(value)[:40]!r} is none of {', '.join(map(str, allowed))}")
    return value


def _count_by_layer(ids: Iterable[str], layers: Mapping[str, str]) -> dict[str, int]:
    """Number of rules per layer; an unknown rule counts by its id's first part, or not at all if that is no layer."""
    counts: dict[str, int] = {}
    for rule in ids:
        layer = layers.get(rule) or rule.partition(".")[0]
        if layer in LAYERS:
            counts[layer] = counts.get(layer, 0) + 1
    return counts


def _slowest_rates(facts: Answers) -> Iterable[tuple[str, Rate]]:
    """(kernel, rate of its slowest GPU) for each kernel measured in units per second; training steps are left out."""
    slowest: dict[str, Rate] = {}
    for row in rows_of(facts, "measured"):
        kernel, value, unit = (value_in(row.get(name)) for name in ("kernel", "value", "unit"))
        if (
            not isinstance(value, (int, float))
            or not str(unit).endswith("/s")
            or value_in(row.get("rung")) == "training"
        ):
            continue
        rate = slowest.get(str(kernel))
        if rate is None or value < rate.value:
            gpu = value_in(row.get("gpu"))
            slowest[intern(str(kernel))] = Rate(value, intern(str(unit)), gpu if isinstance(gpu, int) else -1)
    return slowest.items()

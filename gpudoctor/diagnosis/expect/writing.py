"""A profile from machines that are as they should be: what they have in common, with what it means beside each line."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.core.about import __version__
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Absent, Fact, Value, known, listed, text_of, value_of
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expression import show
from gpudoctor.kernels.specs import all_kernels

_HEAD = """\
What a machine must be, written by gpudoctor {version} on {today} from {count}.
Check another one against it: gpudoctor check --expect FILE, or preflight, read or fleet with --expect FILE.

Each line is a fact and what it must be; of GPUs, links and ports it must be so of each. To loosen a line write a \
range (">= 8, < 10"), one of several (["A", "B"]), {{ is = ..., severity = "warning" }}, or a # before it. What a fact \
means: gpudoctor explain FACT. More can be asked, of any fact and with any condition: gpudoctor expect --help.
"""
_LINE_WIDTH = 116
_COMMENT_COLUMN = 44
"""Where comments begin."""
_RATE_SHARE = 0.9
"""Of the slowest rate that was measured: how much another machine must reach."""


def profile_text(snapshots: Sequence[Snapshot], today: str, name: str = "") -> str:
    """A profile as TOML of what these machines have in common; raises `UsageError` where nothing is known.

    `today` is written as 2026-11-22; the snapshots are complete (`gpudoctor.diagnosis.knowledge.complete`).
    """
    tables = (_expect_table, _rdma_lines, _mig_lines, _measure_table)
    blocks = ["\n".join(block) for table in tables if (block := table(snapshots))]
    if not blocks or not any("=" in block for block in blocks):
        raise UsageError(say("nothing that another machine could be held to is known of this one"))
    count = "one machine" if len(snapshots) == 1 else f"{len(snapshots)} machines"
    head = _HEAD.format(version=__version__, today=today, count=count)
    lines = [f"# {line}".rstrip() for part in head.split("\n") for line in textwrap.wrap(part, _LINE_WIDTH) or [""]]
    first = snapshots[0]
    title = f"profile = {toml_string(name or _profile_name(first))}\nabout = {toml_string(_machine_summary(first))}"
    return "\n\n".join(["\n".join(lines).rstrip("# \n"), title, *blocks])


def _expect_table(snapshots: Sequence[Snapshot]) -> list[str]:
    """TOML lines of the table ``[expect]``, under headings; empty where no fact is kept."""
    out: list[str] = []
    for heading, kept in KEPT.items():
        lines = [line for entry in kept for line in _fact_lines(entry, snapshots)]
        if lines:
            out += ["", f"# {heading}", *lines]
    return ["[expect]", *out[1:]] if out else []


def _fact_lines(kept: Kept, snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """TOML of one kept fact as its policy has it, commented with what it means; nothing where no machine knows it, or
    where the policy gives nothing for its only value.

    Only a comment where it is not known in every row of every machine, or where it has several values and the policy
    gives nothing; with `none_if_absent`, ``{ present = false }`` where it is absent on all.
    """
    states = [state for snapshot in snapshots for state in _facts_of(kept.fact, snapshot)]
    values = _distinct_values(states)
    spec = catalog().find(kept.fact)
    about = " ".join((spec.about if spec else "").split())
    if kept.policy is none_if_absent and states and all(isinstance(state, Absent) for state in states):
        yield from _with_comment(f"{toml_key(kept.fact)} = {{ present = false }}", about)
    if not values:
        return
    count_known = sum(known(state) is not None for state in states)
    if count_known < len(states):
        yield f"# {toml_key(kept.fact)}: known of {count_known} of {len(states)} only"
        return
    wanted = kept.policy(values)
    if wanted:
        unit = f", in {spec.unit}" if spec and spec.unit else ""
        yield from _with_comment(
            f"{toml_key(kept.fact)} = {wanted}", f"{about}{unit}{f'; {kept.more}' if kept.more else ''}"
        )
    elif len(values) > 1:
        yield f"# {toml_key(kept.fact)} differs: {toml_array([str(value) for value in values[:6]])}"


def _with_comment(line: str, about: str) -> Iterator[str]:
    """The line with ``# about`` behind it, or on a line before it where either is long."""
    if len(line) > _COMMENT_COLUMN or _COMMENT_COLUMN + len(about) > _LINE_WIDTH:
        yield f"# {about}"
        yield line
    else:
        yield f"{line:{_COMMENT_COLUMN}}  # {about}"


def _facts_of(fact: str, snapshot: Snapshot) -> list[Fact]:
    """The fact in every row of its group, else the one fact of the machine; unread in rows that lack it."""
    spec = catalog().find(fact)
    if spec is None or not spec.group:
        return [snapshot.get(fact)]
    group, _, column = fact.rpartition(".")
    return [row.get(column) or snapshot.unanswered for row in listed(snapshot.rows(group))]


def _distinct_values(states: Sequence[Fact]) -> list[Value]:
    """The known values, each once, in order."""
    values: list[Value] = []
    for state in states:
        if (fact := known(state)) and fact.value not in values:
            values.append(fact.value)
    return values


def _rdma_lines(snapshots: Sequence[Snapshot]) -> list[str]:
    """For each rate at which all machines have active RDMA ports, TOML lines that require as many such ports as the
    machine with the fewest has; empty without such a rate.
    """
    counts = [Counter(_active_rdma_rates(snapshot)) for snapshot in snapshots]
    out: list[str] = []
    for rate in sorted(set.intersection(*(set(count) for count in counts))):
        out += [
            "" if out else "# Ports for RDMA, InfiniBand or RoCE: so many of that rate are up",
            f"[line.rdma-{rate:g}]",
            'fact = "rdma.state"',
            'is = "ACTIVE"',
            f'where = "rdma.rate_gbps == {rate:g}"',
            f"at_least = {min(count[rate] for count in counts)}",
        ]
    return out


def _active_rdma_rates(snapshot: Snapshot) -> Iterator[float]:
    """The rate in Gbit/s of each active RDMA port with a whole-numbered rate."""
    for row in listed(snapshot.rows("rdma")):
        rate = value_of(row.get("rate_gbps"))
        if value_of(row.get("state")) == "ACTIVE" and isinstance(rate, (int, float)) and rate == round(rate):
            yield float(rate)


def _mig_lines(snapshots: Sequence[Snapshot]) -> list[str]:
    """TOML lines that require the MIG profiles, where they are known and the same on all machines; else empty."""
    profiles = ((value_of(row.get("profile")) for row in listed(snapshot.rows("mig"))) for snapshot in snapshots)
    layouts = {tuple(sorted(map(str, found))) for found in profiles}
    layout = next(iter(layouts))
    if len(layouts) > 1 or not layout or str(None) in layout:
        return []
    wanted = f"sorted([one.profile for one in mig]) == {list(layout)!r}"
    return ["# How the GPUs are divided (MIG)", "[line.mig-layout]", f"when = {toml_string(wanted)}"]


def _measure_table(snapshots: Sequence[Snapshot]) -> list[str]:
    """TOML lines of ``[measure]``: nine tenths of the slowest rate of each kernel that all machines measured.

    Empty where there is none.
    """
    rates_by_machine = [dict(_slowest_rates(snapshot)) for snapshot in snapshots]
    kernels = set.intersection(*(set(rates) for rates in rates_by_machine))
    lines = []
    for kernel in sorted(kernels):
        rate = min(rates[kernel][0] for rates in rates_by_machine)
        unit = rates_by_machine[0][kernel][1]
        lines.append(f"{toml_key(kernel)} = {toml_string(f'>= {_rounded(_RATE_SHARE * rate)} {unit}')}")
    share = f"{100 * _RATE_SHARE:g} %"
    return (
        [f"# What kernels reach at least, measured at level deep: {share} of the slowest", "[measure]", *lines]
        if lines
        else []
    )


def _rounded(rate: float) -> str:
    """The rate with three digits that count, as people write it: ``2710``, ``0.452``."""
    return f"{float(f'{rate:.3g}'):g}"


def _slowest_rates(snapshot: Snapshot) -> Iterator[tuple[str, tuple[float, str]]]:
    """Each kernel measured in a unit per second, with its slowest rate above 0 and the unit; training rungs are left
    out.
    """
    units = {each.spec.id: each.kernel.unit for each in all_kernels() if each.kernel.unit.endswith("/s")}
    rates: dict[str, list[float]] = {}
    for row in listed(snapshot.rows("measured")):
        kernel, value = text_of(row.get("kernel")), value_of(row.get("value"))
        training = value_of(row.get("rung")) == "training"
        if kernel in units and isinstance(value, (int, float)) and value > 0 and not training:
            rates.setdefault(kernel, []).append(float(value))
    yield from ((kernel, (min(values), units[kernel])) for kernel, values in rates.items())


def _profile_name(snapshot: Snapshot) -> str:
    """A name for the profile, from number and name of the GPUs: ``8x-h100-80gb-hbm3``, ``machine-without-gpus``."""
    gpus = _facts_of("gpu.name", snapshot)
    if not gpus:
        return "machine-without-gpus"
    gpu = next((str(value) for value in _distinct_values(gpus)), "")
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower().removeprefix("nvidia ")).strip("-")[:40] or "gpu"
    return f"{len(gpus)}x-{slug}"


def _machine_summary(snapshot: Snapshot) -> str:
    """GPUs, driver and torch as far as known: ``8 NVIDIA H100 80GB HBM3, driver 580.95.05, torch 2.9.1+cu128``.

    ``a machine without GPUs`` where nothing is.
    """
    names = Counter(text_of(state) for state in _facts_of("gpu.name", snapshot) if known(state))
    parts = [f"{count} {name}" for name, count in names.items()]
    for what in ("driver", "torch"):
        version = snapshot.text(f"{what}.version")
        parts += [f"{what} {version}"] if version else []
    return ", ".join(parts)[:200] or "a machine without GPUs"


# ---- Which facts of a healthy machine another one of its kind must have, too, and how exactly ----
# What differs between healthy machines is not here: temperatures, clocks and loads of the moment, serial numbers,
# UUIDs, addresses, host names, processes, firmware.

Policy = Callable[[Sequence[Value]], str]
"""The values of all rows and machines, each once, as what they must be in TOML; empty where nothing can be asked."""
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_FEW_VALUES = 4


def as_observed(values: Sequence[Value]) -> str:
    """The one value as TOML, else an array of up to four texts, else ``>=`` the lowest number; otherwise empty."""
    if len(values) == 1:
        return toml_value(values[0])
    if all(isinstance(value, str) for value in values) and len(values) <= _FEW_VALUES:
        return toml_array([str(value) for value in values])
    return at_least_lowest(values) if _numbers(values) else ""


def at_least_lowest(values: Sequence[Value]) -> str:
    """``>=`` the lowest number, as TOML; empty where not all are numbers or it is 0 or less."""
    numbers = _numbers(values)
    return toml_string(f">= {min(numbers):g}") if numbers and min(numbers) > 0 else ""


def at_least_nine_tenths(values: Sequence[Value]) -> str:
    """``>=`` nine tenths of the lowest number, as TOML: firmware reserves differ; empty if one is not above 0."""
    numbers = _numbers(values)
    return toml_string(f">= {int(0.9 * min(numbers))}") if numbers and min(numbers) > 0 else ""


def same_branches(values: Sequence[Value]) -> str:
    """``>=`` the oldest version and below the next major of the newest, as TOML; empty where one is no version."""
    versions = sorted((version, str(value)) for value in values if (version := parse(str(value))))
    if len(versions) < len(values):
        return ""
    return toml_string(f">= {versions[0][1]}, < {versions[-1][0].release[0] + 1}")


def any_build(values: Sequence[Value]) -> str:
    """The release without its build, as TOML: ``2.9.1`` of ``2.9.1+cu128``; an array of up to four, of more empty."""
    return as_observed(sorted({version.public if (version := parse(str(value))) else str(value) for value in values}))


def any_patch(values: Sequence[Value]) -> str:
    """Any patch release, as TOML: ``3.12.*`` of ``3.12.3``; up to four different ones as array, else empty.

    What is no version is left out.
    """
    releases = {f"{version.major}.{version.minor}.*" for value in values if (version := parse(str(value)))}
    return as_observed(sorted(releases)) if releases else ""


def only(wanted: Value) -> Policy:
    """A policy that gives this value, as TOML, where it is the only one observed, and else nothing (empty text)."""
    return lambda values: toml_value(wanted) if list(values) == [wanted] else ""


def no_slowdowns(values: Sequence[Value]) -> str:
    """TOML that forbids the hardware and thermal slowdown reasons; empty where a machine has one."""
    if any(reason in show(value) for value in values for reason in SLOWDOWNS):
        return ""
    return f"{{ lacks = {toml_array(SLOWDOWNS)} }}"


def none_if_absent(_: Sequence[Value]) -> str:
    """Always empty: the fact is written (as absent) only where it is absent on all machines."""
    return ""


class Kept(NamedTuple):
    """A fact that a written profile states, and the policy that turns its values on all machines into TOML."""

    fact: str
    policy: Policy
    more: str = ""
    """What else to say of the line: how to loosen it, where that is not plain."""


KEPT: Mapping[str, Sequence[Kept]] = {
    "The GPUs: how many and which": (
        Kept("gpu.count", as_observed, 'looser: ">= 4"'),
        Kept("gpu.name", as_observed, 'looser: ["A", "B"]'),
        Kept("gpu.memory_mib", as_observed, 'looser: ">= 79 GiB"'),
        Kept("gpu.virtualization", as_observed),
        Kept("gpu.error", none_if_absent),
    ),
    "How they are set up": (
        Kept("gpu.ecc", as_observed),
        Kept("gpu.mig", as_observed),
        Kept("gpu.compute_mode", as_observed),
        Kept("gpu.persistence", only(True)),
        Kept("gpu.power_limit_w", at_least_lowest),
        Kept("gpu.clock_max_mhz", at_least_lowest),
        Kept("gpu.memory_clock_max_mhz", at_least_lowest),
        Kept("gpu.application_clock_mhz", at_least_lowest),
        Kept("gpu.throttle_reasons", no_slowdowns),
    ),
    "How they are connected": (
        Kept("gpu.link_generation_max", as_observed, 'looser: ">= 4"'),
        Kept("gpu.link_width_max", as_observed, 'looser: ">= 8"'),
        Kept("gpu.links", as_observed),
        Kept("nvlink.active", only(True)),
        Kept("nvlink.version", as_observed),
        Kept("topology.nvswitches", as_observed),
        Kept("gpu.fabric_state", as_observed),
    ),
    "The driver and what belongs to it": (
        Kept("driver.version", same_branches, 'of any newer branch, too: without "< ..."'),
        Kept("driver.module_kind", as_observed),
        Kept("driver.fabric_manager", only("running")),
        Kept("driver.persistenced", only(True)),
        Kept("driver.peermem_loaded", only(True)),
    ),
    "The environment": (
        Kept("python.version", any_patch),
        Kept("torch.version", any_build, 'looser: "2.9.*"'),
        Kept("torch.cuda", as_observed, 'looser: ">= 12, < 13"'),
        Kept("torch.nccl", as_observed, "the same on all machines of a job"),
    ),
    "The machine": (
        Kept("host.arch", as_observed),
        Kept("host.distribution", as_observed),
        Kept("host.distribution_version", as_observed),
        Kept("host.memory_mib", at_least_nine_tenths),
        Kept("fitness.cpus_present", at_least_lowest),
        Kept("topology.numa_nodes", as_observed),
        Kept("limits.shm_mib", at_least_nine_tenths, '">= 64 GiB" goes as well'),
        Kept("limits.memlock_kib", only(-1)),
    ),
}
"""By heading."""


def _numbers(values: Sequence[Value]) -> list[float]:
    """All values as floats; empty where one is not a number."""
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else []


# ---- Values written as TOML ----

_MARKS = '"\\'
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def toml_string(text: str) -> str:
    """The text as a TOML string in double quotes; what is not printable is escaped."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    escaped = (
        character if character.isprintable() and character not in _MARKS else _unicode_escape(character)
        for character in whole
    )
    return f'"{"".join(escaped)}"'


def _unicode_escape(character: str) -> str:
    r"""The character as a ``\\u`` or ``\\U`` escape of TOML."""
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def toml_array(texts: Sequence[str]) -> str:
    """The texts as a TOML array of strings."""
    return f"[{', '.join(map(toml_string, texts))}]"


def toml_value(value: Value) -> str:
    """A fact's value as TOML, a list of texts and numbers as array of strings; empty for objects, infinities,
    not-a-number and other lists.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else ""
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, tuple) and all(isinstance(item, (str, int, float)) for item in value):
        return toml_array([str(item) for item in value])
    return ""


def toml_key(name: str) -> str:
    """A dotted name as a TOML key; quoted whole, as one key, where a part is no bare key."""
    return name if all(_BARE.match(part) for part in name.split(".")) else toml_string(name)

"""A profile from machines that are as they should be: what they have in common, with what it means beside each line."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.catalog import catalog
from gpudoctor.expression.functions import show
from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, Value, listed
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.version import parse
from gpudoctor.version import __version__

_HEAD = """\
What a machine must be, written by gpudoctor {version} on {today} from {count}.
Check another one against it: gpudoctor check --expect FILE, or preflight, read or fleet with --expect FILE.

Each line is a fact and what it must be; of GPUs, links and ports it must be so of each. To loosen a line write a \
range (">= 8, < 10"), one of several (["A", "B"]), {{ is = ..., severity = "warning" }}, or a # before it. What a fact \
means: gpudoctor explain FACT. More can be asked, of any fact and with any condition: gpudoctor expect --help.
"""
_WIDE = 116
_COLUMN = 44
"""Where comments begin."""
_SHARE = 0.9
"""Of the slowest rate that was measured: how much another machine must reach."""


def written(snapshots: Sequence[Snapshot], today: str, name: str = "") -> str:
    """The profile's text. `today` is 2026-11-22; the snapshots are complete (`gpudoctor.knowledge.complete`).

    Raises `UsageError` where nothing is known that a machine could be held to.
    """
    blocks = ["\n".join(block) for block in (_expected(snapshots), *_named(snapshots), _measured(snapshots)) if block]
    if not blocks or not any("=" in block for block in blocks):
        raise UsageError("nothing that another machine could be held to is known of this one")
    count = "one machine" if len(snapshots) == 1 else f"{len(snapshots)} machines"
    head = _HEAD.format(version=__version__, today=today, count=count)
    lines = [f"# {line}".rstrip() for part in head.split("\n") for line in textwrap.wrap(part, _WIDE) or [""]]
    title = f"profile = {quoted(name or _name(snapshots[0]))}\nabout = {quoted(_about(snapshots[0]))}"
    return "\n\n".join(["\n".join(lines).rstrip("# \n"), title, *blocks])


def _expected(snapshots: Sequence[Snapshot]) -> list[str]:
    """The table of facts, by headings."""
    out: list[str] = []
    for heading, kept in KEPT.items():
        lines = [line for one in kept for line in _line(one, snapshots)]
        if lines:
            out += ["", f"# {heading}", *lines]
    return ["[expect]", *out[1:]] if out else []


def _line(kept: Kept, snapshots: Sequence[Snapshot]) -> Iterator[str]:
    states = [state for snapshot in snapshots for state in _states(kept.fact, snapshot)]
    values = _distinct(states)
    spec = catalog().find(kept.fact)
    about = " ".join((spec.about if spec else "").split())
    if kept.policy is not_there and states and all(isinstance(state, Absent) for state in states):
        yield from _told(f"{key(kept.fact)} = {{ present = false }}", about)
    if not values:
        return
    if any(not isinstance(state, Known) for state in states):
        some = sum(isinstance(state, Known) for state in states)
        yield f"# {key(kept.fact)}: known of {some} of {len(states)} only"
        return
    wanted = kept.policy(values)
    if wanted:
        unit = f", in {spec.unit}" if spec and spec.unit else ""
        yield from _told(f"{key(kept.fact)} = {wanted}", f"{about}{unit}{f'; {kept.more}' if kept.more else ''}")
    elif len(values) > 1:
        yield f"# {key(kept.fact)} differs: {array([str(value) for value in values[:6]])}"


def _told(line: str, about: str) -> Iterator[str]:
    """The line with what it means behind it, or above it where it is long."""
    if len(line) > _COLUMN or _COLUMN + len(about) > _WIDE:
        yield f"# {about}"
        yield line
    else:
        yield f"{line:{_COLUMN}}  # {about}"


def _states(fact: str, snapshot: Snapshot) -> list[Fact]:
    """The fact in every row, or of the machine."""
    spec = catalog().find(fact)
    if spec is None or not spec.group:
        return [snapshot.get(fact)]
    group, _, column = fact.rpartition(".")
    return [row.get(column) or Unread(snapshot.nobody) for row in listed(snapshot.rows(group))]


def _distinct(states: Sequence[Fact]) -> list[Value]:
    values: list[Value] = []
    for state in states:
        if isinstance(state, Known) and state.value not in values:
            values.append(state.value)
    return values


def _named(snapshots: Sequence[Snapshot]) -> list[list[str]]:
    """Lines that have a name: the ports for RDMA, the layout of MIG."""
    return [block for block in (_ports(snapshots), _layout(snapshots)) if block]


def _ports(snapshots: Sequence[Snapshot]) -> list[str]:
    """How many ports for RDMA are active at each rate, at least."""
    counts = [Counter(_rates(snapshot)) for snapshot in snapshots]
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


def _rates(snapshot: Snapshot) -> Iterator[float]:
    for row in listed(snapshot.rows("rdma")):
        rate = _value(row, "rate_gbps")
        if _value(row, "state") == "ACTIVE" and isinstance(rate, (int, float)) and rate == round(rate):
            yield float(rate)


def _layout(snapshots: Sequence[Snapshot]) -> list[str]:
    """Which MIG devices there are, where that is the same on all."""
    layouts = {tuple(sorted(_profiles(snapshot))) for snapshot in snapshots}
    layout = next(iter(layouts))
    if len(layouts) > 1 or not layout:
        return []
    wanted = f"sorted([one.profile for one in mig]) == {list(layout)!r}"
    return ["# How the GPUs are divided (MIG)", "[line.mig-layout]", f"when = {quoted(wanted)}"]


def _profiles(snapshot: Snapshot) -> Iterator[str]:
    yield from (str(_value(row, "profile")) for row in listed(snapshot.rows("mig")))


def _measured(snapshots: Sequence[Snapshot]) -> list[str]:
    """Floors under the rates of kernels, where every machine has measured them."""
    found = [dict(_slowest(snapshot)) for snapshot in snapshots]
    kernels = set.intersection(*(set(rates) for rates in found))
    lines = []
    for kernel in sorted(kernels):
        rate = min(rates[kernel][0] for rates in found)
        unit = found[0][kernel][1]
        lines.append(f"{key(kernel)} = {quoted(f'>= {_SHARE * rate:.3g} {unit}')}")
    share = f"{100 * _SHARE:g} %"
    return (
        [f"# What kernels reach at least, measured at level deep: {share} of the slowest", "[measure]", *lines]
        if lines
        else []
    )


def _slowest(snapshot: Snapshot) -> Iterator[tuple[str, tuple[float, str]]]:
    from gpudoctor.kernels.specs import every

    units = {one.spec.id: one.kernel.unit for one in every() if one.kernel.unit.endswith("/s")}
    rates: dict[str, list[float]] = {}
    for row in listed(snapshot.rows("measured")):
        kernel, value = str(_value(row, "kernel")), _value(row, "value")
        if kernel in units and isinstance(value, (int, float)) and value > 0 and _value(row, "rung") != "training":
            rates.setdefault(kernel, []).append(float(value))
    yield from ((kernel, (min(values), units[kernel])) for kernel, values in rates.items())


def _value(row: Row, column: str) -> Value:
    state = row.get(column)
    return state.value if isinstance(state, Known) else None


def _name(snapshot: Snapshot) -> str:
    """``8x-h100-80gb-hbm3``."""
    gpus = _states("gpu.name", snapshot)
    if not gpus:
        return "machine-without-gpus"
    gpu = next((str(value) for value in _distinct(gpus)), "")
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower().removeprefix("nvidia ")).strip("-")[:40] or "gpu"
    return f"{len(gpus)}x-{slug}"


def _about(snapshot: Snapshot) -> str:
    """``8 NVIDIA H100 80GB HBM3, driver 580.95.05, torch 2.9.1+cu128``."""
    names = Counter(str(state.value) for state in _states("gpu.name", snapshot) if isinstance(state, Known))
    said = [f"{count} {name}" for name, count in names.items()]
    for what in ("driver", "torch"):
        state = snapshot.get(f"{what}.version")
        said += [f"{what} {state.value}"] if isinstance(state, Known) else []
    return ", ".join(said)[:200] or "a machine without GPUs"


# ---- Which facts of a healthy machine another one of its kind must have, too, and how exactly ----
# What differs between healthy machines is not here: temperatures, clocks and loads of the moment, serial numbers,
# UUIDs, addresses, host names, processes, firmware.

Policy = Callable[[Sequence[Value]], str]
"""The values of all rows and machines, each once, as what they must be in TOML; empty where nothing can be asked."""
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_FEW = 4


def same(values: Sequence[Value]) -> str:
    """That value; of numbers that differ the least, of texts one of them; flags that differ are left out."""
    if len(values) == 1:
        return value_text(values[0])
    if all(isinstance(value, str) for value in values) and len(values) <= _FEW:
        return array([str(value) for value in values])
    return floor(values) if _numbers(values) else ""


def floor(values: Sequence[Value]) -> str:
    """Not less than the least."""
    numbers = _numbers(values)
    return quoted(f">= {min(numbers):g}") if numbers and min(numbers) > 0 else ""


def roughly(values: Sequence[Value]) -> str:
    """Not less than nine tenths of the least: what firmware keeps for itself differs."""
    numbers = _numbers(values)
    return quoted(f">= {int(0.9 * min(numbers))}") if numbers and min(numbers) > 0 else ""


def not_older(values: Sequence[Value]) -> str:
    """A driver of the same branch, or of the branches seen, and not older than the oldest."""
    versions = sorted((version, str(value)) for value in values if (version := parse(str(value))))
    if len(versions) < len(values):
        return ""
    return quoted(f">= {versions[0][1]}, < {versions[-1][0].release[0] + 1}")


def release(values: Sequence[Value]) -> str:
    """The release, whatever its build: ``2.9.1`` of ``2.9.1+cu128``."""
    return same(sorted({version.public if (version := parse(str(value))) else str(value) for value in values}))


def minor(values: Sequence[Value]) -> str:
    """Any patch release: ``3.12.*`` of ``3.12.3``."""
    found = {f"{version.major}.{version.minor}.*" for value in values if (version := parse(str(value)))}
    return same(sorted(found)) if found else ""


def if_on(values: Sequence[Value]) -> str:
    """True, where it is so everywhere; that it is off asks nothing of others."""
    return "true" if list(values) == [True] else ""


def if_running(values: Sequence[Value]) -> str:
    return same(values) if list(values) == ["running"] else ""


def unlimited(values: Sequence[Value]) -> str:
    return "-1" if list(values) == [-1] else ""


def unhindered(values: Sequence[Value]) -> str:
    """None of the reasons that say that hardware or heat holds the clocks down."""
    if any(reason in show(value) for value in values for reason in SLOWDOWNS):
        return ""
    return f"{{ lacks = {array(SLOWDOWNS)} }}"


def not_there(_: Sequence[Value]) -> str:
    """That there is none, which is what is written where there is none anywhere; a value asks nothing of others."""
    return ""


class Kept(NamedTuple):
    """A fact that is kept."""

    fact: str
    policy: Policy
    more: str = ""
    """What else to say of the line: how to loosen it, where that is not plain."""


KEPT: Mapping[str, Sequence[Kept]] = {
    "The GPUs: how many and which": (
        Kept("gpu.count", same, 'looser: ">= 4"'),
        Kept("gpu.name", same, 'looser: ["A", "B"]'),
        Kept("gpu.memory_mib", same, 'looser: ">= 79 GiB"'),
        Kept("gpu.virtualization", same),
        Kept("gpu.error", not_there),
    ),
    "How they are set up": (
        Kept("gpu.ecc", same),
        Kept("gpu.mig", same),
        Kept("gpu.compute_mode", same),
        Kept("gpu.persistence", if_on),
        Kept("gpu.power_limit_w", floor),
        Kept("gpu.clock_max_mhz", floor),
        Kept("gpu.memory_clock_max_mhz", floor),
        Kept("gpu.application_clock_mhz", floor),
        Kept("gpu.throttle_reasons", unhindered),
    ),
    "How they are connected": (
        Kept("gpu.link_generation_max", same, 'looser: ">= 4"'),
        Kept("gpu.link_width_max", same, 'looser: ">= 8"'),
        Kept("gpu.links", same),
        Kept("nvlink.active", if_on),
        Kept("nvlink.version", same),
        Kept("topology.nvswitches", same),
        Kept("gpu.fabric_state", same),
    ),
    "The driver and what belongs to it": (
        Kept("driver.version", not_older, 'of any newer branch, too: without "< ..."'),
        Kept("driver.module_kind", same),
        Kept("driver.fabric_manager", if_running),
        Kept("driver.persistenced", if_on),
        Kept("driver.peermem_loaded", if_on),
    ),
    "The environment": (
        Kept("python.version", minor),
        Kept("torch.version", release, 'looser: "2.9.*"'),
        Kept("torch.cuda", same, 'looser: ">= 12, < 13"'),
        Kept("torch.nccl", same, "the same on all machines of a job"),
    ),
    "The machine": (
        Kept("host.arch", same),
        Kept("host.distribution", same),
        Kept("host.distribution_version", same),
        Kept("host.memory_mib", roughly),
        Kept("limits.shm_mib", roughly, '">= 64 GiB" goes as well'),
        Kept("limits.memlock_kib", unlimited),
    ),
}
"""By heading."""


def _numbers(values: Sequence[Value]) -> list[float]:
    """Them all as numbers; none where one is not."""
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else []


# ---- Values written as TOML ----

_MARKS = '"\\'
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def quoted(text: str) -> str:
    """A text as a TOML string, whatever is in it."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(sign if sign.isprintable() and sign not in _MARKS else _escaped(sign) for sign in whole) + '"'


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


def array(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def value_text(value: Value) -> str:
    """A fact's value; empty where it is an object or a list of other things than texts and numbers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else ""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, tuple) and all(isinstance(item, (str, int, float)) for item in value):
        return array([str(item) for item in value])
    return ""


def key(name: str) -> str:
    """A dotted name as it may stand before ``=``; quoted where a part of it is no bare key."""
    return name if all(_BARE.match(part) for part in name.split(".")) else quoted(name)

"""A profile from machines that are as they should be: what they have in common, with what it means beside each line."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from gpudoctor.catalog import catalog
from gpudoctor.expect.golden import KEPT, Kept, not_there
from gpudoctor.expect.toml import array, key, quoted
from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, Value, listed
from gpudoctor.model.snapshot import Snapshot
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

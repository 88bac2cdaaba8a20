"""The tables of ``rules/tables``, with typed look-ups; and what follows from a snapshot's facts by them.

Every look-up lets an absent value through and raises `CannotJudge` where its table has no row or the value is not
what it should be: the rule that asked is then unjudged, and says why.

- `gpus`, `archs`, `drivers`, `builds`, `rates`, `printed_errors`, `variables`: look-ups, by subject
- `implied_rates`, `implied_results`, `setup_facts`, `manifests`: facts that follow from others
- `table_reach`: what is newer than the tables; `explain_tables`: rows for ``gpudoctor explain``
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known, listed, text_of, value_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import (  # noqa: F401 - each registers its look-ups
    archs,
    builds,
    drivers,
    gpus,
    printed_errors,
    variables,
)
from gpudoctor.diagnosis.knowledge._tables import LOOKUPS, Facts, Groups, is_open
from gpudoctor.diagnosis.knowledge.drivers import driver_cuda
from gpudoctor.diagnosis.knowledge.implied_rates import imply_load_columns, imply_rates
from gpudoctor.diagnosis.knowledge.implied_results import imply_results, imply_torch

__all__ = ["LOOKUPS", "complete"]


# ---- Facts that follow from others by the tables ----
# Filled in where nobody looked, never over what somebody knows. Each says in its source which table it came from, and
# on what it rests.


def complete(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the facts that its own facts and the tables imply added.

    What is known already stays, but for what measured kernels tell anew: columns of ``measured``, ``rung``, ``gpu`` and
    ``live_gpu``, and ``live.*``.
    """
    facts = dict(snapshot.facts)
    groups = dict(snapshot.groups)
    working = replace(snapshot, facts=facts, groups=groups)
    for imply in _IMPLIED:
        with suppress(CannotJudge):  # nothing follows from a version that is none
            imply(working, facts, groups)
    return working


def _gpu_capabilities(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills ``gpu.compute_capability`` of each row by the GPU's name, where unread, and ``gpu.count``, where no probe
    looked for it, by the number of rows.
    """
    rows = groups.get("gpu")
    if not isinstance(rows, tuple):
        return
    groups["gpu"] = _with_derived_column(rows, "name", "compute_capability", _known_capability)
    if is_open(snapshot, "gpu.count"):
        facts["gpu.count"] = Known(len(rows), "number of GPUs listed")


def _no_gpus_on_bus(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Sets ``gpu`` absent and an unread ``gpu.count`` 0 if the PCI bus lists no NVIDIA GPU and NVML was not read."""
    count, rows = snapshot.known("pci.nvidia_count"), snapshot.rows("gpu")
    if count is None or count.value != 0 or not isinstance(rows, Unread):
        return
    if snapshot.value("pci.devices"):
        groups["gpu"] = Absent(f"no NVIDIA GPU in {count.source}; {rows.why}")
        if isinstance(snapshot.get("gpu.count"), Unread):
            facts["gpu.count"] = Known(0, count.source)


def _known_capability(name: str) -> Known:
    """The compute capability of that GPU name as a fact; raises `CannotJudge` where unknown."""
    return Known(gpus.gpu_capability(name), gpus.candidate_gpus(name)[0].source)


def _device_names(_: Snapshot, __: Facts, groups: Groups) -> None:
    """Fills ``pci.name`` of each row by its PCI device id, where unread and in the table."""
    rows = groups.get("pci")
    if isinstance(rows, tuple):
        groups["pci"] = _with_derived_column(rows, "device_id", "name", _known_device_name)


def _known_device_name(device_id: str) -> Known:
    """The name of that PCI device id as a fact; raises `CannotJudge` where unknown."""
    name = gpus.device_name(device_id)
    if name is None:
        raise CannotJudge("PCI device", "not in the table")
    return Known(name, f"table gpus: PCI id {device_id}")


def _gpus_on_the_bus(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """Where the driver lists no GPUs, fills the group ``gpu`` from the PCI bus (name, address, compute_capability);
    else, in its rows, names that are unread, by their address.

    Not in containers and WSL, where the bus is another machine's; ``gpu.count`` stays what the driver says.
    """
    rows, given = groups.get("pci"), groups.get("gpu")
    inside = any(snapshot.known(name) for name in ("host.container", "host.wsl"))
    if inside or not isinstance(rows, tuple):
        return
    if given and isinstance(given, tuple):
        names = {value_of(row.get("address")): row["name"] for row in rows if known(row.get("name"))}
        named = tuple(
            {**row, "name": names[address]}
            if isinstance(row.get("name"), Unread) and (address := value_of(row.get("address"))) in names
            else row
            for row in given
        )
        groups["gpu"] = _with_derived_column(named, "name", "compute_capability", _known_capability)
        return
    found = tuple(
        {column: row[column] for column in ("name", "address") if column in row}
        for row in rows
        if value_of(row.get("vendor")) == "nvidia"
    )
    if any(known(row.get("name")) for row in found):
        groups["gpu"] = _with_derived_column(found, "name", "compute_capability", _known_capability)


def _with_derived_column(
    rows: tuple[Row, ...], column: str, implied: str, derive: Callable[[str], Known]
) -> tuple[Row, ...]:
    """The rows with `implied` derived from `column` where it is unread; unchanged where `derive` cannot judge."""
    return tuple(_with_derived(row, column, implied, derive) for row in rows)


def _with_derived(row: Row, column: str, implied: str, derive: Callable[[str], Known]) -> Row:
    """The row with `implied` derived from `column` where it is unread and derivable, else unchanged."""
    given = known(row.get(column))
    if given is None or isinstance(row.get(implied), (Known, Absent)):
        return row
    try:
        return {**row, implied: derive(str(given.value))}
    except CannotJudge:
        return row


def _driver_cuda(snapshot: Snapshot, facts: Facts, _: Groups) -> None:
    """Fills ``driver.cuda_version`` by the driver's branch, where unread."""
    version = snapshot.text("driver.version")
    if version and isinstance(snapshot.get("driver.cuda_version"), Unread):
        with suppress(CannotJudge):  # a driver newer than the table may serve a newer CUDA than any row
            facts["driver.cuda_version"] = Known(driver_cuda(version), f"table drivers: branch of {version}")


def _first_xid(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills ``kernel_log.first_xid``, if unread: the log's first Xid that is no consequence; absent if all are."""
    rows = groups.get("xid")
    if not isinstance(rows, tuple) or not rows or not isinstance(snapshot.get("kernel_log.first_xid"), Unread):
        return
    codes = [code for row in rows if (code := known(row.get("code"))) and isinstance(code.value, int)]
    first = next((code for code in codes if printed_errors.xid_class(code.value) != "consequence"), None)
    facts["kernel_log.first_xid"] = first or Absent("every Xid in the log follows from another one")


def _mark_first_xids(_: Snapshot, __: Facts, groups: Groups) -> None:
    """Fills ``first`` in the rows of ``xid``, where unread: whether the row is the first of its GPU whose Xid is the
    GPU's own fault; stays unread where nothing tells that.
    """
    rows = groups.get("xid")
    if not isinstance(rows, tuple):
        return
    seen: set[object] = set()
    marked: list[Row] = []
    for row in rows:
        gpu, code = value_of(row.get("address")), known(row.get("code"))
        first = _own_fault(row)
        if isinstance(first, Known) and code:
            first = Known(bool(first.value) and gpu not in seen, f"table xid: {code.value} ({code.source})")
            if first.value:
                seen.add(gpu)
        marked.append(row if isinstance(row.get("first"), (Known, Absent)) else {**row, "first": first})
    groups["xid"] = tuple(marked)


def _own_fault(row: Row) -> Fact:
    """Whether the row's Xid is the GPU's own fault, as a fact; unread where its number or the table does not tell."""
    code, fatal = known(row.get("code")), known(row.get("fatal"))
    if code is None:
        return Unread("its number is not known")
    if fatal and not fatal.value:
        return Known(False, fatal.source)
    try:
        return Known(printed_errors.xid_fatal(code.value), code.source)
    except CannotJudge as unknown:
        return Unread(str(unknown))


def _manifest_facts(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills what images and lines of a manifest (``service``, ``requirement``) would install; nothing without these."""
    if any(isinstance(groups.get(name), tuple) for name in ("service", "requirement")):
        from gpudoctor.diagnosis.knowledge.manifests import imply_images, imply_manifest  # a machine has neither

        imply_images(snapshot, facts, groups)
        imply_manifest(snapshot, facts, groups)


# ---- Which NVLinks of a GPU are down that should be up ----
# Judged by the same links of its siblings, for a link that is down proves nothing by itself: a card without a bridge
# has none up, an H100 NVL uses 12 of 18, and an A800 8 of 12, by design, on every card the same ones.

_ONE_BRIDGE = pattern(r"RTX (?:3090|A(?:4500|5000|5500|6000))|A40\b|RTX 20[78]0|(?:Quadro|TITAN) RTX", re.IGNORECASE)
"""Cards of which one bridge carries every link: some up and some down is a fault, whatever the siblings show."""

_COLUMNS = ("links", "links_down", "links_lost")


def _link_columns(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """Fills links (a count), links_down and links_lost (link numbers) of each GPU's row by the rows of ``nvlink``.

    Known ones stay; all are absent where the GPU has no link, unread where its links were not read.
    """
    rows, links = groups.get("gpu"), groups.get("nvlink")
    if not isinstance(rows, tuple) or links is None:
        return
    live = snapshot.target.kind != "report"
    states = [_link_states(row, links, live) for row in rows]
    switched = any(value_of(link.get("remote")) == "switch" for link in listed(links))
    done: list[Row] = []
    for index, row in enumerate(rows):
        own = states[index]
        if isinstance(own, dict):
            down = tuple(link for link in sorted(own) if not own[link])
            siblings = [
                other
                for place, other in enumerate(states)
                if place != index
                and isinstance(other, dict)
                and text_of(rows[place].get("name")) == text_of(row.get("name"))
            ]
            lost = _lost_links(row, own, down, siblings, switched)
            values: tuple[Fact, ...] = (Known(len(own), _SOURCE), Known(down, _SOURCE), lost)
        else:
            values = (own, own, own)
        new = {name: state for name, state in zip(_COLUMNS, values, strict=True) if not known(row.get(name))}
        done.append({**row, **new})
    groups["gpu"] = tuple(done)


_SOURCE = "the states of its links"


def _link_states(row: Row, links: Rows, live: bool) -> dict[int, bool] | Absent | Unread:
    """By link number whether each NVLink of this GPU is up; absent where it has none, unread where not read.

    `live`: the snapshot is of a machine, where a GPU that answered and lists no link has none.
    """
    if isinstance(links, (Absent, Unread)):
        return links
    index = known(row.get("index"))
    if index is None:
        return Unread("its number is not known")
    found: dict[int, bool] = {}
    for link in links:
        if (gpu := known(link.get("gpu"))) and gpu.value == index.value:
            number, active = known(link.get("link")), known(link.get("active"))
            if number is None or active is None:
                return Unread(getattr(link.get("active"), "why", "its links were not read"))
            found[int(str(number.value))] = bool(active.value)
    if found:
        return found
    answers = live and not known(row.get("error"))
    return Absent("it has no NVLink") if answers else Unread("its links were not read")


def _lost_links(
    row: Row, own: dict[int, bool], down: tuple[int, ...], siblings: list[dict[int, bool]], switched: bool
) -> Fact:
    """The fact ``gpu.links_lost``: links of this GPU that are down but up on a sibling of the same name; may be empty.

    On cards of one bridge any that is down, if others are up. Where all are down it counts only on a switch: a card may
    have no bridge. Absent in MIG mode.
    """
    if not down:
        return Known((), _SOURCE)
    if value_of(row.get("mig")) is True:
        return Absent("MIG mode switches its NVLinks off")
    if len(down) == len(own) and not switched:
        return Known((), "all of its links are down: it has no bridge")
    if len(down) < len(own) and _ONE_BRIDGE.search(text_of(row.get("name"))):
        return Known(down, "one bridge carries all of its links, and some are up")
    lost = tuple(link for link in down if any(sibling.get(link) for sibling in siblings))
    return Known(lost, "the same links of its siblings")


_IMPLIED = (
    _gpu_capabilities,
    _no_gpus_on_bus,
    _device_names,
    _gpus_on_the_bus,
    _driver_cuda,
    _manifest_facts,
    imply_torch,
    _link_columns,
    imply_results,
    imply_rates,
    imply_load_columns,
    _first_xid,
    _mark_first_xids,
)
"""In this order: what one implies, the next may build on."""

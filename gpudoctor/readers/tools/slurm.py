"""GPUs that Slurm counts on a node, from ``scontrol show node`` and the logs of slurmctld and slurmd."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 6
FACTS = (
    column("slurm_node.name", "text", "name of a node of Slurm"),
    column("slurm_node.state", "text", "its state: IDLE+DRAIN+INVALID_REG"),
    column("slurm_node.reported", "int", "GPUs that its slurmd has reported; absent where no line compares counts"),
    column("slurm_node.configured", "int", "GPUs that slurm.conf promises, or that were reported before"),
)

_NODE = Pattern(r"\bNodeName=(?P<name>[\w.-]{1,253})(?=\s|$)")
_STATE = Pattern(r"(?:^|\s)State=(?P<state>[A-Z_+*$~#!%@^-]{2,120})(?=\s|$)")
_LOWER = Pattern(
    r"\bgres/gpu count (?:reported lower than configured|too low) \((?P<reported>\d{1,6}) < (?P<configured>\d{1,6})\)"
)
_SETTING = Pattern(r"\b[Nn]ode (?P<name>[\w.-]{1,253}) state to (?P<state>[A-Z_+]{2,40}) with reason:")
_TABLE = Pattern(r"\s*(?P<name>[\w.-]{1,253})\s+(?:\S+\s+){0,4}?(?P<state>inval|drain(?:ed|ing)?|drng|down)\*?\s")
_CHANGED = Pattern(
    r"\bgres/gpu: count changed for node (?P<name>[\w.-]{1,253}) "
    r"from (?P<configured>\d{1,6}) to (?P<reported>\d{1,6})\b"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``slurm_node``, of a node the last that the text tells."""
    rows: dict[str, dict[str, Fact]] = {}
    name = ""
    for index, line in paste.having("nodename=", "state=", "gres/gpu count ", "gres/gpu: count changed"):
        source = f"line {paste.numbers[index]}"
        if match := _NODE.search(line):
            name = match["name"]
            rows[name] = {"name": Known(name, source)}
        if name and (match := _STATE.search(line)):
            rows[name].setdefault("state", Known(match["state"], paste.use(index)))
        if match := _CHANGED.search(line):
            row: dict[str, Fact] = {"name": Known(match["name"], source)}
            rows[match["name"]] = {**row, **_counts(match["reported"], match["configured"], paste.use(index))}
        elif match := _LOWER.search(line):
            counts = _counts(match["reported"], match["configured"], paste.use(index))
            if node := _SETTING.search(line) or (None if "Reason=" in line else _TABLE.match(line)):
                named: dict[str, Fact] = {"name": Known(node["name"], source)}
                rows[node["name"]] = {**named, "state": Known(node["state"].upper(), source), **counts}
            else:
                rows.setdefault(name, {}).update(counts)
    if rows:
        silent = Absent("no line compares what is reported with what is configured")
        yield "slurm_node", tuple({"reported": silent, "configured": silent, **row} for row in rows.values())


def _counts(reported: str, configured: str, source: str) -> dict[str, Fact]:
    """The columns of both counts."""
    return {"reported": Known(int(reported), source), "configured": Known(int(configured), source)}

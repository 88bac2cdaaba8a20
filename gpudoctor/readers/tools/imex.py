"""nvidia-imex-ctl -N and systemctl status nvidia-imex: the machines that IMEX joins, and those it does not reach."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.tools.driver_state import service_state

EXACT = 8
FACTS = (
    fact("imex.domain", "text", "whether all machines of the domain reach each other: up, degraded or down"),
    fact("imex.unreached", "list", "machines of the domain that are not ready or that some other does not reach"),
)

_NODE = Pattern(
    r"Node #(\d{1,4})\s+([*-]) ([\w.:-]{1,80})\s+(?:\*\s+)?- ([A-Z_]{2,40})(?:\s+- Version: (\d{3}\.[\d.]{2,12}))?"
    r"(?:\s+- Hostname: \S+)?\s*$"
)
_DOMAIN = Pattern(r"\s*Domain State: (UP|DEGRADED|DOWN)\s*$")
_REACH = Pattern(r"\s+(\d{1,4})((?:\s+(?:[INRDAC]|!V!|!M!))+)\s*$")
_READY = "READY"


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The daemon's state and version, the machines it joins, and those of them that it does not reach."""
    if "imex" not in paste.lower and "domain state:" not in paste.lower:
        return
    if state := service_state(paste, "nvidia-imex"):
        yield "imex.state", state
    nodes: dict[int, str] = {}
    unready: dict[int, int] = {}
    last = 0
    for index, line in enumerate(paste.bare):
        if node := _NODE.match(line.lstrip()):
            number = int(node[1])
            nodes[number], last = node[3], index
            paste.use(index)
            if node[4] != _READY:
                unready[number] = index
            if node[2] == "*" and node[5]:
                yield "imex.version", Known(node[5], paste.use(index))
        elif nodes and (reach := _REACH.match(line)):
            states = reach[2].split()
            row = int(reach[1])
            own = states[row] if row < len(states) else "C"
            if len(states) == len(nodes) and own != "C":
                unready.setdefault(row, index)
            paste.use(index)
        elif domain := _DOMAIN.match(line):
            yield "imex.domain", Known(domain[1].lower(), paste.use(index))
    if nodes:
        yield "imex.nodes", Known(len(nodes), paste.use(last))
        if unready:
            names = tuple(nodes[number] for number in sorted(unready) if number in nodes)
            yield "imex.unreached", Known(names, paste.use(next(iter(unready.values()))))

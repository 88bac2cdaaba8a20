"""GPUs that schedulers count and programs ask for: Kubernetes, Slurm; Lightning, vLLM, verl, Ray.

``kubectl describe node`` and a pod's events, ``scontrol show node`` and the logs of slurmctld and slurmd, refusals of
programs that find too few GPUs, and Ray's status.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 6
FACTS = (
    column("kubernetes_node.name", "text", "name of a node of Kubernetes"),
    column("kubernetes_node.capacity", "int", "GPUs (nvidia.com/gpu) that its device plugin has registered"),
    column("kubernetes_node.allocatable", "int", "of these, what pods may have: the healthy ones"),
    column("kubernetes_node.allocated", "int", "of these, what pods have"),
    column("kubernetes_node.other", "int", "devices of nvidia.com under other names, as of MIG, that pods may have"),
    fact("kubernetes.nodes", "int", "nodes of which the scheduler says that none fits a pod"),
    fact("kubernetes.nodes_short", "int", "of these, nodes that have fewer free GPUs than the pod asks for"),
    fact("kubernetes.requested", "int", "GPUs that the pod asks for"),
    fact("kubernetes.waiting", "bool", "whether the pod's last event of the scheduler says that no node has the GPUs"),
    column("slurm_node.name", "text", "name of a node of Slurm"),
    column("slurm_node.state", "text", "its state: IDLE+DRAIN+INVALID_REG"),
    column("slurm_node.reported", "int", "GPUs that its slurmd has reported; absent where no line compares counts"),
    column("slurm_node.configured", "int", "GPUs that slurm.conf promises, or that were reported before"),
    fact("request.program", "text", "program that asks for GPUs and refuses to start: Lightning, vLLM, verl, Ray"),
    fact("request.gpus_asked", "int", "GPUs that it asks for"),
    fact("request.gpus_there", "int", "GPUs that it finds"),
    fact("request.numbers_missing", "list", "numbers of GPUs that it asks for and does not find"),
)

_NAME = Pattern(r"Name:\s+(?P<name>\S{1,253})\s*$")
_HEAD = Pattern(r"(?P<head>Capacity|Allocatable|Allocated resources|System Info|Non-terminated Pods|Events):")
_COUNT = Pattern(r"\s*nvidia\.com/(?P<resource>[\w.-]{1,63}):\s+(?P<count>\d{1,6})\s*$")
_USED = Pattern(r"\s*nvidia\.com/gpu\s+(?P<requests>\d{1,6})\s+(?P<limits>\d{1,6})\s*$")
_REQUEST_HEAD = Pattern(r"\s+(?:Limits|Requests):\s*$")
_SHORT = Pattern(
    r"\b0/(?P<nodes>\d{1,6}) nodes are available: [^\n]{0,300}?\b(?P<short>\d{1,6}) Insufficient nvidia\.com/gpu\b"
)
_PLACED = Pattern(r"\bSuccessfully assigned (?P<namespace>[a-z0-9.-]+)/(?P<pod>[a-z0-9.-]+) to \S|\bTriggeredScaleUp\b")
_POD = Pattern(r"\bpod/(?P<pod>[a-z0-9.-]+)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``kubernetes_node`` and ``slurm_node``; facts of pods and programs refused the GPUs they asked for."""
    yield from _requests(paste)
    yield from _slurm_nodes(paste)
    if "nvidia.com/" in paste.lower:
        nodes = [row for row in _nodes(paste) if "capacity" in row and "allocatable" in row]
        if nodes:
            yield "kubernetes_node", tuple(nodes)
        yield from _pod_events(paste)


def _nodes(paste: Paste) -> Iterator[Row]:
    """Rows of nodes that ``kubectl describe`` shows, as far as shown: name, capacity, allocatable, allocated, other."""
    row: dict[str, Fact] = {}
    head = ""
    for index, line in enumerate(paste.bare):
        source = f"line {paste.numbers[index]}"
        if match := _NAME.fullmatch(line):
            yield row
            row, head = {"name": Known(match["name"], source)}, ""
        elif match := _HEAD.match(line):
            if match["head"] == "Capacity" and "capacity" in row:
                yield row
                row = {}
            head = match["head"]
        elif head in {"Capacity", "Allocatable"} and (match := _COUNT.fullmatch(line)):
            paste.use(index)
            _count(row, head, match["resource"], int(match["count"]), source)
        elif head == "Allocated resources" and (match := _USED.fullmatch(line)):
            row["allocated"] = Known(int(match["requests"]), paste.use(index))
    yield row


def _count(row: dict[str, Fact], head: str, resource: str, count: int, source: str) -> None:
    """Set the row's ``capacity`` or ``allocatable``, by `head`, for whole GPUs (and ``other`` to 0 if unset); of other
    NVIDIA resources only the allocatable ones count, added up as ``other``.
    """
    if resource == "gpu":
        row[head.lower()] = Known(count, source)
        row.setdefault("other", Known(0, source))
    elif head == "Allocatable":
        others = row.get("other")
        before = others.value if isinstance(others, Known) and isinstance(others.value, int) else 0
        row["other"] = Known(before + count, source)


def _pod_events(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """kubernetes.nodes, .nodes_short, .waiting, .requested: of the last event of a pod for which no node had the GPUs.

    Nothing where there is no such event.
    """
    last: tuple[int, int, int] | None = None
    pod, waiting = "", False
    for index, line in paste.having("insufficient nvidia.com/gpu", "successfully assigned", "triggeredscaleup"):
        named = _POD.search(line)
        if match := _SHORT.search(line):
            last, waiting = (index, int(match["nodes"]), int(match["short"])), True
            pod = named["pod"] if named else ""
        elif (match := _PLACED.search(line)) and pod in {"", match["pod"] or (named["pod"] if named else "")}:
            waiting = False
    if last:
        index, nodes, short = last
        source = paste.use(index)
        yield "kubernetes.nodes", Known(nodes, source)
        yield "kubernetes.nodes_short", Known(short, source)
        yield "kubernetes.waiting", Known(waiting, source)
        yield from _request(paste)


def _request(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """kubernetes.requested: GPUs requested in ``kubectl describe pod``, if exactly one container requests any."""
    asked: list[tuple[int, int]] = []
    limits = -1
    for index, line in enumerate(paste.bare):
        if _REQUEST_HEAD.fullmatch(line):
            limits = index if line.strip() == "Limits:" else -1
        elif limits >= 0 and index - limits < 8 and (match := _COUNT.fullmatch(line)) and match["resource"] == "gpu":
            asked.append((index, int(match["count"])))
    if len(asked) == 1:
        yield "kubernetes.requested", Known(asked[0][1], paste.use(asked[0][0]))


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


def _slurm_nodes(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``slurm_node``; of several reports on a node the last holds; counts not stated are `Absent`."""
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
    """The columns ``reported`` and ``configured`` of ``slurm_node``: numbers of GPUs."""
    return {"reported": Known(int(reported), source), "configured": Known(int(configured), source)}


_REFUSALS = (
    (
        "vLLM",
        "world_size (",
        Pattern(
            r"\b(?:local_)?world_size \((?P<asked>\d{1,5})\) (?:must be less than or equal to the number of visible"
            r" devices|is less than than max local gpu count) \((?P<there>\d{1,5})\)"
        ),
    ),
    (
        "vLLM",
        "world size (",
        Pattern(
            r"\bWorld size \((?P<asked>\d{1,5})\) is larger than the number of available GPUs \((?P<there>\d{1,5})\)"
            r" in this node\b"
        ),
    ),
    (
        "verl",
        "total available gpus ",
        Pattern(
            r"\bTotal available GPUs (?P<there>\d{1,5})(?:\.0)? is less than total desired GPUs (?P<asked>\d{1,5})\b"
        ),
    ),
)
_REQUESTED = Pattern(r"\bYou requested (?:gpu|GPUs): \[(?P<numbers>\d[\d, ]{0,60})\]")
_ONLY_HAS = Pattern(r"\s*But your machine only has: \[(?P<numbers>[\d, ]{0,60})\]")
_NUMBERS = Pattern(r"\d+")
_BUNDLE = Pattern(
    r"\bNo available node types can fulfill resource request [^\n]{0,120}?'GPU': (?P<asked>\d{1,4})(?:\.0)?[,}]"
)
_USAGE = Pattern(r"\s*[\d.]{1,9}/(?P<there>\d{1,5})(?:\.0)? GPU\s*$")
_PROCESSORS = Pattern(r"\s*[\d.]{1,9}/[\d.]{1,9} CPU\s*$")


def _requests(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts ``request.*`` of the first program that found too few GPUs, Ray last: how many it asked for and found."""
    for program, words, pattern in _REFUSALS:
        for refusal, source in paste.matches(pattern.search, words):
            yield from _request_facts(program, int(refusal["asked"]), int(refusal["there"]), source)
            return
    for index, line in paste.having("you requested gpu"):
        match = _REQUESTED.search(line)
        below = " ".join(paste.bare[index : index + 2])
        if match and (only := _ONLY_HAS.search(below[below.find("]") + 1 :])):
            asked, there = (tuple(_NUMBERS.compiled.findall(found["numbers"])) for found in (match, only))
            source = paste.use(index, min(index + 1, len(paste.lines) - 1))
            yield from _request_facts("Lightning", len(asked), len(there), source)
            yield "request.numbers_missing", Known(tuple(one for one in asked if one not in there), source)
            return
    yield from _ray_request(paste)


def _ray_request(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts ``request.*`` where Ray's status shows fewer GPUs than were asked for; nothing without its status."""
    there: int | None = None
    for index, line in paste.having(" gpu", " cpu"):
        if match := _USAGE.match(paste.bare[index]):
            there = int(match["there"])
        elif there is None and _PROCESSORS.match(line):
            there = 0
    for index, line in paste.having("no available node types can fulfill"):
        if there is not None and (match := _BUNDLE.search(line)) and int(match["asked"]) > there:
            yield from _request_facts("Ray", int(match["asked"]), there, paste.use(index))
            return


def _request_facts(program: str, asked: int, there: int, source: str) -> Iterator[tuple[str, Fact]]:
    """request.program, request.gpus_asked and request.gpus_there of a program that found too few GPUs."""
    yield "request.program", Known(program, source)
    yield "request.gpus_asked", Known(asked, source)
    yield "request.gpus_there", Known(there, source)

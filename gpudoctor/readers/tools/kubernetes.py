"""GPUs that Kubernetes counts: a node's capacity from ``kubectl describe node``, a pod's events of its scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Row, Rows
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
    """Rows of ``kubernetes_node`` that count GPUs, and what the scheduler's events say of a pod."""
    if "nvidia.com/" in paste.lower:
        nodes = [row for row in _nodes(paste) if "capacity" in row and "allocatable" in row]
        if nodes:
            yield "kubernetes_node", tuple(nodes)
        yield from _pod_events(paste)


def _nodes(paste: Paste) -> Iterator[Row]:
    """A row for each node described; without its name where the text does not begin with it."""
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
    """Notes in the row what a line of Capacity or Allocatable counts."""
    if resource == "gpu":
        row[head.lower()] = Known(count, source)
        row.setdefault("other", Known(0, source))
    elif head == "Allocatable":
        others = row.get("other")
        before = others.value if isinstance(others, Known) and isinstance(others.value, int) else 0
        row["other"] = Known(before + count, source)


def _pod_events(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """What the last event says of the pod for which no node had the GPUs; nothing where there is no such event."""
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
    """GPUs that the only container that asks for some asks for, by ``kubectl describe pod``."""
    asked: list[tuple[int, int]] = []
    limits = -1
    for index, line in enumerate(paste.bare):
        if _REQUEST_HEAD.fullmatch(line):
            limits = index if line.strip() == "Limits:" else -1
        elif limits >= 0 and index - limits < 8 and (match := _COUNT.fullmatch(line)) and match["resource"] == "gpu":
            asked.append((index, int(match["count"])))
    if len(asked) == 1:
        yield "kubernetes.requested", Known(asked[0][1], paste.use(asked[0][0]))

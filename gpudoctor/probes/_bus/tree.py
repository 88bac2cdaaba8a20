"""Where a device hangs in the PCIe tree, and how far two of them are apart in nvidia-smi's words.

sysfs keeps the tree in its paths: ``/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/0000:19:00.0`` is
host bridge, root port, upstream and downstream port of a switch, device.
"""

from __future__ import annotations

from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import number, real
from gpudoctor.target import Target

ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far: one switch, several switches, the host bridge, the NUMA node, another node."""

_PLACE = pattern(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2})((?:/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])+)(?=/|$)")


@frozen
class Place:
    """`root` is the host bridge; `above` are the bridges from the root port down; `node` None where none is known."""

    address: str
    root: str
    above: tuple[str, ...]
    node: int | None

    @property
    def switch(self) -> str | None:
        """The upstream port of the nearest switch; a root port alone is none."""
        return self.above[-2] if len(self.above) >= 3 else None


def place(target: Target, path: str, single_node: bool = False) -> Place | None:
    """Where the device is that `path` leads to; None off the PCI bus. On a machine of one node all are on it."""
    found = list(_PLACE.finditer(real(target, path)))
    if not found:
        return None
    *above, address = found[-1][2].strip("/").split("/")
    said = number(target, f"/sys/bus/pci/devices/{address}/numa_node")
    node = int(str(said.value)) if isinstance(said, Known) and said.value != -1 else 0 if single_node else None
    return Place(address, found[-1][1], tuple(above), node)


def between(one: Place, other: Place) -> tuple[str | None, tuple[str, ...]]:
    """The kind of path, and the bridges on it below the one that both share; None where nodes are not known."""
    shared = 0
    if one.root == other.root:
        while shared < min(len(one.above), len(other.above)) and one.above[shared] == other.above[shared]:
            shared += 1
        ways = one.above[shared:], other.above[shared:]
        if shared:
            return "PIX" if max(map(len, ways)) <= 1 else "PXB", ways[0] + ways[1]
        return "PHB", ways[0] + ways[1]
    if one.node is None or other.node is None:
        return None, one.above + other.above
    return "NODE" if one.node == other.node else "SYS", one.above + other.above

"""What NCCL tells with NCCL_DEBUG=INFO: the interface of its bootstrap, its network, and how channels are connected.

The lines have the forms of NCCL 2.11 to 2.32.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Set

MARKER = "@gpudoctor leg "
"""Written to standard error where a leg begins: ``@gpudoctor leg nccl network``."""

_BOOTSTRAP = re.compile(r"NCCL INFO Bootstrap ?: Using (?:\[\d+\])?([^\s:<]+):([^\s<]+)")
_NETWORK = re.compile(r"NCCL INFO (?:Assigned NET plugin (.+) to comm|Using network (.+?)) *$")
_VIA = re.compile(
    r"NCCL INFO (?:Channel|Ring|Tree) \S+ ?:.* via (P2P/(?:\w+ pointer|\w+)(?:/read)?|SHM/\S+|NET/[^/]+/\S+|direct \S+)"
)
_NUMBER = re.compile(r"^(NET/[^/]+)/\d+(?:\(\d+\))?")
"""Of the network device, and in brackets the rank that has it: ``NET/IB/0(3)/GDRDMA``."""
_DEVICE = re.compile(r"\[\d+\]([\w-]+):\d+/(IB|RoCE|OPA)")


def read(err: str) -> Dict[str, Any]:
    """What is there of ``nccl_at`` (``eth0 10.0.0.1``), ``network``, ``devices`` (``mlx5_0 RoCE``), ``via``."""
    leg = ""
    found: Dict[str, Any] = {}
    ways: Dict[str, Set[str]] = {}
    devices: List[str] = []
    for line in err.splitlines():
        if line.startswith(MARKER):
            leg = line[len(MARKER) :].strip()
        if " NCCL INFO " not in line:
            continue
        bootstrap, network, via = (one.search(line) for one in (_BOOTSTRAP, _NETWORK, _VIA))
        if bootstrap:
            found["nccl_at"] = ["%s %s" % (bootstrap.group(1), bootstrap.group(2).strip("[]"))]
        if network:
            found["network"] = network.group(1) or network.group(2)
        if via:
            ways.setdefault(leg, set()).add(_NUMBER.sub(r"\1", via.group(1)))
        if "NET/IB : Using" in line:
            devices += [" ".join(one) for one in _DEVICE.findall(line)]
    if devices:
        found["devices"] = sorted(set(devices))
    if ways:
        found["via"] = [dict(zip(("backend", "leg"), leg.split(" ", 1)), ways=sorted(had)) for leg, had in ways.items()]
    return found

"""What NCCL says where it fails."""

from __future__ import annotations

import re
from typing import List, Tuple

ENVIRON = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/stderr"}
"""So that its warnings reach us, and no file of the patient's."""

_KNOWN: List[Tuple[str, str]] = [
    (
        r"shared memory|/dev/shm|No space left",
        "give /dev/shm more room: docker run --shm-size=8g or --ipc=host; df -h /dev/shm shows it",
    ),
    (
        r"no socket interface found|NCCL_SOCKET_IFNAME",
        "unset NCCL_SOCKET_IFNAME, or set it to an interface that ip -br addr lists as UP",
    ),
    (
        r"system not yet initialized|system not initialized|fabric",
        "start the fabric manager, in the driver's own version: systemctl start nvidia-fabricmanager",
    ),
    (
        r"driver version is insufficient",
        "this NCCL was built for a newer CUDA than the driver serves: a newer driver, or a torch for an older CUDA",
    ),
    (r"Duplicate GPU detected", "see that CUDA_VISIBLE_DEVICES names each GPU once"),
    (
        r"peer access|P2P",
        "try NCCL_P2P_DISABLE=1: if that holds, the path between the GPUs (ACS, IOMMU, NVLink) is bad",
    ),
]


def warning(err: str) -> str:
    """The first warning in what a rank wrote to standard error, without where in the source it is from."""
    found = re.search(r"NCCL WARN ([^\n]+)", err)
    return found.group(1).strip()[:300] if found else ""


def advice(said: str) -> str:
    """What to do about it."""
    known = (what for pattern, what in _KNOWN if re.search(pattern, said, re.IGNORECASE))
    return next(known, "NCCL_DEBUG=INFO with the job itself shows what NCCL does up to there")

"""What NCCL says where it fails."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

from .._kernel import Broken, CannotRun
from .._rank import End

ENVIRON = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/stderr", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
"""So that its warnings reach us, and no file of the patient's; torch would write what its last collectives were into
one, and wait for that before it ends a rank that hangs."""

TELLING = dict(ENVIRON, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,BOOTSTRAP,ENV,NET")
"""So that it also says which interface, network and transports it uses: `_nccl_log` reads that."""

_SHARED = re.compile(r"Duplicate GPU detected|Multiple Ranks are using the same GPU", re.IGNORECASE)
"""NCCL takes a GPU's PCI address for the GPU: two slices of one (MIG) are to it the same, unless it is told otherwise
(NVIDIA/nccl issue 1716, 2026-09)."""
_NO_MEMORY = re.compile(r"(?:Cuda|HIP) failure (?:\d+ )?'out of memory'", re.IGNORECASE)
_IDLE = re.compile(r"libibverbs|iommu=pt|NUMA auto balancing|NET/Plugin", re.IGNORECASE)
"""Warnings that NCCL also gives where all is well."""

_P2P = "try NCCL_P2P_DISABLE=1: if that holds, the path between the GPUs (ACS, IOMMU, NVLink) is bad"
_FABRIC = "try NCCL_IB_DISABLE=1: if that holds, compare NCCL_IB_HCA, NCCL_IB_GID_INDEX and ibstat on both hosts"

_KNOWN: List[Tuple[str, str]] = [
    (
        r"shared memory|/dev/shm|No space left|SIGBUS",
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
    (
        r"ibv_reg_\w+ failed|Cannot allocate memory",
        "allow locked memory without limit (ulimit -l unlimited), which RDMA needs",
    ),
    (
        r"ibv_modify_qp|GID|completion (?:from peer|with)|NET/IB",
        _FABRIC,
    ),
    (
        r"connect\w* .*(?:refused|timed out|unreachable|no route)|socket\w*connect|connection (?:refused|timed out)",
        "open all TCP ports between the hosts, and set NCCL_SOCKET_IFNAME to an interface by which they meet",
    ),
    (
        r"peer access|P2P|did not come to an end|operation timeout",
        _P2P,
    ),
]


def warning(err: str) -> str:
    """The first warning in what a rank wrote to standard error, without where in the source it is from."""
    found = (one.strip() for one in re.findall(r"NCCL WARN ([^\n]+)", err))
    return next((one[:300] for one in found if not _IDLE.search(one)), "")


def failure(bad: Sequence[End]) -> Exception:
    """What to raise for ranks without an answer, the likeliest culprit first."""
    errors = "\n".join(end.err for end in bad)
    if bad and bad[0].cannot:
        return CannotRun(bad[0].why)
    if _SHARED.search(errors):
        return CannotRun("NCCL takes no two ranks on one GPU, as slices of it (MIG) are")
    if _NO_MEMORY.search(errors):
        return CannotRun("no memory is free for NCCL's own buffers")
    warned = next(filter(None, (warning(end.err) for end in bad)), "")
    said = "; ".join((["NCCL: " + warned] if warned else []) + [end.words for end in bad[:3]])
    return Broken(said, advice(said))


def advice(said: str, between_hosts: bool = False) -> str:
    """What to do about it."""
    known = (what for pattern, what in _KNOWN if re.search(pattern, said, re.IGNORECASE))
    first = next(known, "NCCL_DEBUG=INFO with the job itself shows what NCCL does up to there")
    return _FABRIC if between_hosts and first == _P2P else first

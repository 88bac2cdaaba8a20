"""What NCCL says: its version, why it failed and what to do, and by its log which ways its data go."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence, Set, Tuple

from .._kernel import Broken, CannotRun
from .._ranks import End

ENVIRON = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/stderr", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
"""So that its warnings reach us, and no file of the patient's; torch would write what its last collectives were into
one, and wait for that before it ends a rank that hangs."""

LOGGING = dict(ENVIRON, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,BOOTSTRAP,ENV,NET", NCCL_RUN_RAS_DIAGNOSTICS="1")
"""So that it also says which interface, network and transports it uses, and from 2.31 on compares all ranks' GPUs,
drivers, NVLinks, memory errors and variables: `read_log` reads that. Its active diagnostics (NCCL_RUN_DIAGNOSTICS) are
left off: they send by each connection what the kernels send and check anyway, and the job would wait for them."""

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
        r"system not yet initialized|system not initialized|fabric ?manager",
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
        r"NET/OFI|libfabric",
        "see what fi_info -p efa (or cxi) lists on each host; on AWS the security group must let its own traffic pass",
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


def version(torch: Any) -> str:
    """NCCL's version as torch reports it: ``2.27.5``."""
    parts = torch.cuda.nccl.version()
    return ".".join(map(str, parts)) if isinstance(parts, tuple) else str(parts)


def warning(err: str) -> str:
    """NCCL's first warning in a rank's standard error, at most 300 characters; empty if there is none that matters."""
    messages = (message.strip() for message in re.findall(r"NCCL WARN ([^\n]+)", err))
    return next((message[:300] for message in messages if not _IDLE.search(message)), "")


def failure(failed: Sequence[End]) -> Exception:
    """The exception to raise for ranks without an answer, given with the likeliest culprit first.

    `CannotRun` where that raised it, ranks share a GPU, or NCCL has no memory; else `Broken` with advice.
    """
    errors = "\n".join(end.err for end in failed)
    if failed and failed[0].cannot:
        return CannotRun(failed[0].why)
    if _SHARED.search(errors):
        return CannotRun("NCCL takes no two ranks on one GPU, as slices of it (MIG) are")
    if _NO_MEMORY.search(errors):
        return CannotRun("no memory is free for NCCL's own buffers")
    warned = next(filter(None, (warning(end.err) for end in failed)), "")
    message = "; ".join((["NCCL: " + warned] if warned else []) + [end.words for end in failed[:3]])
    return Broken(message, advice(message))


def advice(message: str, between_hosts: bool = False) -> str:
    """What to do about an NCCL failure, by its message; NCCL_DEBUG=INFO if unknown. Between hosts P2P is not blamed."""
    known = (what for pattern, what in _KNOWN if re.search(pattern, message, re.IGNORECASE))
    first = next(known, "NCCL_DEBUG=INFO with the job itself shows what NCCL does up to there")
    return _FABRIC if between_hosts and first == _P2P else first


# ---- What it tells with NCCL_DEBUG=INFO; the lines have the forms of NCCL 2.11 to 2.32 ----


MARKER = "@gpudoctor leg "
"""Written to standard error where a leg begins: ``@gpudoctor leg nccl network``."""

_NETWORK = re.compile(r"NCCL INFO (?:Assigned NET plugin (.+) to comm|Using network (.+?)) *$")
_VIA = re.compile(
    r"NCCL INFO (?:Channel|Ring|Tree) \S+ ?:.* via (P2P/(?:\w+ pointer|\w+)(?:/read)?|SHM/\S+|NET/[^/]+/\S+|direct \S+)"
)
_NUMBER = re.compile(r"^(NET/[^/]+)/\d+(?:\(\d+\))?")
"""Of the network device, and in brackets the rank that has it: ``NET/IB/0(3)/GDRDMA``."""
_DEVICE = re.compile(r"\[\d+\]([\w-]+):\d+/(IB|RoCE|OPA)")
_DIAGNOSED = re.compile(r" NCCL DIAG RAS diagnostics completed in ")
_REMARK = re.compile(r" NCCL DIAG \[INFO\] +(\S.*?)\s*$")
"""``h001:41001 NCCL DIAG [INFO] ECC: ...`` (NVIDIA/nccl src/ras/diagnostics.cc, 2.31), printed by rank 0 of a group."""
_GROUP = re.compile(r" in comm 0x[0-9a-f]+")


def read_log(err: str) -> Dict[str, Any]:
    """What an NCCL log (NCCL_DEBUG=INFO) says; each key only where the log has it.

    ``network`` (``IB``), ``devices`` (``mlx5_0 RoCE``), ``via`` (objects of backend, leg and ways), ``diagnosed`` (True
    where NCCL's own diagnostics came to an end) and ``remarks``, what these want looked at.
    """
    leg = ""
    facts: Dict[str, Any] = {}
    transports: Dict[str, Set[str]] = {}
    devices: List[str] = []
    remarks = [_GROUP.sub("", found.group(1)) for found in map(_REMARK.search, err.splitlines()) if found]
    if remarks:
        facts["remarks"] = sorted(set(remarks))
    if _DIAGNOSED.search(err):
        facts["diagnosed"] = True
    for line in err.splitlines():
        if line.startswith(MARKER):
            leg = line[len(MARKER) :].strip()
        if " NCCL INFO " not in line:
            continue
        network, via = _NETWORK.search(line), _VIA.search(line)
        if network:
            facts["network"] = network.group(1) or network.group(2)
        if via:
            transports.setdefault(leg, set()).add(_NUMBER.sub(r"\1", via.group(1)))
        if "NET/IB : Using" in line:
            devices += [" ".join(pattern) for pattern in _DEVICE.findall(line)]
    if devices:
        facts["devices"] = sorted(set(devices))
    if transports:
        facts["via"] = [
            dict(zip(("backend", "leg"), leg.split(" ", 1)), ways=sorted(names)) for leg, names in transports.items()
        ]
    return facts

"""What NVML lists of each GPU: ECC errors by place, MIG devices, processes, NVLinks, and the path between two GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known, text_of, value_of
from gpudoctor.probes._nvml import values
from gpudoctor.probes._nvml.client import NOT_REPORTED, Replies, mapping
from gpudoctor.target import child

FACTS = (
    column("gpu_ecc.gpu", "int", "index of the GPU that counts the errors"),
    column("gpu_ecc.kind", "text", "corrected or uncorrected"),
    column("gpu_ecc.since", "text", "load (of the driver) or ever"),
    column("gpu_ecc.location", "text", "dram, sram, l1, l2, register or texture"),
    column("gpu_ecc.count", "int", "errors counted"),
    column("mig.gpu", "int", "index of the GPU that the MIG device is part of"),
    column("mig.profile", "text", "its profile, such as 3g.40gb"),
    column("mig.uuid", "text", "its UUID, MIG-..."),
    column("gpu_process.gpu", "int", "index of the GPU that the process uses"),
    column("gpu_process.pid", "int", "its process id, as the one who asked sees it"),
    column("gpu_process.name", "text", "its name"),
    column("gpu_process.memory_mib", "int", "GPU memory it holds", "MiB"),
    column("gpu_process.kind", "text", "compute, graphics, or mps for a client of MPS"),
    fact("topology.pairs", "list", "how pairs of GPUs are connected, such as GPU0-GPU1 NV18, GPU0-GPU2 SYS"),
    column("nvlink.gpu", "int", "index of the GPU that the link is of"),
    column("nvlink.link", "int", "number of the link on that GPU"),
    column("nvlink.active", "bool", "whether the link is up"),
    column("nvlink.version", "version", "NVLink version of the link, such as 4.0"),
    column("nvlink.speed_mbps", "int", "rate that the link runs at, in each direction", "MB/s"),
    column("nvlink.remote", "text", "what is at its other end: gpu, switch, npu or unknown"),
    column("nvlink.remote_address", "text", "PCI address of what is at its other end"),
    column("nvlink.crc_errors", "int", "packets with CRC errors since the driver loaded"),
    column("nvlink.replay_errors", "int", "packets sent again since the driver loaded"),
    column("nvlink.recovery_errors", "int", "times the link had to be trained again since the driver loaded"),
    column("nvlink.effective_errors", "int", "errors left after correction, NVLink 5 and newer"),
    column("nvlink.recoveries_failed", "int", "recoveries of the link that failed, NVLink 5 and newer"),
    column("p2p.gpu", "int", "index of the GPU that reaches out"),
    column("p2p.peer", "int", "index of the GPU that it reaches for"),
    column("p2p.path", "text", "how they are connected: NV18, PIX, PXB, PHB, NODE or SYS"),
    column("p2p.read", "text", "whether it can read the peer's memory: ok, or what stands against it"),
    column("p2p.write", "text", "whether it can write to the peer's memory: ok, or what stands against it"),
    column("p2p.nvlink", "text", "whether it can do so over NVLink: ok, or what stands against it"),
    column("p2p.atomics", "text", "whether atomics reach the peer: ok, or what stands against it"),
)

_KINDS = ("corrected", "uncorrected")
_SINCE = ("load", "ever")
_LOCATIONS = {2: "dram", 7: "sram", 0: "l1", 1: "l2", 3: "register", 4: "texture"}
_LISTS = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}
_MOST_PROCESSES = 256
_SERVER = "nvidia-cuda-mps-server"


def rows(replies: Replies, count: int) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups gpu_ecc, mig, gpu_process, nvlink and p2p, and topology.pairs, of the first `count` GPUs."""
    gpus = range(count)
    yield (
        "gpu_ecc",
        _join_gpu_rows([_ecc_rows(replies, gpu) for gpu in gpus], "no GPU here counts ECC errors by place"),
    )
    yield "mig", _join_gpu_rows([_mig_rows(replies, gpu) for gpu in gpus], "no GPU here is divided into MIG devices")
    processes = _join_gpu_rows([_process_rows(replies, gpu) for gpu in gpus], "no process")
    yield "gpu_process", () if isinstance(processes, Absent) else processes
    yield from _connection_groups(replies, count)


def _join_gpu_rows(groups: Sequence[Sequence[Row] | Absent | Unread], why_empty: str) -> Rows:
    """The rows of all GPUs; if there is none, the first `Unread` among them, else `Absent(why_empty)`."""
    rows = tuple(row for of_gpu in groups if not isinstance(of_gpu, (Absent, Unread)) for row in of_gpu)
    unread = next((of_gpu for of_gpu in groups if isinstance(of_gpu, Unread)), None)
    return rows or unread or Absent(why_empty)


def _ecc_rows(replies: Replies, gpu: int) -> list[Row] | Unread:
    """Rows of one GPU's ECC counts: gpu, kind, since (load or ever), location and count; those that it does not report
    are left out.

    If there is no count: `Unread` if one could not be read, else empty.
    """
    found: list[Row] = []
    unread: Unread | None = None
    for location, name in _LOCATIONS.items():
        for kind in range(2):
            for since in range(2):
                call = f"nvmlDeviceGetMemoryErrorCounter({kind},{since},{location})"
                count = replies.fact(gpu, call, values.as_int)
                if known(count):
                    row = {"kind": _KINDS[kind], "since": _SINCE[since], "location": name}
                    found.append(_gpu_row(replies, gpu, row, count=count))
                elif isinstance(count, Unread):
                    unread = unread or count
    return found or unread or []


def _gpu_row(replies: Replies, gpu: int, texts: Mapping[str, str], **states: Fact) -> Row:
    """A row of a group: the GPU's index as ``gpu``, `texts` as known facts, and `states` as they are."""
    known = {name: Known(value, replies.source) for name, value in texts.items()}
    return {"gpu": Known(gpu, replies.source), **known, **states}


def _mig_rows(replies: Replies, gpu: int) -> list[Row] | Unread:
    """One row per MIG device of the GPU; empty if MIG is off or not supported, `Unread` if that is not known."""
    devices = replies.raw_answer(gpu, "mig")
    if not isinstance(devices, list):
        mode = replies.fact(gpu, "nvmlDeviceGetMigMode", values.item(0, values.as_bool))
        off = isinstance(mode, Absent) or value_of(mode) is False
        if off:
            return []
        why = "NVML does not say how many MIG devices the GPU may have" if replies.done else replies.ending
        return Unread(mode.why if isinstance(mode, Unread) else why)
    return [_mig_row(replies, gpu, mapping(device)) for device in devices]


def _mig_row(replies: Replies, gpu: int, device: Mapping[str, Any]) -> Row:
    """The row of one MIG device: GPU index, profile and UUID; unread where NVML gave none."""
    unknown = Unread("NVML does not tell it of this MIG device")
    uuid = device.get("nvmlDeviceGetUUID")
    try:
        profile = values.profile(device.get("nvmlDeviceGetName", ""), device.get("nvmlDeviceGetAttributes"))
    except values.MALFORMED_ERRORS:
        profile = None
    return {
        "gpu": Known(gpu, replies.source),
        "profile": Known(profile, replies.source) if profile else unknown,
        "uuid": Known(values.printable_text(uuid), replies.source) if uuid else unknown,
    }


def _length(raw: object) -> int:
    """The length of a list; raises `TypeError` for anything else."""
    if not isinstance(raw, list):
        raise TypeError(type(raw).__name__)
    return len(raw)


def _process_rows(replies: Replies, gpu: int) -> list[Row] | Unread:
    """Rows of the processes on a GPU, one per process and list (compute, graphics, mps), at most `_MOST_PROCESSES`.

    gpudoctor's own children are left out. Empty if there is none; `Unread` if there is none and a list could not be
    read.
    """
    found: list[Row] = []
    unread: Unread | None = None
    for name, kind in _LISTS.items():
        listed = replies.fact(gpu, f"nvmlDeviceGet{name}RunningProcesses", _length)
        if isinstance(listed, Unread):
            unread = unread or listed
        elif known(listed):
            entries = [
                near
                for near in replies.raw_answer(gpu, f"nvmlDeviceGet{name}RunningProcesses")
                if not _is_own_child(near)
            ]
            found += [_process_row(replies, gpu, kind, mapping(entry)) for entry in entries[:_MOST_PROCESSES]]
    return found[:_MOST_PROCESSES] or unread or []


def _is_own_child(entry: object) -> bool:
    """True if the listed process is a child that this program started."""
    return mapping(entry).get("pid") in child.begun


def _process_row(replies: Replies, gpu: int, kind: str, entry: Mapping[str, Any]) -> Row:
    """The row of one process: GPU index, kind, pid, name, and GPU memory in MiB; unread where NVML gave none."""
    pid, memory = entry.get("pid"), entry.get("usedGpuMemory")
    name = replies.raw_answer(None, f"nvmlSystemGetProcessName({pid})")
    hidden = Unread("NVML does not tell it")
    return _gpu_row(
        replies,
        gpu,
        {"kind": kind},
        pid=Known(pid, replies.source) if isinstance(pid, int) else hidden,
        name=Known(values.printable_text(name), replies.source) if name else hidden,
        memory_mib=Known(memory >> 20, replies.source) if isinstance(memory, int) else hidden,
    )


def columns(replies: Replies, gpu: int) -> dict[str, Fact]:
    """Columns of the GPU's row that follow from its groups: ecc_uncorrected_in, mig_instances, processes and mps."""
    return {"ecc_uncorrected_in": _uncorrected_locations(replies, gpu), **_usage_columns(replies, gpu)}


def _uncorrected_locations(replies: Replies, gpu: int) -> Fact:
    """Names of the memory locations with uncorrectable ECC errors since the driver loaded, as one known list.

    Unread or absent if no location has a count.
    """
    calls = {name: f"nvmlDeviceGetMemoryErrorCounter(1,0,{place})" for place, name in _LOCATIONS.items()}
    counts = {name: replies.fact(gpu, call, values.as_int) for name, call in calls.items()}
    counted = [name for name, count in counts.items() if known(count)]
    if not counted:
        return next((count for count in counts.values() if isinstance(count, Unread)), counts["dram"])
    return Known(tuple(name for name in counted if value_of(counts[name])), replies.source)


def _usage_columns(replies: Replies, gpu: int) -> dict[str, Fact]:
    """The columns ``mig_instances``, ``processes`` (both counts) and ``mps`` (whether a process runs under MPS).

    The last two are unread if the processes are; mig_instances is absent where the GPU has no MIG mode.
    """
    devices = _mig_rows(replies, gpu)
    mode = replies.fact(gpu, "nvmlDeviceGetMigMode", values.item(0, values.as_bool))
    instances: Fact = devices if isinstance(devices, Unread) else Known(len(devices), replies.source)
    listed = _process_rows(replies, gpu)
    if isinstance(listed, Unread):
        return {"mig_instances": mode if isinstance(mode, Absent) else instances, "processes": listed, "mps": listed}
    calls = [f"nvmlDeviceGet{name}RunningProcesses" for name in _LISTS]
    lists = [(replies.raw_answer(gpu, call) or (), replies.numbers.get((gpu, call))) for call in calls]
    lengths = [(number or len(entries)) - sum(map(_is_own_child, entries)) for entries, number in lists]
    server = any(_SERVER in text_of(row["name"]) for row in listed)
    return {
        "mig_instances": mode if isinstance(mode, Absent) else instances,
        "processes": Known(sum(lengths), replies.source),
        "mps": Known(server or bool(lengths[2]), replies.source),
    }


# ---- How the GPUs are connected: every NVLink, and the path and rights between each two GPUs ----

_LINK_COUNT = "nvmlDeviceGetFieldValues(91)"
_MOST_LINKS = 64
_COUNTERS = (
    ("crc_errors", 163, (2, 3)),
    ("replay_errors", 161, (0,)),
    ("recovery_errors", 162, (1,)),
    ("effective_errors", 219, ()),
    ("recoveries_failed", 214, ()),
)
"""Column, field value, and the older counters that add up to the same."""

_LINK_SPEED_FIELD, _LINK_STATE_FIELD = 164, 165
"""The field values of a link's speed and state (NVML_FI_DEV_NVLINK_GET_SPEED and _STATE)."""

_LINK_STATES = {0: False, 1: True, 2: True}
"""Whether a link is up that is inactive, active or asleep."""

_CAPABILITIES = ("read", "write", "nvlink", "atomics")


def _connection_groups(replies: Replies, count: int) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups ``nvlink`` and ``p2p`` and the fact ``topology.pairs`` of the first `count` GPUs.

    The last two are absent with fewer than two GPUs.
    """
    links = [_nvlink_rows(replies, gpu) for gpu in range(count)]
    yield "nvlink", _join_gpu_rows(links, "no GPU here has NVLink")
    peers = tuple(_peer_row(replies, links, gpu, peer) for gpu in range(count) for peer in range(count) if gpu != peer)
    if count < 2:
        alone = Absent("a single GPU has no peer" if count else "NVML lists no GPU")
        yield "p2p", alone
        yield "topology.pairs", alone
        return
    yield "p2p", peers
    yield "topology.pairs", _pairs(replies, peers)


def _nvlink_rows(replies: Replies, gpu: int) -> Sequence[Row] | Absent | Unread:
    """One row per NVLink of the GPU, up or down; `Absent` or `Unread` as the count of links is."""
    count = replies.fact(gpu, _LINK_COUNT, values.as_int)
    if not isinstance(count, Known):
        return count
    assert isinstance(count.value, int)
    links = range(min(count.value, _MOST_LINKS))
    shared = _shared_answers(replies, gpu, links)
    return [_nvlink_row(replies, gpu, link, shared) for link in links]


def _shared_answers(replies: Replies, gpu: int, links: Sequence[int]) -> dict[str, str]:
    """Calls about one NVLink of the GPU whose answers hold for others: the version, by ``Version``, holds for all, the
    kind of a remote device, by its PCI address as NVML gives it, for those that lead there.
    """
    found: dict[str, str] = {}
    for link in links:
        for key, name in (("Version", "Version"), (_remote_address(replies, gpu, link), "RemoteDeviceType")):
            call = f"nvmlDeviceGetNvLink{name}({link})"
            if key and replies.raw_answer(gpu, call) is not None:
                found.setdefault(key, call)
    return found


def _nvlink_row(replies: Replies, gpu: int, link: int, shared: Mapping[str, str]) -> Row:
    """The row of one NVLink: state, version, remote end and error counters; all but the state absent if it is down.

    `shared`: the calls of `_shared_answers`, for what was not asked about this link.
    """
    active = _link_state(replies, gpu, link)
    down = Absent("the link is down") if active == Known(False, replies.source) else None

    def link_fact(name: str, read: values.Reading, other: str = "") -> Fact:
        """The answer to a call about this link, else to the `shared` one of that key; absent if the link is down."""
        call = f"nvmlDeviceGetNvLink{name}({link})"
        if replies.raw_answer(gpu, call) is None:
            call = shared.get(other, call)
        return down or replies.fact(gpu, call, read)

    return {
        "gpu": Known(gpu, replies.source),
        "link": Known(link, replies.source),
        "active": active,
        "version": link_fact("Version", values.named(values.LINK_VERSIONS), "Version"),
        "speed_mbps": down or replies.fact(gpu, f"nvmlDeviceGetFieldValues({_LINK_SPEED_FIELD},{link})", values.as_int),
        "remote": link_fact("RemoteDeviceType", values.named(values.REMOTES), _remote_address(replies, gpu, link)),
        "remote_address": link_fact("RemotePciInfo", values.item("busId", values.pci_address)),
        **{name: down or _error_count(replies, gpu, link, field, old) for name, field, old in _COUNTERS},
    }


def _link_state(replies: Replies, gpu: int, link: int) -> Fact:
    """Whether an NVLink is up, by the call about it, else by the field value."""
    call, field_call = f"nvmlDeviceGetNvLinkState({link})", f"nvmlDeviceGetFieldValues({_LINK_STATE_FIELD},{link})"
    if replies.raw_answer(gpu, call) is None and replies.raw_answer(gpu, field_call) in _LINK_STATES:
        return replies.fact(gpu, field_call, _LINK_STATES.__getitem__)
    return replies.fact(gpu, call, values.as_bool)


def _remote_address(replies: Replies, gpu: int, link: int) -> str:
    """PCI address at the other end of an NVLink as NVML gave it; empty if that is not known, or of no device."""
    pci = mapping(replies.raw_answer(gpu, f"nvmlDeviceGetNvLinkRemotePciInfo({link})"))
    return str(pci.get("busId", "")) if pci.get("pciDeviceId") else ""


def _error_count(replies: Replies, gpu: int, link: int, field: int, old: Sequence[int]) -> Fact:
    """An NVLink's error count by NVML's field value `field`, else the sum of the older counters `old`; else why not."""
    call = f"nvmlDeviceGetFieldValues({field},{link})"
    if replies.raw_answer(gpu, call) is not None or not old:
        return replies.fact(gpu, call, values.as_int)
    parts = [replies.fact(gpu, f"nvmlDeviceGetNvLinkErrorCounter({link},{counter})", values.as_int) for counter in old]
    counts = [count for item in parts if isinstance(count := value_of(item), int)]
    return Known(sum(counts), replies.source) if len(counts) == len(parts) else replies.reason_unanswered(gpu, call)


def _peer_row(replies: Replies, links: Sequence[Sequence[Row] | Absent | Unread], gpu: int, peer: int) -> Row:
    """The row of an ordered pair of GPUs: P2P rights of `gpu` in the memory of `peer`, and the path between them.

    The driver judges the two as a set (p2pGetCapsStatus of NVIDIA's open kernel module takes a mask), so that the
    other direction's answer holds where this one was not asked for.
    """
    row: dict[str, Fact] = {"gpu": Known(gpu, replies.source), "peer": Known(peer, replies.source)}
    for index, name in enumerate(_CAPABILITIES):
        row[name] = _of_pair(replies, gpu, peer, f"nvmlDeviceGetP2PStatus({{}},{index})", values.PEER_STATES)
    row["path"] = _path(replies, links, row, gpu, peer)
    return row


def _of_pair(replies: Replies, gpu: int, peer: int, call: str, names: Mapping[int, str]) -> Fact:
    """The answer about two GPUs to the `call`, which has braces for the second one's index, else what kept it back.

    The child asks the one of the lower index; where the other was asked, as in older records, that answer is its own.
    """
    state = replies.fact(gpu, call.format(peer), values.named(names))
    if known(state):
        return state
    if trouble := replies.why_silent(peer):
        return Unread(trouble)
    swapped = gpu > peer and not replies.why_silent(gpu)
    return replies.fact(peer, call.format(gpu), values.named(names)) if swapped else state


def _path(replies: Replies, links: Sequence[Sequence[Row] | Absent | Unread], row: Row, gpu: int, peer: int) -> Fact:
    """The path between two GPUs: NVn over n NVLinks, direct or through switches, else the nearest common bridge."""
    if number := _link_count(replies, links, row, gpu, peer):
        return Known(f"NV{number}", replies.source)
    low, high = sorted((gpu, peer))
    return _of_pair(replies, low, high, "nvmlDeviceGetTopologyCommonAncestor({})", values.PATHS)


def _link_count(
    replies: Replies, links: Sequence[Sequence[Row] | Absent | Unread], row: Row, gpu: int, peer: int
) -> int:
    """Number of active NVLinks between two GPUs; 0 if there is none.

    Direct ones, else the fewer of both GPUs' links to switches, unless `row` says that NVLink is not ok for the pair.
    """
    ends = []
    for near, far in ((gpu, peer), (peer, gpu)):
        of_gpu = links[near]
        of_gpu = () if isinstance(of_gpu, (Absent, Unread)) else of_gpu
        up = [link for link in of_gpu if value_of(link["active"]) is True]
        pci_address = known(replies.fact(far, "nvmlDeviceGetPciInfo", values.item("busId", values.pci_address)))
        direct = sum(value_of(link["remote_address"]) == pci_address.value for link in up) if pci_address else 0
        switched = sum(value_of(link["remote"]) == "switch" for link in up)
        ends.append((direct, switched))
    (direct, own_switched), (_, peer_switched) = ends
    if direct:
        return direct
    return min(own_switched, peer_switched) if value_of(row["nvlink"]) in (None, "ok") else 0


def _pairs(replies: Replies, peers: Sequence[Row]) -> Fact:
    """Fact `topology.pairs`: each pair with a known path once, such as ``GPU0-GPU1 NV18``.

    If no path is known: absent or unread as a path is.
    """
    pairs = []
    missing: Fact = NOT_REPORTED
    for row in peers:
        gpu, peer, path = text_of(row["gpu"]), text_of(row["peer"]), row["path"]
        if not known(path):
            missing = path
        elif gpu.zfill(3) < peer.zfill(3):
            pairs.append(f"GPU{gpu}-GPU{peer} {text_of(path)}")
    return Known(tuple(pairs), replies.source) if pairs else missing

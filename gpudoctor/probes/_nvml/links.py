"""How NVML says the GPUs are connected: every NVLink, and the path and rights between each two GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._nvml import words
from gpudoctor.probes._nvml.told import NOT_REPORTED, Told

FACTS = (
    fact("topology.pairs", "list", "how pairs of GPUs are connected, such as GPU0-GPU1 NV18, GPU0-GPU2 SYS"),
    column("nvlink.gpu", "int", "index of the GPU that the link is of"),
    column("nvlink.link", "int", "number of the link on that GPU"),
    column("nvlink.active", "bool", "whether the link is up"),
    column("nvlink.version", "version", "NVLink version of the link, such as 4.0"),
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

_CAPABILITIES = ("read", "write", "nvlink", "atomics")


def rows(told: Told, count: int) -> Iterator[tuple[str, Fact | Rows]]:
    """The groups ``nvlink`` and ``p2p`` and the pairs of GPUs that follow from them."""
    links = [_links(told, gpu) for gpu in range(count)]
    yield "nvlink", _nvlink(links)
    peers = tuple(_peer(told, links, gpu, peer) for gpu in range(count) for peer in range(count) if gpu != peer)
    if count < 2:
        alone = Absent("a single GPU has no peer" if count else "NVML lists no GPU")
        yield "p2p", alone
        yield "topology.pairs", alone
        return
    yield "p2p", peers
    yield "topology.pairs", _pairs(told, peers)


def _nvlink(links: Sequence[Sequence[Row] | Absent | Unread]) -> Rows:
    known = tuple(row for of_gpu in links if not isinstance(of_gpu, (Absent, Unread)) for row in of_gpu)
    unread = next((of_gpu for of_gpu in links if isinstance(of_gpu, Unread)), None)
    if known or not unread:
        return known or Absent("no GPU here has NVLink")
    return unread


def _links(told: Told, gpu: int) -> Sequence[Row] | Absent | Unread:
    """The links that the GPU has, whether up or down."""
    count = told.fact(gpu, _LINK_COUNT, words.whole)
    if not isinstance(count, Known):
        return count
    assert isinstance(count.value, int)
    return [_link(told, gpu, link) for link in range(min(count.value, _MOST_LINKS))]


def _link(told: Told, gpu: int, link: int) -> Row:
    active = told.fact(gpu, f"nvmlDeviceGetNvLinkState({link})", words.yes)
    down = Absent("the link is down") if active == Known(False, told.source) else None

    def of(call: str, read: words.Reading) -> Fact:
        return down or told.fact(gpu, f"nvmlDeviceGetNvLink{call}({link})", read)

    return {
        "gpu": Known(gpu, told.source),
        "link": Known(link, told.source),
        "active": active,
        "version": of("Version", words.words(words.LINK_VERSIONS)),
        "remote": of("RemoteDeviceType", words.words(words.REMOTES)),
        "remote_address": of("RemotePciInfo", words.part("busId", words.address)),
        **{name: down or _counter(told, gpu, link, field, old) for name, field, old in _COUNTERS},
    }


def _counter(told: Told, gpu: int, link: int, field: int, old: Sequence[int]) -> Fact:
    call = f"nvmlDeviceGetFieldValues({field},{link})"
    if told.answered(gpu, call) is not None or not old:
        return told.fact(gpu, call, words.whole)
    parts = [told.fact(gpu, f"nvmlDeviceGetNvLinkErrorCounter({link},{counter})", words.whole) for counter in old]
    known = [part.value for part in parts if isinstance(part, Known) and isinstance(part.value, int)]
    return Known(sum(known), told.source) if len(known) == len(parts) else told.without(gpu, call)


def _peer(told: Told, links: Sequence[Sequence[Row] | Absent | Unread], gpu: int, peer: int) -> Row:
    row: dict[str, Fact] = {"gpu": Known(gpu, told.source), "peer": Known(peer, told.source)}
    trouble = told.silent(peer)
    for index, name in enumerate(_CAPABILITIES):
        state = told.fact(gpu, f"nvmlDeviceGetP2PStatus({peer},{index})", words.words(words.PEER_STATES))
        row[name] = Unread(trouble) if trouble and not isinstance(state, Known) else state
    row["path"] = _path(told, links, row, gpu, peer)
    return row


def _path(told: Told, links: Sequence[Sequence[Row] | Absent | Unread], row: Row, gpu: int, peer: int) -> Fact:
    """NVn over n links, direct or through switches; else the nearest bridge that both GPUs share."""
    if number := _between(told, links, row, gpu, peer):
        return Known(f"NV{number}", told.source)
    low, high = sorted((gpu, peer))
    call = f"nvmlDeviceGetTopologyCommonAncestor({high})"
    state = told.fact(low, call, words.words(words.PATHS))
    trouble = told.silent(high)
    return Unread(trouble) if trouble and not isinstance(state, Known) else state


def _between(told: Told, links: Sequence[Sequence[Row] | Absent | Unread], row: Row, gpu: int, peer: int) -> int:
    ends = []
    for one, other in ((gpu, peer), (peer, gpu)):
        of_gpu = links[one]
        up = [] if isinstance(of_gpu, (Absent, Unread)) else [link for link in of_gpu if _is(link["active"], True)]
        address = told.fact(other, "nvmlDeviceGetPciInfo", words.part("busId", words.address))
        direct = sum(isinstance(address, Known) and _is(link["remote_address"], address.value) for link in up)
        switched = sum(_is(link["remote"], "switch") for link in up)
        ends.append((direct, switched))
    (direct, mine), (_, theirs) = ends
    if direct:
        return direct
    nvlink = row["nvlink"]
    return min(mine, theirs) if not isinstance(nvlink, Known) or nvlink.value == "ok" else 0


def _is(state: Fact, value: object) -> bool:
    return isinstance(state, Known) and state.value == value


def _pairs(told: Told, peers: Sequence[Row]) -> Fact:
    known = []
    missing: Fact = NOT_REPORTED
    for row in peers:
        gpu, peer, path = row["gpu"], row["peer"], row["path"]
        if not isinstance(gpu, Known) or not isinstance(peer, Known):
            continue
        if isinstance(path, Known):
            known += [f"GPU{gpu.value}-GPU{peer.value} {path.value}"] * (
                str(gpu.value).zfill(3) < str(peer.value).zfill(3)
            )
        else:
            missing = path
    return Known(tuple(known), told.source) if known else missing

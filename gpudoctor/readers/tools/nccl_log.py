"""NCCL and torch.distributed logs."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases

FACTS = (
    fact("nccl.version", "version", "NCCL version as NCCL prints it"),
    fact("nccl.versions", "list", "all NCCL versions in the text, each once"),
    fact("nccl.interface", "text", "network interface that NCCL says it uses"),
    fact("nccl.network", "text", "network that NCCL says it uses: IB, Socket, a plugin"),
    fact("nccl.cuda", "version", "CUDA that NCCL was built with, as it prints it, such as 12.4"),
    fact(
        "nccl.transports",
        "list",
        "how NCCL says its channels are connected, such as P2P/IPC, SHM/direct, NET/IB/0/GDRDMA",
    ),
    fact("nccl.devices", "list", "RDMA devices that NCCL says it uses, such as mlx5_0"),
    fact("nccl.peers", "list", "addresses of peers in the log"),
    fact("nccl.world_size", "int", "ranks of the communicator"),
    fact("nccl.nodes", "int", "nodes of the job, as a launcher's option or the report says"),
    fact("nccl.rate_high", "float", "largest of the rates that the text gives of collectives, in GB/s"),
    fact("nccl.rate_low", "float", "smallest of them"),
)

_VERSION = Pattern(r"(?i)NCCL version:?\s+(\d+\.\d+(?:\.\d+)?)(?:\+cuda(\d+\.\d+))?")
_INTERFACE = Pattern(r"(?i)(?:Bootstrap ?: ?Using|NET/Socket ?: ?Using|NCCL_SOCKET_IFNAME set to) (?:\[0\])?([\w.@-]+)")
_NETWORK = Pattern(r"(?i)Using network (\S+(?: Libfabric)?)")
_DEVICES = Pattern(r"\[\d+\]((?:mlx|ib|bnxt|rocep|efa|irdma|hns)[\w-]*)(?::\d+)?/(?:IB|RoCE|OPA)")
_VIA = Pattern(r" via ((?:P2P|SHM|NET|COLL|direct)[\w/() ]*?)(?:\s+comm|\s*$)")
_PEER = Pattern(
    r"(?i)(?:peer|remote=|connect(?:ing)? to|socket with|Call to connect to)\s*\[?(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)"
)
_PACKAGE = Pattern(r"(?i)\blibnccl(?:2|-dev)[\s=:/,\w]{1,30}?(\d+\.\d+\.\d+)-\d+\+cuda(\d+\.\d+)")
_RANKS = Pattern(r"\brank \d+ nranks (\d+)")
_NODES = Pattern(
    r"(?i)(?:--nnodes[= ]|\b(?:nnodes|n_?nodes|num_?nodes|nodes|machines|hosts)\s?[:=]\s?)(?:\d+:)?(\d{1,4})(?![\d.])"
    r"|\b(\d{1,4}|single|one|two|three|four|eight)[ -](?:gpu )?(?:nodes?|machines?|hosts?|servers?|pods?|vms?)\b"
    r"|\bnRanks \d{1,6} nNodes (\d{1,5}) localRanks\b"
    r"|xlarge ?x ?(\d{1,3})\b|\b(\d{1,3}) ?x ?[\w.]+xlarge"
    r"|\b(?:each of|on|across|between|over) (two|three|four|both) (?:\w+ )?(?:nodes|machines|hosts|servers|pods|vms)\b"
)
_ALONE = Pattern(
    r"(?i)(?:^|\s)(?:-H|--hosts?)[= ](?:localhost|127\.0\.0\.1)(?::\d+)?(?![\w.:,])|(?:^|\s)--standalone\b"
    r"|(?:\b|_)(?:master_addr|rdzv_endpoint|init_method|dist[-_]init[-_]addr)[\"']?\s?[:= ]\s?[\"']?(?:tcp://)?(?:localhost|127\.0\.0\.1)\b"
)
"""A job whose ranks meet on the loopback address runs on one node."""
_MEETS = Pattern(
    r"(?i)(?:\b|_)(?:master_addr|rdzv_endpoint|init_method|dist[-_]init[-_]addr)[\"']?\s?[:= ]\s?[\"']?(?:tcp://)?"
    r"(?:<|(?!127\.)\d{1,3}\.\d)"
)
"""An address that other nodes can be told."""
_HOST = Pattern(r"(?:^|\s)([A-Za-z][\w.-]{0,62}):\d+:\d+ \[\d+\] NCCL (?:INFO|WARN)")
"""Whose line it is: two names are two nodes, one may be all that was pasted."""
_MANY = Pattern(r"(?i)\b(?:multi|inter|cross)[- ]?nodes?\b")
_NUMBERS = {"single": 1, "one": 1, "two": 2, "both": 2, "three": 3, "four": 4, "eight": 8}
_RATED = phrases(
    """
    busbw | bus bw | bus bandwidth | all_reduce | allreduce | all-reduce | all_gather | allgather | algbw
    """
)
_RATE = Pattern(r"(?<![\w.])(\d{1,4}(?:\.\d+)?)\s?(?:GBps|GB/s|gb/s)")
_SIZE = Pattern(
    r"^\W*\d{1,5}(?:\.\d+)?\s?(?:[KMGT]i?)?B\b|(?<![\w.])\d{1,5}(?:\.\d+)?\s?(?:[KM]i?B|[KM])\b(?!/s|ps|it)"
)
"""A row of a table by message size, or a size of some MB at most: such rates are bound by latency."""
_LINK = Pattern(r"(?i)\bLink \d|nvlink|hbm|memory|ib_(?:write|read)|iperf|bandwidthTest|pcie?\b|theoretical|line rate")
_FALLS = Pattern(r"(?i)\bfrom (\d{1,4}(?:\.\d+)?) ?(?:GB(?:ps|/s))? to (\d{1,4}(?:\.\d+)?) ?GB(?:ps|/s)")
_EXPECTED = Pattern(
    r"(?i)\b(?:expected|reference|should be|normal(?:ly)?|usual(?:ly)?)\b\D{1,24}?"
    r"(\d{1,4}(?:\.\d+)?)(?![\d.]*\s?[%xMK])"
)
_AVERAGE = Pattern(r"(?i)Avg bus bandwidth\s*:\s*(\d{1,4}(?:\.\d+)?)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """nccl.version, .interface, .network, .devices, .transports, .peers and .world_size; the job's size and rates."""
    yield from _job_size_and_rates(paste)
    if "nccl" not in paste.lower and "net/" not in paste.lower:
        return
    yield from _versions(paste)
    for name, pattern, words in (
        ("nccl.interface", _INTERFACE, ("bootstrap", "net/socket", "nccl_socket_ifname set to")),
        ("nccl.network", _NETWORK, ("using network",)),
        ("nccl.world_size", _RANKS, ("nranks",)),
    ):
        for match, source in paste.matches(pattern.search, *words):
            text = match.group(1)
            yield name, Known(int(text) if name == "nccl.world_size" else text, source)
    for name, pattern, words in (
        ("nccl.devices", _DEVICES, ("net/ib",)),
        ("nccl.transports", _VIA, (" via ",)),
        ("nccl.peers", _PEER, ("peer", "remote=", "connect")),
    ):
        sources: dict[str, str] = {}
        for index, line in paste.having(*words):
            for match in pattern.finditer(line[:1000]):
                sources.setdefault(match.group(1).strip(), paste.use(index))
        if sources:
            yield name, Known(tuple(sources)[:64], next(iter(sources.values())))
    if "net/ib" in paste.lower:
        for index, _ in paste.having("net/ib : using", "net/ib: using"):
            yield "nccl.network", Known("IB", paste.use(index))


def _job_size_and_rates(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.nodes, the largest number stated, and nccl.rate_high and nccl.rate_low, its collectives' rates in GB/s.

    The hosts that log count as well, and 1 for a rendezvous on localhost. Lines about links or with sizes give no rate.
    """
    counts: dict[int, str] = {}
    for index, line in paste.having("node", "machine", "hosts", "servers", "pods", "vms", "xlarge"):
        numbers = [number for match in _NODES.finditer(line[:400]) for number in match.groups() if number]
        for number in [*numbers, *(["two"] if _MANY.search(line[:400]) else ())]:
            count = int(number) if number.isdecimal() else _NUMBERS[number.lower()]
            counts.setdefault(count, f"line {paste.numbers[index]}")
    for index, line in paste.having("localhost", "127.0.0.1", "--standalone"):
        if _ALONE.search(line[:1000]):
            if not _MEETS.search(paste.text):
                counts.setdefault(1, f"line {paste.numbers[index]}")
            break
    hosts: dict[str, str] = {}
    for index, line in paste.having("nccl info", "nccl warn"):
        if match := _HOST.search(line[:200]):
            hosts.setdefault(match.group(1), f"line {paste.numbers[index]}")
    if len(hosts) > 1:
        counts.setdefault(len(hosts), hosts[list(hosts)[-1]])
    if counts:
        yield "nccl.nodes", Known(max(counts), counts[max(counts)])
    rates: dict[float, str] = {}
    names_rates = any(word in paste.lower for word in _RATED)
    for index, line in paste.having(*_RATED, "gb/s", "gbps", "expected") if names_rates else ():
        if _LINK.search(line) or _SIZE.search(line):
            continue
        for match in (
            match for pattern in (_RATE, _AVERAGE, _FALLS, _EXPECTED) for match in pattern.finditer(line[:400])
        ):
            for number in match.groups():
                rates.setdefault(float(number), f"line {paste.numbers[index]}")
    if rates:
        yield "nccl.rate_high", Known(max(rates), rates[max(rates)])
        yield "nccl.rate_low", Known(min(rates), rates[min(rates)])


def _versions(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.versions, all in the text, the first as nccl.version; nccl.cuda, the CUDA that NCCL was built with."""
    sources: dict[str, str] = {}
    for index, line in paste.having("libnccl"):
        if package := _PACKAGE.search(line[:400]):
            yield "nccl.cuda", Known(package.group(2), paste.use(index))
    for index, line in paste.having("nccl version"):
        for match in _VERSION.finditer(line[:1000]):
            source = paste.use(index)
            sources.setdefault(match.group(1), source)
            if match.group(2):
                yield "nccl.cuda", Known(match.group(2), source)
    if sources:
        source = next(iter(sources.values()))
        yield "nccl.version", Known(next(iter(sources)), source)
        yield "nccl.versions", Known(tuple(sources), source)

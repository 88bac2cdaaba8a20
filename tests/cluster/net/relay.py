"""A cable with faults between two interfaces: delay, and frames above a size that vanish. netem without netem.

``python -S -E relay.py HOST_SIDE SWITCH_SIDE``; each line of its standard input is a JSON list of faults, which replace
those before: ``{"way": "from" | "to" | "both", "peer": MAC or "", "delay": seconds, "most": bytes of an IP packet}``.
It ends with its input. Frames keep the kernel's offload header (packet(7), PACKET_VNET_HDR), so that large segments and
unfinished checksums pass as they would through a bridge.
"""

import contextlib
import heapq
import json
import select
import socket
import struct
import sys
import time
from typing import Any

_SOL_PACKET, _ADD_MEMBERSHIP, _VNET_HEADER, _IGNORE_OUTGOING, _PROMISCUOUS = 263, 1, 15, 23, 1
_HEADER = 10
"""Bytes of struct virtio_net_hdr: flags, type, header length, segment size, two of the checksum."""
_ETHERNET = 14

Fault = dict[str, Any]


def main(host: str, switch: str) -> None:
    """Relay until standard input ends."""
    ends = {"from": _open(host), "to": _open(switch)}
    across = {"from": ends["to"], "to": ends["from"]}
    faults: list[Fault] = []
    waiting: list[tuple[float, int, str, bytes]] = []
    count = 0
    print("ready", flush=True)
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([sys.stdin, *ends.values()], [], [], pause)
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            faults = json.loads(line)
            print("ready", flush=True)
        for way in [way for way, end in ends.items() if end in readable]:
            for frame in _frames(ends[way]):
                delay = fate(frame, way, faults)
                if delay is not None:
                    count += 1
                    heapq.heappush(waiting, (time.monotonic() + delay, count, way, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, way, frame = heapq.heappop(waiting)
            _send(across[way], frame)


def fate(frame: bytes, way: str, faults: list[Fault]) -> float | None:
    """Seconds that the frame is held back; None where it vanishes."""
    delay = 0.0
    ethernet = frame[_HEADER:]
    peer = (ethernet[0:6] if way == "from" else ethernet[6:12]).hex(":")
    for fault in faults:
        if fault["way"] in (way, "both") and fault["peer"] in (peer, ""):
            if fault["most"] and packet_size(frame) > fault["most"]:
                return None
            delay += fault["delay"]
    return delay


def packet_size(frame: bytes) -> int:
    """Bytes of the largest IP packet that the frame stands for: a large send is cut to segments further on."""
    kind, headers, segment = struct.unpack_from("=xBHH", frame)
    return (headers + segment if kind else len(frame) - _HEADER) - _ETHERNET


def _open(interface: str) -> socket.socket:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    link.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    link.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        link.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
    link.bind((interface, 0x0003))  # ETH_P_ALL
    request = struct.pack("=IHH8s", socket.if_nametoindex(interface), _PROMISCUOUS, 0, b"")
    link.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, request)
    link.setblocking(False)
    return link


def _frames(link: socket.socket) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < 64:
        try:
            frames.append(link.recv(1 << 17))
        except OSError:
            break
    return frames


def _send(link: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(OSError):  # a full queue, an interface that just went: the frame is lost, as on a wire
        link.send(frame)


if __name__ == "__main__":
    main(*sys.argv[1:3])

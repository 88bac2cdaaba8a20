"""At which of this host's addresses this process listens: the interfaces that Gloo or NCCL chose, as Linux tells."""

from __future__ import annotations

import os
import re
import socket
import struct
from typing import Dict, List, Set

_LISTEN = "0A"
_ADDRESS_OF = 0x8915
"""ioctl SIOCGIFADDR."""


def listens_at(store: int) -> List[str]:
    """``eth0 10.0.0.1``, each once; those of all addresses, and the store's, which has that port, tell nothing."""
    ours = _inodes()
    names = _interfaces()
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for fields in _table(table):
            at, _, port = fields[1].partition(":")
            address = _address(at, family)
            if fields[3] != _LISTEN or fields[9] not in ours or int(port, 16) == store:
                continue
            if address not in ("0.0.0.0", "::"):
                found.append(("%s %s" % (names.get(address, ""), address)).strip())
    return sorted(set(found))


def _inodes() -> Set[str]:
    """Of this process's sockets."""
    found = set()
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                found.update(re.findall(r"socket:\[(\d+)\]", os.readlink("/proc/self/fd/" + name)))
            except OSError:  # the one that lists
                continue
    except OSError:
        pass
    return found


def _table(name: str) -> List[List[str]]:
    try:
        with open("/proc/self/net/" + name) as file:
            return [line.split() for line in file][1:]
    except OSError:
        return []


def _address(text: str, family: int) -> str:
    """As the kernel prints it: words of 32 bits in the host's byte order. IPv4 in IPv6 is IPv4."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    shown = socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))
    return shown[7:] if shown.startswith("::ffff:") else shown


def _interfaces() -> Dict[str, str]:
    """Names by address: the first IPv4 address of each, and all of IPv6."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            found[socket.inet_ntoa(answer[20:24])] = name
    try:
        with open("/proc/self/net/if_inet6") as file:
            for line in file:
                fields = line.split()
                found[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[5]
    except OSError:
        pass
    return found

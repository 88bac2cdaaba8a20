"""Network addresses: what is equal stays equal, what is in one subnet stays in one, private stays private.

Octet by octet: two addresses that share their first three octets share them afterwards, too, so that what a netmask of
8, 16 or 24 bits says stays true. Addresses that every machine has stay as they are: loopback, any, link-local ones,
multicast, Docker's own bridge, and those kept for documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

from gpudoctor.hiding.ledger import Ledger

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_V4 = re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?![\w]|\.\d)")
_KEPT = re.compile(
    r"(?:127|0|22[4-9]|23\d|255)\.|169\.254\.|172\.17\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|198\.1[89]\."
    r"|(?:1\.1\.1\.1|8\.8\.8\.8|8\.8\.4\.4)\Z"
)
_PRIVATE = re.compile(r"10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.")
_VERSION_BEFORE = re.compile(
    r"(?:[=<>~!]=|[a-z0-9]\s?[<>]\s?|\bv|version\W{0,12}|\brelease\W{0,4}|[a-z]\d{0,3}[-_]"
    r"|(?:tensorrt|cud\w{1,9}|nccl|drivers?|versions?)/"
    r"|\b(?:lib[\w+.-]{2,40}|nvidia[\w-]{0,40}|tensorrt|trt|cu[a-z]{2,12}\d{0,3}|nccl|npp|nvjpeg|nvrtc|drivers?|vbios"
    r"|firmware|toolkit|package|[a-z][a-z0-9+.-]{1,40}-(?:dev|cu\d+))[\s(:=,'\"]{1,40})\Z",
    re.IGNORECASE,
)
_ADDRESS_BEFORE = re.compile(
    r"(?://|@|(?<![=<>!~])=|\b(?:addr\w*|ip|inet6?|host\w*|server|src|dst|peer|gateway|client|listen\w*|connect\w*"
    r"|bind\w*|remote)\W{1,4})\Z",
    re.IGNORECASE,
)
_ADDRESS_AFTER = re.compile(r"\]?:\d{2,5}\b|<\d{1,5}>|/(?:[89]|[12]\d|3[0-2])\b(?!\.)")
_VERSION_AFTER = re.compile(r"[-+~](?!\d{1,3}\.\d)[A-Za-z0-9]")
_LOW = 14
"""First octets below this are those of versions too: 12.8.4.1 is of cuBLAS, 10.2.1.243 as well."""
_HIGH = 32
"""An octet of at least this is in none of them, nor in the number of a chapter."""
_V6 = re.compile(r"(?:(?<=Gid)|(?<=Gids)|(?<![\w.]))[0-9a-f]{0,4}:[0-9a-f:]{1,40}(?![\w:]|\.\d)", re.IGNORECASE)
_PADDED = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}", re.IGNORECASE)
"""As InfiniBand writes a GID: its half that names the port is hidden as such."""


class Addresses:
    """Replaces them; `learn` those that can be nothing else, to be known where they could be versions."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.known: set[str] = set()
        """Those that can be nothing else."""

    def learn(self, text: str) -> None:
        """Take note of what stands where only an address can."""
        if text.count(".") > 2:
            for match in _V4.finditer(text):
                if not _KEPT.match(match[0]) and _is_marked(match):
                    self.known.add(match[0])

    def hide(self, text: str) -> str:
        """The text with every address replaced."""
        if text.count(".") > 2:
            text = _V4.sub(self._v4, text)
        if text.count(":") > 1:
            text = _V6.sub(self._v6, text)
        return text

    def _v4(self, match: re.Match[str]) -> str:
        found = match[0]
        if _KEPT.match(found) or not (_is_marked(match) or self._is_address(match)):
            return found
        return self.word(found)

    def _is_address(self, match: re.Match[str]) -> bool:
        found, text = match[0], match.string
        if _VERSION_AFTER.match(text, match.end()):
            return False
        if _VERSION_BEFORE.search(text, max(0, match.start() - 60), match.start()):
            return False
        octets = [int(octet) for octet in found.split(".")]
        return found in self.known or bool(_PRIVATE.match(found)) or (octets[0] >= _LOW and max(octets) >= _HIGH)

    def word(self, found: str) -> str:
        """What stands for that address."""
        if _KEPT.match(found):
            return found
        parts = found.split(".")
        if _PRIVATE.match(found):
            start = 1 if parts[0] == "10" else 2
            out = ".".join(parts[:start])
        else:
            start, out = 3, self._block(".".join(parts[:3]))
        for place in range(start, 3):
            out = self._ledger.word("subnet", ".".join(parts[: place + 1]), _below(out, 256), out)
        if parts[2:] == ["0", "0"]:
            return ".".join([*out.split(".")[:2], "0", "0"])
        if parts[3] in {"0", "255"}:  # the subnet itself, and everybody in it
            return f"{out}.{parts[3]}"
        return self._ledger.word("address", found, _below(out, 254), f"in {out}")

    def _block(self, subnet: str) -> str:
        """Public subnets are put into the block that is kept for measurements."""
        return self._ledger.word(
            "subnet", subnet, lambda number: f"198.{18 + (number >> 8 & 1)}.{number & 255}", "public"
        )

    def _v6(self, match: re.Match[str]) -> str:
        found = match[0]
        if _PADDED.fullmatch(found) or not any(sign.isdigit() for sign in found):
            return found
        try:
            address = IPv6Address(found)
        except AddressValueError:
            return found
        groups = address.exploded.split(":")
        if address.is_loopback or address.is_unspecified or address.is_multicast or groups[:2] == ["2001", "0db8"]:
            return found
        net, host = ":".join(groups[:4]), ":".join(groups[4:])
        if int(groups[0], 16) & 0xFFC0 == 0xFE80:
            number = self._ledger.word("address", f"{net}:{host}", lambda number: f"{number:x}", "fe80")
            return f"fe80::{number}"
        subnet = self._ledger.word("subnet", net, lambda number: f"{number:x}", "net 6")
        number = self._ledger.word("address", f"{net}:{host}", lambda number: f"{number:x}", f"host {net}")
        start = "fd00:0:0" if address.is_private else "2001:db8:0"
        return f"{start}:{subnet}::{number}"


def _is_marked(match: re.Match[str]) -> bool:
    """Whether what stands beside it says that it is an address."""
    text = match.string
    if _VERSION_AFTER.match(text, match.end()):
        return False
    if _ADDRESS_AFTER.match(text, match.end()):
        return True
    start = max(0, match.start() - 24)
    return bool(_ADDRESS_BEFORE.search(text, start, match.start())) and not _VERSION_BEFORE.search(
        text, start, match.start()
    )


def _below(beginning: str, many: int) -> Callable[[int], str]:
    return lambda number: f"{beginning}.{number % many if many == 256 else 1 + (number - 1) % many}"

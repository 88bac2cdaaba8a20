"""Numbers that name one thing in the world: UUIDs, serial numbers, GUIDs, hardware and network addresses, hashes."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

from gpudoctor.app.redaction.name_patterns import Ledger

_UUID = re.compile(
    r"(?:(?<=pod)|(?<![0-9a-f]))[0-9a-f]{8}(?P<s>[-_])[0-9a-f]{4}(?P=s)[0-9a-f]{4}(?P=s)[0-9a-f]{4}(?P=s)[0-9a-f]{12}(?![0-9a-f])",
    re.IGNORECASE,
)
_SHORT_UUID = re.compile(
    r"(?<![A-Za-z0-9])((?-i:(?:MIG-)?(?:GPU|MIG)-))([0-9a-f]{4,8})(?![0-9a-f])((?:-[0-9a-f]{1,12}){0,4})", re.IGNORECASE
)
"""The beginning of a UUID, as CUDA_VISIBLE_DEVICES may have it."""
_PUBLIC = frozenset(
    {
        "8be4df6193ca11d2aa0d00e098032b8c",  # UEFI's own variables: SecureBoot, SetupMode
        "605dab50e0464300abb63dd810dd8b23",  # shim's: MokListRT, MokSBStateRT
        "d719b2cb3d3a4596a3bcdad00e67656f",  # the signature databases: db, dbx
    }
)
"""UUIDs that are the same on every machine."""
_REPLACEMENT = re.compile(r"0000[0-9a-f]{4}f0004f008f0000000000[0-9a-f]{4}|0{20,60}[0-9a-f]{4}", re.IGNORECASE)
_MAC = re.compile(
    r"(?<![0-9a-f:-])[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4,18}(?![0-9a-f:-])", re.IGNORECASE
)
_GUID = re.compile(
    r"(?<![0-9a-f:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![0-9a-f])(?::[0-9a-f]{4}){0,4}(?![0-9a-f])(?!:[0-9a-f]{4}(?![0-9a-f]))",
    re.IGNORECASE,
)
_HEX_GUID = re.compile(r"(guid\W{1,6}(?:is )?)(?:0x)?([0-9a-f]{16})(?![0-9a-f])", re.IGNORECASE)
_SERIAL = re.compile(
    r"((?:serial(?:[ _]?(?:number|no))?|SerialNumber|asset[ _]tag|service[ _]tag|PDI)\.?['\"]?"
    r"\s{0,40}[:=#]\s{0,8}['\"]?)"
    r"([A-Za-z0-9][\w.-]{3,63})",
    re.IGNORECASE,
)
_NO_SERIAL = re.compile(r"(?:n/?a|none|unknown|not|default|to|system|0+)\Z", re.IGNORECASE)
_HEX = re.compile(r"(?<![0-9a-fA-F_.])(?<!sha256:)(?<!sha256=)(?:[0-9a-f]{32,128}|[0-9A-F]{32,128})(?![0-9a-fA-F])")
_COMMIT = re.compile(
    r"(?:git\w*|commit|revision|rev|sha1?|head|version|blob|tree|hash|digest|md5|checksum|@|\+)\W{0,8}\Z",
    re.IGNORECASE,
)


class Numbers:
    """Replaces device numbers: UUIDs, serial numbers, GUIDs, hardware addresses, long hexadecimal ids."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._uuids_by_prefix: dict[str, set[str]] = {}
        """UUIDs, and beginnings of such, by their first four digits."""

    def hide(self, text: str) -> str:
        """The text with every device number replaced by one of the same form; public and replaced ones are kept."""
        if "-" in text or "_" in text:
            text = _UUID.sub(lambda match: self._replacement_of_uuid(match[0], match["s"]), text)
            text = _SHORT_UUID.sub(self._replace_short_uuid, text)
        if ":" in text or "-" in text:
            text = _MAC.sub(self._replace_mac, text)
            text = _GUID.sub(self._replace_guid, text)
        low = text.lower()
        if "guid" in low:
            text = _HEX_GUID.sub(lambda match: match[0].removesuffix(match[2]) + self._replace_port(match[2]), text)
        if "serial" in low or "tag" in low or "pdi" in low:
            text = _SERIAL.sub(lambda match: match[1] + self.serial(match[2]), text)
        return _HEX.sub(self._replace_hex, text)

    def serial(self, value: str) -> str:
        """Replacement of a serial number, 13 digits; placeholders such as N/A are kept."""
        if _NO_SERIAL.match(value) or len(value.strip("0")) < 1 or re.fullmatch(r"0{9}\d{4}", value):
            return value
        return self._ledger.word("serial", value.lower(), lambda number: f"{number:013d}")

    def whole(self, value: str) -> str:
        """Replacement of a UUID that is a whole value, with or without dashes; other text goes through `hide`."""
        if re.fullmatch(r"[0-9a-fA-F]{32}", value):
            return self._replacement_of_uuid(value, "")
        return self.hide(value)

    def learn(self, text: str) -> None:
        """Learn the UUIDs in the text, whole or cut off, so that a beginning is replaced like its whole."""
        if "-" in text:
            uuids = [re.sub(r"[-_]", "", match[0]) for match in _UUID.finditer(text)]
            uuids += [match[2] + match[3].replace("-", "") for match in _SHORT_UUID.finditer(text)]
            for plain in uuids:
                self._uuids_by_prefix.setdefault(plain[:4].lower(), set()).add(plain.lower())

    def _replacement_of_uuid(self, uuid: str, separator: str) -> str:
        """Replacement of a UUID, its parts joined by `separator`; public UUIDs, zeros and replacements are kept."""
        plain = re.sub(r"[-_]", "", uuid).lower()
        if plain in _PUBLIC or not plain.strip("0") or _REPLACEMENT.fullmatch(plain):
            return uuid
        return self._ledger.word("uuid", plain, _uuid_word).replace("-", separator)

    def _replace_short_uuid(self, match: re.Match[str]) -> str:
        """A cut-off UUID as the first 8 digits of its whole one's replacement, or, if none is known, of one of its own;
        ``0000`` where it may be one of several.

        One that is a replacement already is kept.
        """
        prefix = match[2].lower() + match[3].replace("-", "").lower()
        if re.match(r"0000(?:[0-9a-f]{4}|\Z)", prefix):
            return match[0]
        known = [uuid for uuid in self._uuids_by_prefix.get(prefix[:4], ()) if uuid.startswith(prefix)]
        whole = [uuid for uuid in known if not any(other != uuid and other.startswith(uuid) for other in known)]
        if len(whole) > 1:  # of several: so it stays, for all words begin alike
            return f"{match[1]}0000"
        return match[1] + self._ledger.word("uuid", next(iter(whole), prefix), _uuid_word)[:8]

    def _replace_mac(self, match: re.Match[str]) -> str:
        """Replacement of a hardware address; broadcast-like and replaced ones, and long dashed runs, are kept."""
        address = match[0].lower()
        pairs = address.split(match[1])
        if match[1] == "-" and len(pairs) > 8:
            return match[0]
        if len({*pairs}) == 1 or address.startswith(("02:00:00:00", "02-00-00-00")):
            return match[0]
        word = self._ledger.word(
            "mac", ":".join(pairs), lambda number: f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        )
        return word.replace(":", match[1])

    def _replace_guid(self, match: re.Match[str]) -> str:
        """Replacement of a GUID or GID: its port's half and its network's; prefixes and zeros are kept."""
        groups = match[0].lower().split(":")
        if len(groups) not in (4, 8):
            return match[0]
        head, tail = groups[:-4], groups[-4:]
        if len(groups) == 4 and (tail[0] in {"fe80", "fec0"} or not any(group.strip("0") for group in tail)):
            return match[0]
        if tail[:2] == ["0000", "ffff"]:
            address = ":".join(tail)
            word = self._ledger.word("guid", address, lambda number: f"0000:ffff:0a00:{number:04x}", "mapped")
        else:
            port = self._replace_port("".join(tail))
            word = ":".join(port[at : at + 4] for at in range(0, 16, 4))
        return ":".join([*self._replacement_of_prefix(head), word])

    def _replacement_of_prefix(self, head: list[str]) -> list[str]:
        """Replacement of a GID's network half; link-local and zero ones are kept."""
        if not head or head[0] in {"fe80", "fec0"} or not any(group.strip("0") for group in head):
            return head
        word = self._ledger.word("guid", ":".join(head), lambda number: f"2001:0db8:0000:{number:04x}", "prefix")
        return [word]

    def _replace_port(self, digits: str) -> str:
        """Replacement of the 16 digits that name a port; zeros and replacements are kept."""
        plain = digits.lower()
        if not plain.strip("0") or plain.startswith("0002c9030000"):
            return digits
        return self._ledger.word("guid", plain, lambda number: f"0002c9030000{number:04x}", "port")

    def _replace_hex(self, match: re.Match[str]) -> str:
        """Replacement of a long hexadecimal id (machine, container, key); replacements, decimal numbers, and commits
        and hashes by the word before them are kept.

        A hash of 64 digits is kept only after ``sha256:`` or ``sha256=``.
        """
        digits = match[0]
        if _REPLACEMENT.fullmatch(digits) or len({*digits}) < 5 or digits.isdecimal():
            return digits
        if len(digits) != 64 and _COMMIT.search(match.string, max(0, match.start() - 24), match.start()):
            return digits
        return self._ledger.word("hex", digits, lambda number: f"{number:0{len(digits)}x}")


def _uuid_word(number: int) -> str:
    """The UUID that replaces the nth one hidden, as text."""
    return f"{number:08x}-f000-4f00-8f00-{number:012x}"


# ---- Network addresses ----
# What is equal stays equal, what is in one subnet stays in one, private stays private. Octet by octet: two addresses
# that share their first three octets share them afterwards, too, so that what a netmask of 8, 16 or 24 bits says stays
# true. Addresses that every machine has stay as they are: loopback, any, link-local ones, multicast, Docker's own
# bridge, and those kept for documentation.

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
_LEAST_OCTET = 14
"""First octets below this are those of versions too: 12.8.4.1 is of cuBLAS, 10.2.1.243 as well."""
_CERTAIN_OCTET = 32
"""An octet of at least this is in none of them, nor in the number of a chapter."""
_V6 = re.compile(r"(?:(?<=Gid)|(?<=Gids)|(?<![\w.]))[0-9a-f]{0,4}:[0-9a-f:]{1,40}(?![\w:]|\.\d)", re.IGNORECASE)
_PADDED = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}", re.IGNORECASE)
"""As InfiniBand writes a GID: its half that names the port is hidden as such."""


class Addresses:
    """Replaces IP addresses; `learn` notes those that are certainly addresses, as others could be versions."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.known: set[str] = set()
        """Those that can be nothing else."""

    def learn(self, text: str) -> None:
        """Note IPv4 addresses that stand where only an address can."""
        if text.count(".") > 2:
            for match in _V4.finditer(text):
                if not _KEPT.match(match[0]) and _is_marked(match):
                    self.known.add(match[0])

    def hide(self, text: str) -> str:
        """The text with IP addresses replaced; those of every machine, and what may be a version, are kept."""
        if text.count(".") > 2:
            text = _V4.sub(self._replace_v4, text)
        if text.count(":") > 1:
            text = _V6.sub(self._replace_v6, text)
        return text

    def _replace_v4(self, match: re.Match[str]) -> str:
        """Replacement of a matched IPv4 address; unchanged if it is in `_KEPT`, as loopback, or may be a version.

        Its context and numbers decide that, beside `known`.
        """
        address = match[0]
        if _KEPT.match(address) or not (_is_marked(match) or self._is_address(match)):
            return address
        return self.word(address)

    def _is_address(self, match: re.Match[str]) -> bool:
        """True if four numbers with dots are an address and not a version, by their context and values."""
        address, text = match[0], match.string
        if _VERSION_AFTER.match(text, match.end()):
            return False
        if _VERSION_BEFORE.search(text, max(0, match.start() - 60), match.start()):
            return False
        octets = [int(octet) for octet in address.split(".")]
        return (
            address in self.known
            or bool(_PRIVATE.match(address))
            or (octets[0] >= _LEAST_OCTET and max(octets) >= _CERTAIN_OCTET)
        )

    def word(self, address: str) -> str:
        """Replacement of an IPv4 address, in a replaced subnet: equal subnets stay equal, private ones private."""
        if _KEPT.match(address):
            return address
        parts = address.split(".")
        if _PRIVATE.match(address):
            start = 1 if parts[0] == "10" else 2
            out = ".".join(parts[:start])
        else:
            start, subnet = 3, ".".join(parts[:3])  # in 198.18.0.0/15, which is reserved for benchmarks
            out = self._ledger.word("subnet", subnet, lambda at: f"198.{18 + (at >> 8 & 1)}.{at & 255}", "public")
        for place in range(start, 3):
            out = self._ledger.word("subnet", ".".join(parts[: place + 1]), _last_octet(out, 256), out)
        if parts[2:] == ["0", "0"]:
            return ".".join([*out.split(".")[:2], "0", "0"])
        if parts[3] in {"0", "255"}:  # the subnet itself, and everybody in it
            return f"{out}.{parts[3]}"
        return self._ledger.word("address", address, _last_octet(out, 254), f"in {out}")

    def _replace_v6(self, match: re.Match[str]) -> str:
        """Replacement of a matched IPv6 address; loopback, multicast, documentation and GID spellings are kept."""
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
    """True if the text around the match says that it is an IP address: a port, a netmask, ``ip=``."""
    text = match.string
    if _VERSION_AFTER.match(text, match.end()):
        return False
    if _ADDRESS_AFTER.match(text, match.end()):
        return True
    start = max(0, match.start() - 24)
    return bool(_ADDRESS_BEFORE.search(text, start, match.start())) and not _VERSION_BEFORE.search(
        text, start, match.start()
    )


def _last_octet(prefix: str, count: int) -> Callable[[int], str]:
    """A function that gives the nth address or subnet below the prefix: octets 0-255, or 1-254 for hosts."""
    return lambda number: f"{prefix}.{number % count if count == 256 else 1 + (number - 1) % count}"

"""Numbers that name one thing in the world: UUIDs, serial numbers, GUIDs, hardware addresses, ids of containers."""

from __future__ import annotations

import re

from gpudoctor.hiding.ledger import Ledger

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
_OURS = re.compile(r"0000[0-9a-f]{4}f0004f008f0000000000[0-9a-f]{4}|0{20,60}[0-9a-f]{4}", re.IGNORECASE)
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
    """Replaces them, and those that were learnt from facts wherever they stand."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._begun: dict[str, set[str]] = {}
        """UUIDs, and beginnings of such, by their first four digits."""

    def hide(self, text: str) -> str:
        """The text with every such number replaced by one of the same form."""
        if "-" in text or "_" in text:
            text = _UUID.sub(lambda match: self._uuid(match[0], match["s"]), text)
            text = _SHORT_UUID.sub(self._short, text)
        if ":" in text or "-" in text:
            text = _MAC.sub(self._mac, text)
            text = _GUID.sub(self._guid, text)
        low = text.lower()
        if "guid" in low:
            text = _HEX_GUID.sub(lambda match: match[0].removesuffix(match[2]) + self._port(match[2]), text)
        if "serial" in low or "tag" in low or "pdi" in low:
            text = _SERIAL.sub(self._serial_in, text)
        return _HEX.sub(self._hex, text)

    def serial(self, value: str) -> str:
        """The word for a serial number."""
        if _NO_SERIAL.match(value) or len(value.strip("0")) < 1 or re.fullmatch(r"0{9}\d{4}", value):
            return value
        return self._ledger.word("serial", value.lower(), lambda number: f"{number:013d}")

    def whole(self, value: str) -> str:
        """A UUID as it may stand in a fact of its own, dashes or none."""
        if re.fullmatch(r"[0-9a-fA-F]{32}", value):
            return self._uuid(value, "")
        return self.hide(value)

    def learn(self, text: str) -> None:
        """Take note of UUIDs and beginnings of such, so that each beginning is known to be that of a whole one."""
        if "-" in text:
            found = [re.sub(r"[-_]", "", match[0]) for match in _UUID.finditer(text)]
            found += [match[2] + match[3].replace("-", "") for match in _SHORT_UUID.finditer(text)]
            for plain in found:
                self._begun.setdefault(plain[:4].lower(), set()).add(plain.lower())

    def _uuid(self, found: str, joint: str) -> str:
        plain = re.sub(r"[-_]", "", found).lower()
        if plain in _PUBLIC or not plain.strip("0") or _OURS.fullmatch(plain):
            return found
        return self._ledger.word("uuid", plain, _uuid_word).replace("-", joint)

    def _short(self, match: re.Match[str]) -> str:
        """As many digits of the whole one's word, where it is known."""
        begun = match[2].lower() + match[3].replace("-", "").lower()
        if re.match(r"0000(?:[0-9a-f]{4}|\Z)", begun):
            return match[0]
        known = [one for one in self._begun.get(begun[:4], ()) if one.startswith(begun)]
        whole = [one for one in known if not any(other != one and other.startswith(one) for other in known)]
        if len(whole) > 1:  # of several: so it stays, for all words begin alike
            return f"{match[1]}0000"
        return match[1] + self._ledger.word("uuid", next(iter(whole), begun), _uuid_word)[:8]

    def _mac(self, match: re.Match[str]) -> str:
        found = match[0].lower()
        pairs = found.split(match[1])
        if match[1] == "-" and len(pairs) > 8:
            return match[0]
        if len({*pairs}) == 1 or found.startswith(("02:00:00:00", "02-00-00-00")):
            return match[0]
        word = self._ledger.word(
            "mac", ":".join(pairs), lambda number: f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        )
        return word.replace(":", match[1])

    def _guid(self, match: re.Match[str]) -> str:
        """The half of an address that names the port; prefixes and zeros name nobody."""
        groups = match[0].lower().split(":")
        if len(groups) not in (4, 8):
            return match[0]
        head, tail = groups[:-4], groups[-4:]
        if len(groups) == 4 and (tail[0] in {"fe80", "fec0"} or not any(group.strip("0") for group in tail)):
            return match[0]
        if tail[:2] == ["0000", "ffff"]:
            word = self._mapped(tail)
        else:
            port = self._port("".join(tail))
            word = ":".join(port[at : at + 4] for at in range(0, 16, 4))
        return ":".join([*self._prefix(head), word])

    def _prefix(self, head: list[str]) -> list[str]:
        """The network's half: link-local and none stay."""
        if not head or head[0] in {"fe80", "fec0"} or not any(group.strip("0") for group in head):
            return head
        word = self._ledger.word("guid", ":".join(head), lambda number: f"2001:0db8:0000:{number:04x}", "prefix")
        return [word]

    def _mapped(self, tail: list[str]) -> str:
        """An IPv4 address inside a GID."""
        found = ":".join(tail)
        return self._ledger.word("guid", found, lambda number: f"0000:ffff:0a00:{number:04x}", "mapped")

    def _port(self, digits: str) -> str:
        plain = digits.lower()
        if not plain.strip("0") or plain.startswith("0002c9030000"):
            return digits
        return self._ledger.word("guid", plain, lambda number: f"0002c9030000{number:04x}", "port")

    def _serial_in(self, match: re.Match[str]) -> str:
        return match[1] + self.serial(match[2])

    def _hex(self, match: re.Match[str]) -> str:
        """Ids of machines and containers, and keys; a commit is everybody's."""
        found = match[0]
        if _OURS.fullmatch(found) or len({*found}) < 5 or found.isdecimal():
            return found
        if len(found) != 64 and _COMMIT.search(match.string, max(0, match.start() - 24), match.start()):
            return found
        return self._ledger.word("hex", found, lambda number: f"{number:0{len(found)}x}")


def _uuid_word(number: int) -> str:
    return f"{number:08x}-f000-4f00-8f00-{number:012x}"

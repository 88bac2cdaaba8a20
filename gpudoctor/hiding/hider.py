"""What is personal on a machine, replaced: the same name by the same word everywhere, so that what was equal stays so.

Hidden are the machine's name, users and their homes, UUIDs, serial numbers, hardware and network addresses of this
machine, and whatever smells of a secret. A user's name is replaced by one of the same length, so that paths inside
binary files can be replaced too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gpudoctor.probes._secrets import HIDDEN, without_tokens

_HOME = re.compile(r"(?<![\w.-])(/(?:[\w.-]+/)*?(?:home|homes|Users|people))/([A-Za-z_][\w.-]*)")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_PUBLIC = frozenset(
    {
        "8be4df61-93ca-11d2-aa0d-00e098032b8c",  # UEFI's own variables: SecureBoot, SetupMode
        "605dab50-e046-4300-abb6-3dd810dd8b23",  # shim's: MokListRT, MokSBStateRT
        "d719b2cb-3d3a-4596-a3bc-dad00e67656f",  # the signature databases: db, dbx
    }
)
"""UUIDs that are the same on every machine."""

_MAC = re.compile(r"(?<![0-9a-f:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?![0-9a-f:])", re.IGNORECASE)
_GUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![0-9a-f])", re.IGNORECASE)
_SERIAL = re.compile(r"(?<=SerialNumber: )\S+|(?<=[Ss]erial number: )\S+")
_ADDRESS = r"(?:\d{1,3}\.){3}\d{1,3}"
_NAMED_ADDRESS = re.compile(rf"(?:(?:ADDR|SRC|DST|HOST|inet|CLIENT|CONNECTION)[= ]|//|@){_ADDRESS}")
_SERIAL_KEYS = ("nvmlDeviceGetSerial", "nvmlDeviceGetBoardSerial")
_UUID_KEYS = ("cuDeviceGetUuid", "clusterUuid", "nvmlDeviceGetUUID")
_COMMON = (
    "root user users home admin ubuntu debian fedora centos rocky alma suse arch linux docker podman container",
    "host localhost node worker master server machine nvidia cuda torch pytorch gpu driver python python3 conda",
    "default system local test bench build data shared public runner jenkins vscode ec2-user opc",
)
"""Names that say nothing about anybody, and may be words of any path."""
_SHORTEST = 4


class Hider:
    """Replaces what it was told of, and what has the shape of something personal."""

    def __init__(self, host: str, users: Iterable[str], addresses: Iterable[str] = ()) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._hosts = [name for name in dict.fromkeys((host, host.partition(".")[0])) if _is_telling(name)]
        self._users: dict[str, str] = {}
        self._addresses = set(addresses)
        for user in users:
            self.user(user)

    def user(self, name: str) -> str:
        """The word for a user, as long as the name."""
        if name not in self._users:
            if not _is_telling(name):
                return name
            word = f"u{len(self._users) + 1}"
            self._users[name] = (word + "x" * len(name))[: max(len(word), len(name))]
        return self._users[name]

    def learn(self, text: str) -> None:
        """Find names and addresses that are personal wherever they stand."""
        for match in _HOME.finditer(text):
            self.user(match[2])
        self._addresses.update(re.findall(_ADDRESS, " ".join(_NAMED_ADDRESS.findall(text))))

    def text(self, text: str) -> str:
        """The text with everything replaced."""
        text = without_tokens(text)
        text = _UUID.sub(lambda match: self._uuid(match[0]), text)
        text = _MAC.sub(lambda match: self._nth("mac", match[0].lower(), _mac), text)
        text = _GUID.sub(self._guid, text)
        text = _SERIAL.sub(lambda match: self._nth("serial", match[0], _serial), text)
        if self._users or self._hosts or self._addresses:
            text = self._names().sub(self._named, text)
        return text

    def raw(self, data: bytes) -> bytes:
        """Bytes with the users in paths replaced, the length unchanged."""
        for name, word in self._users.items():
            if len(name) == len(word):
                data = data.replace(f"/{name}/".encode(), f"/{word}/".encode())
        return data

    def json(self, value: Any, key: str = "") -> Any:
        """Parsed JSON with every text in it replaced; some keys tell what a text is."""
        if isinstance(value, dict):
            return {self.text(str(name)): self.json(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.json(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in _SERIAL_KEYS:
            return self._nth("serial", value, _serial)
        if key in _UUID_KEYS and re.fullmatch(r"[0-9a-fA-F]{32}", value):
            return self._uuid(value).replace("-", "") if value.strip("0") else value
        return self.text(value)

    def _uuid(self, found: str) -> str:
        if found.lower() in _PUBLIC:
            return found
        plain = found.replace("-", "").lower()
        return self._nth("uuid", plain, lambda n: f"00000000-0000-4000-8000-{n:012x}") if plain.strip("0") else found

    def _guid(self, match: re.Match[str]) -> str:
        """The half of an address that names the port; prefixes and zeros name nobody."""
        found = match[0].lower()
        if found.startswith(("fe80:", "fec0:")) or not found.strip("0:"):
            return match[0]
        if found.startswith("0000:ffff:"):  # an IPv4 address inside a GID
            return self._nth("gid", found, lambda n: f"0000:ffff:0a00:{n:04x}")
        return self._nth("guid", found, lambda n: f"0002:c903:0000:{n:04x}")

    def _nth(self, kind: str, found: str, made: Callable[[int], str]) -> str:
        if (kind, found) not in self._given:
            self._given[kind, found] = made(1 + sum(other == kind for other, _ in self._given))
        return self._given[kind, found]

    def _names(self) -> re.Pattern[str]:
        names = sorted({*self._users, *self._hosts, *self._addresses}, key=len, reverse=True)
        return re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-]|\.\d)")

    def _named(self, match: re.Match[str]) -> str:
        name = match[0]
        if name in self._users:
            return self._users[name]
        if name in self._hosts:
            return "host1"
        own = name.startswith(("127.", "0.", "169.254.", "255."))
        return name if own else self._nth("address", name, lambda n: f"10.0.{n // 250}.{n % 250 + 1}")


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in " ".join(_COMMON).split()


def _mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02_00_00_00_00_00 + number).to_bytes(6, "big"))


def _serial(number: int) -> str:
    return f"{number:013d}"


__all__ = ["HIDDEN", "Hider"]

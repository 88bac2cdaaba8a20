"""What is personal, replaced in what another person is to see: the same name by the same word everywhere.

What was equal stays so, what differed differs, and a diagnosis stays true: `shared` takes any value of the model (a
diagnosis, a snapshot, a fleet, measurements, a plan, a difference, a stack), before any view has seen it. What a view
may show has passed `walk`, which leaves out no text of it.

What is hidden stands in `ledger.NAMES`. What stays: versions, product names, PCI addresses, libraries and packages,
folders below a home, accounts of every system (root, ubuntu, runner), the addresses that every machine has, and the
sites that all the world uses.

Its limits. A name is found where a name must stand (`places`) or where a fact gives it; then it is hidden wherever it
stands, unless it is shorter than four letters or a word of our own pages: such a one is hidden only where it must be a
name. A public address that could be a version (8.9.2.26) is hidden only where something beside it says what it is.
Names are found through terminal colours, invisible and wide letters, ``%2F``, and the escapes of JSON; not through
letters of other scripts that look alike, base64, or a name cut in two. A secret is known by its shape or by what it is
given to; one that looks like a word, and stands alone, is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from gpudoctor.hiding.addresses import Addresses
from gpudoctor.hiding.ledger import Ledger
from gpudoctor.hiding.numbers import Numbers
from gpudoctor.hiding.public import ACCOUNTS
from gpudoctor.hiding.sharing import Sharing
from gpudoctor.model.secrets import without_secrets

T = TypeVar("T")


def shared(thing: T) -> T:
    """The same without names, addresses, numbers of devices, and secrets."""
    return Sharing()(thing)


__all__ = ["Hider", "Sharing", "shared"]


# ---- What is personal in a record, replaced so that its replay still gives the same diagnosis ----
# Which numbers, addresses and accounts are whose, and the words for them, are those of sharing. A record asks for
# more care with the rest: nothing is undone or made plain, names are hidden only where they stand alone, and a user's
# name is replaced by one of the same length, so that paths inside binary files can be replaced too.

_HOME = re.compile(r"(?<![\w.-])(/(?:[\w.-]+/)*?(?:home|homes|Users|people))/([A-Za-z_][\w.-]*)")
_SERIAL_KEYS = ("nvmlDeviceGetSerial", "nvmlDeviceGetBoardSerial")
_UUID_KEYS = ("cuDeviceGetUuid", "clusterUuid", "nvmlDeviceGetUUID")
_SHORTEST = 4


class Hider:
    """Replaces what it was told of, and what has the shape of something personal."""

    def __init__(self, host: str, users: Iterable[str]) -> None:
        self._ledger = Ledger()
        self._numbers = Numbers(self._ledger)
        self._addresses = Addresses(self._ledger)
        self._hosts = [name for name in dict.fromkeys((host, host.partition(".")[0])) if _is_telling(name)]
        self._users: dict[str, str] = {}
        for user in users:
            self.user(user)

    def user(self, name: str) -> str:
        """The word for a user, as long as the name."""
        if name not in self._users:
            if not _is_telling(name):
                return name
            self._users[name] = self._ledger.word("user", name, lambda number: f"u{number}".ljust(len(name), "x"))
        return self._users[name]

    def learn(self, text: str) -> None:
        """Find names and addresses that are personal wherever they stand."""
        for match in _HOME.finditer(text):
            self.user(match[2])
        self._addresses.learn(text)

    def text(self, text: str) -> str:
        """The text with everything replaced."""
        text = self._numbers.hide(without_secrets(text))
        if self._users or self._hosts or self._addresses.known:
            text = self._names().sub(self._named, text)
        return text

    def raw(self, data: bytes) -> bytes:
        """Bytes with the users in paths replaced, the length unchanged."""
        for name, word in self._users.items():
            if len(name) == len(word):
                data = data.replace(f"/{name}/".encode(), f"/{word}/".encode())
        return data

    def json(self, value: Any) -> Any:
        """Parsed JSON with every text in it replaced; some keys tell what a text is."""
        for text in _texts(value):
            self._numbers.learn(text)
        return self._json(value, "")

    def _json(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {self.text(str(name)): self._json(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._json(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in _SERIAL_KEYS:
            return self._numbers.serial(value)
        return self._numbers.whole(value) if key in _UUID_KEYS else self.text(value)

    def _names(self) -> re.Pattern[str]:
        names = sorted({*self._users, *self._hosts, *self._addresses.known}, key=len, reverse=True)
        return re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-]|\.\d)")

    def _named(self, match: re.Match[str]) -> str:
        name = match[0]
        if name in self._users:
            return self._users[name]
        return "host1" if name in self._hosts else self._addresses.word(name)


def _texts(value: Any) -> Iterator[str]:
    """Every text within parsed JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in ACCOUNTS

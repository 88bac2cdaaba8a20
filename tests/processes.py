"""What tests of processes need: what one did, which there are, whether one is gone, a port for it."""

import json
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_CHANCE = random.SystemRandom()
"""Of no seed: tests beside each other must not draw the same."""


class Ran(NamedTuple):
    """What a program did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)

    @property
    def ids(self) -> set[str]:
        """Of its findings that are worse than information."""
        return {finding["id"] for finding in self.document["findings"] if finding["severity"] != "info"}

    def titles(self, name: str) -> list[str]:
        """What its findings of one kind say."""
        return [finding["title"] for finding in self.document["findings"] if finding["id"] == name]


def finished(argv: Sequence[str | Path], **how: Any) -> Ran:
    """What a program did, to its end, for which it has ten minutes; `how` as `subprocess.run` takes it."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, **{"timeout": 600, **how})
    return Ran(done.returncode, done.stdout, done.stderr)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(true: Callable[[], object]) -> bool:
    """Whether it becomes true: at once, where the machine has nothing else to do."""
    deadline = time.monotonic() + 600
    while not (held := bool(true())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def gone(pid: int) -> bool:
    """Whether the process goes: at once, where the machine has nothing else to do."""
    return until(lambda: not is_alive(pid))


def left(look: Callable[[], Iterable[Any]]) -> list[Any]:
    """What is still found of processes that were killed: each is there until its turn comes to end."""
    until(lambda: not list(look()))
    return list(look())


def free_port() -> int:
    """A port on which nobody listens, and which nobody is given who asks for any: such begin at 32768."""
    while True:
        port = _CHANCE.randrange(15_000, 32_000)
        with suppress(OSError), socket.create_server(("", port)):
            return port


def marked(word: str) -> list[int]:
    """The processes that were started with that word in their environment."""
    return [pid for pid in _every() if word.encode() in _bytes(pid, "environ")]


def within(root: Path) -> list[int]:
    """The processes whose root is that folder."""
    found = []
    for pid in _every():
        with suppress(OSError):  # others come and go
            if Path(f"/proc/{pid}/root").readlink() == root:
                found.append(pid)
    return found


def command_line(pid: int) -> str:
    """Its words with blanks between them; empty where it has ended."""
    return _bytes(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def _every() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _bytes(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""

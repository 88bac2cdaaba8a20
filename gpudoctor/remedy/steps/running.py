"""A step's command as a child: no shell, nothing to answer it, its output as it comes, and ended when it is wanted."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor import shipped
from gpudoctor.model.run import Stop
from gpudoctor.model.secrets import without_secrets
from gpudoctor.target import child as children

LIMIT = 4 * 3600.0
"""Seconds that a command may take: a download of gigabytes over a slow line, or a build from source."""
PATIENCE = 8.0
"""Seconds that a command has to end in after each signal; pip puts back what it was replacing when interrupted."""
_LONGEST = 1 << 16
"""Characters of a line without an end that are held back."""
_TICK = 0.1
_LINGER = 0.5
"""Seconds that are waited for more output of a command that has ended, where something it started holds its streams."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_SURROUNDINGS = {
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Every command speaks English, prints at once and asks nothing: there is nobody at its standard input."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `stopped` is why it was ended from outside, empty where it came to its own end."""

    status: int
    seconds: float
    stopped: str = ""


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    heard: Callable[[str], None],
    wants: Callable[[], Stop],
    born: Callable[[int], None] = lambda _: None,
    leash: bool = True,
) -> Outcome:
    """Run it; `heard` gets each piece of its output, `born` its process id. Raises `OSError` where it cannot start.

    With `leash` it ends when we do, even when we are killed. Without, it goes on: a package manager of the system that
    is killed leaves more behind than one that comes to its end.
    """
    began = time.monotonic()
    command = _leashed(argv) if leash else list(argv)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environ, **_SURROUNDINGS},
        start_new_session=True,
        bufsize=0,
    )
    children.begun.add(child.pid)
    try:
        born(child.pid)
        stopped = _Listening(child, heard, wants, began + LIMIT).until_it_ends()
    except BaseException:
        children.kill_group(child)
        child.wait()
        raise
    finally:
        assert child.stdout
        child.stdout.close()
    return Outcome(child.returncode, time.monotonic() - began, stopped)


def _leashed(argv: Sequence[str]) -> list[str]:
    text = shipped.text("remedy/children/leash.py")
    return [sys.executable, "-I", "-S", "-c", text, str(os.getpid()), *argv]


class _Listening:
    """Hears a child until it ends, and ends it when that is wanted."""

    def __init__(
        self, child: subprocess.Popen[bytes], heard: Callable[[str], None], wants: Callable[[], Stop], deadline: float
    ) -> None:
        assert child.stdout
        self.child, self.pipe = child, child.stdout
        self._heard, self._wants, self._deadline = heard, wants, deadline
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._signals = iter(_ENDING)
        self._next = 0.0
        self._begun = ""
        self._stopped = ""

    def until_it_ends(self) -> str:
        """Why it was ended, empty where it ended by itself."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            ended = float("inf")
            while time.monotonic() < ended + _LINGER:
                if selector.get_map() and selector.select(_TICK):
                    if not self._read():
                        selector.unregister(self.pipe)
                elif not selector.get_map():
                    time.sleep(_TICK / 5)
                if self.child.poll() is not None:
                    if not selector.get_map() or not selector.select(0):
                        ended = min(ended, time.monotonic())
                    if not selector.get_map():
                        break
                self._end_if_wanted()
        self._tell(self._decoder.decode(b"", final=True), final=True)
        return self._stopped

    def _read(self) -> bool:
        data = os.read(self.pipe.fileno(), 65536)
        self._tell(self._decoder.decode(data))
        return bool(data)

    def _tell(self, text: str, final: bool = False) -> None:
        """Hand on whole lines, without secrets: of a part of one nobody can say whether it is a secret's."""
        text = self._begun + text
        whole = len(text) if final or len(text) > _LONGEST else max(text.rfind("\n"), text.rfind("\r")) + 1
        self._begun = text[whole:]
        if whole:
            self._heard("".join(map(without_secrets, text[:whole].splitlines(keepends=True))))

    def _end_if_wanted(self) -> None:
        now = time.monotonic()
        if not self._stopped and self._wants() == "now":
            self._stopped = "ended by you"
        if not self._stopped and now > self._deadline:
            self._stopped = f"ended after {LIMIT / 3600:.0f} hours"
        if self._stopped and now > self._next and self.child.poll() is None:
            number = next(self._signals, signal.SIGKILL)
            self._next = now + PATIENCE
            send(self.child.pid, number)


def send(pid: int, number: int) -> None:
    """Send that signal to a group; gone already is as good."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def birth(pid: int) -> str:
    """When that process began, in the kernel's ticks since the start; empty where it is over.

    With it a process id names one process only.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return ""

"""A network, mount and host-name namespace, kept by a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

HOLDER = Path(__file__).with_name("holder.py")


class Namespace:
    """Namespaces made by ``unshare`` with `options`; as a host's, they are made `within` the switch's."""

    def __init__(self, options: str, within: Namespace | None = None, name: str = "", etc: Path | None = None) -> None:
        self.rootless: bool = within.rootless if within else "--user" in options
        keep = [sys.executable, "-S", "-E", str(HOLDER), name, str(etc or "")]
        argv = ["unshare", *(options.split() or ["--net", "--mount", "--uts"]), *keep]
        self._holder = subprocess.Popen(
            within.command(argv) if within else argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._holder.pid
        """The process whose namespaces they are."""
        self._host = within is not None
        self._ready = False

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._holder.stdin
        assert self._holder.stdout
        self._holder.stdin.close()
        self._holder.wait(timeout=300)
        self._holder.stdout.close()

    def ready(self) -> None:
        """Wait until it is set up."""
        assert self._holder.stdout
        if not self._ready and self._holder.stdout.readline() != "ready\n":
            raise RuntimeError("the namespaces of a host could not be set up; what failed is on standard error")
        self._ready = True

    def command(self, argv: Sequence[str]) -> list[str]:
        """What runs a program in it, in our working directory: nsenter and env become the program."""
        self.ready()
        here = ["env", f"--chdir={Path.cwd()}"]
        user = ["--user", "--preserve-credentials"] if self.rootless else []
        uts = ["--uts"] if self._host else []
        return ["nsenter", f"--target={self.pid}", *user, "--net", "--mount", *uts, "--", *here, *argv]

    def ip(self, *lines: str) -> None:
        """Commands of ip(8), done as one batch."""
        self.tell(["ip", "-batch", "-"], "".join(f"{line}\n" for line in lines))

    def read(self, path: str) -> str:
        """A small file as a program in it sees it: of /sys, what is its own."""
        return subprocess.run(self.command(["cat", path]), check=True, capture_output=True, text=True).stdout.strip()

    def tell(self, argv: Sequence[str], stdin: str = "") -> None:
        """Run a program that sets something up. Raises `RuntimeError` with its words where it fails."""
        done = subprocess.run(self.command(argv), check=False, capture_output=True, text=True, input=stdin, timeout=300)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)} failed: {done.stderr.strip()}\n{stdin}")

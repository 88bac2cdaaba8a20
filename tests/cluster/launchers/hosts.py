"""Hosts for launchers: namespaces with a network between them, in each of which ``gpudoctor`` finds another machine.

A host is a mount, a network and a UTS namespace; all of them lie in one PID namespace, so that nothing that a scheduler
starts there outlives the cluster, however the test run ends. A host runs this machine's programs; ``gpudoctor`` alone
enters the host's simulated machine (see tests/sim/root.py) and sees its GPUs, its driver and its kernel's messages.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import needs
from tests.cluster.launchers import first
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import HOST as IN_MACHINE
from tests.sim.root import Machine

HEAD = first.HEAD
"""The host without GPUs: where the controller runs and jobs are submitted."""

SOUND = "hgx-h100"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class Hosts:
    """Hosts by name, each with eight sound H100 until told otherwise; a context manager, which ends everything."""

    shared: tuple[str, ...] = ()
    """Programs of this machine that the simulated ones have, too."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._kept = tempfile.TemporaryDirectory(prefix="gpudoctor-hosts-", ignore_cleanup_errors=True)
        self.folder = Path(self._kept.name)
        self._machines: dict[str, Machine] = {}
        self.daemons: list[subprocess.Popen[bytes]] = []
        self._write_names()
        for name in self.names:
            (self.folder / name).mkdir()
            self.becomes(name, SOUND)

    def __enter__(self) -> Hosts:
        for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
            needs.program(tool)
        if os.geteuid() != 0:
            needs.missing("root, to give each host a network of its own")
        new = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--uts", "--ipc"]
        own = [sys.executable, first.__file__, str(self.folder), *self.names]
        self._first = subprocess.Popen(["unshare", *new, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._first.stdout is not None
        said = self._first.stdout.readline()
        if not said:
            self.__exit__(None, None, None)
            raise RuntimeError("the hosts' namespaces could not be made")
        self._holders: dict[str, int] = json.loads(said)
        return self

    def __exit__(self, *_: object) -> None:
        self._first.communicate()
        for daemon in self.daemons:  # they have ended with process 1
            daemon.wait()
        self._kept.cleanup()

    def becomes(self, name: str, machine: str) -> None:
        """From now on that host is the machine of a profile or scenario."""
        if machine not in self._machines:
            folder = scenario.PROFILES if machine in scenario.names(scenario.PROFILES) else scenario.SICK
            root = self.folder / "machines" / machine
            root.mkdir(parents=True)
            self._machines[machine] = Machine(scenario.load(folder / f"{machine}.json"), root)
            (root / "etc/hosts").write_text((self.folder / "hosts").read_text())
            for program in self.shared:
                outside = f'exec {IN_MACHINE}{needs.program("chroot")} {IN_MACHINE} {program} "$@"'
                _executable(root / "usr/bin" / program, outside)
        enter = self._machines[machine].command([sys.executable, "-m", "gpudoctor"], inherit=True)
        self.program(name, "gpudoctor", f'exec {shlex.join(enter)} "$@"')

    def program(self, name: str, program: str, script: str | None) -> None:
        """Put a shell script on that host's PATH, or take it away."""
        place = self.folder / name / program
        if script is None:
            place.unlink()
            return
        new = place.with_suffix(".new")
        _executable(new, script)
        new.rename(place)  # a scheduler may be about to run the former one

    def address(self, name: str) -> str:
        """The host's address on the network of all."""
        return first.address(0 if name == HEAD else self.names.index(name) + 1)

    def command(self, name: str, argv: Sequence[str]) -> list[str]:
        """What runs a program on that host."""
        unshare = self._first.pid
        outer = ["--mount", "--net", "--uts", "--ipc", f"--pid=/proc/{unshare}/ns/pid_for_children"]
        inner = [] if name == HEAD else ["nsenter", "--target", str(self._holders[name]), "--mount", "--net", "--uts"]
        return ["nsenter", "--target", str(unshare), *outer, *inner, *argv]

    def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A program on that host, its output piped."""
        return subprocess.Popen(
            self.command(name, argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**_ENVIRONMENT, **(environ or {})},
        )

    def run(self, name: str, argv: Sequence[str], environ: Mapping[str, str] | None = None, timeout: float = 60) -> Ran:
        """A program on that host, to its end; one that outlasts `timeout` ends with the cluster."""
        with self.start(name, argv, environ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ran(process.returncode, out, err)

    def processes(self, words: str) -> list[str]:
        """The command lines with these words in them that run anywhere in the cluster."""
        listed = self.run(HEAD, ["ps", "-eo", "stat=,args="]).out.splitlines()
        return [line for line in listed if words in line and not line.startswith("Z")]

    def _write_names(self) -> None:
        lines = [f"{first.address(place)} {name}" for place, name in enumerate((HEAD, *self.names))]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))


def _executable(place: Path, script: str) -> None:
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)


_SERVER = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""
_CLIENT = """\
Host n*
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


def write_ssh_config(folder: Path) -> None:
    """Keys, ``sshd_config`` and ``ssh_config`` in that folder, by which hosts whose names begin with n are reached."""
    for tool in ("sshd", "ssh", "ssh-keygen"):
        needs.program(tool)
    for key in ("host_key", "key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    (folder / "sshd_config").write_text(_SERVER.format(folder=folder))
    (folder / "ssh_config").write_text(_CLIENT.format(folder=folder))

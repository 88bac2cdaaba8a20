"""A real sshd on each of eight hosts, and an ssh at the head that reaches them by name, without a password."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from tests import needs
from tests.cluster.launchers.hosts import HEAD, Hosts
from tests.processes import Ran

NODES = tuple(f"n{number}" for number in range(1, 9))
_READY_S = 300.0
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


class Ssh(Hosts):
    """Eight sound hosts; `options` are those by which ssh reaches them."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.options = f"-F {self.folder}/ssh_config"

    def __enter__(self) -> Ssh:
        for tool in ("sshd", "ssh", "ssh-keygen"):
            needs.program(tool)
        for key in ("host_key", "key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        (self.folder / "sshd_config").write_text(_SERVER.format(folder=self.folder))
        (self.folder / "ssh_config").write_text(_CLIENT.format(folder=self.folder))
        super().__enter__()
        try:
            self.run(HEAD, ["mkdir", "-p", "/run/sshd"])
            for name in NODES:
                self.serve(name)
            for name in NODES:
                self._wait_for(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def serve(self, name: str) -> None:
        """Start its sshd."""
        server = needs.program("sshd")
        words = self.command(name, [server, "-D", "-e", "-f", f"{self.folder}/sshd_config"])
        log = (self.folder / f"sshd-{name}.log").open("a")
        with log:
            self.daemons.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def link(self, name: str, state: str) -> None:
        """Switch its only network interface ``down`` or ``up``."""
        self.run(name, ["ip", "link", "set", "eth0", state])

    def ssh(self, name: str, *words: str) -> Ran:
        """A command on that host, over ssh from the head."""
        return self.run(HEAD, ["ssh", *self.options.split(), name, *words])

    def running(self, name: str, pattern: str) -> Sequence[str]:
        """The processes of the cluster whose command line has that in it, as ps tells them."""
        said = self.run(name, ["ps", "-eo", "pid=,args="]).out.splitlines()
        return [line for line in said if pattern in line]

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + _READY_S
        while self.ssh(name, "true").code != 0:
            if time.monotonic() > until:
                raise RuntimeError(f"the sshd of {name} does not answer")
            time.sleep(0.1)

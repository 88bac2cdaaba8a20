"""``gpudoctor fleet --hosts`` over a real sshd on each of eight hosts: what is sick, silent, hung or odd is named."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests import needs
from tests.cluster.launchers.hosts import HEAD, SOUND, Hosts, write_ssh_config
from tests.processes import Ran, left, until

NODES = tuple(f"n{number}" for number in range(1, 9))
_READY_S = 300.0


class Ssh(Hosts):
    """Eight sound hosts; `options` are those by which ssh reaches them."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.options = f"-F {self.folder}/ssh_config"

    def __enter__(self) -> Ssh:
        write_ssh_config(self.folder)
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


pytestmark = pytest.mark.full

BUDGET = 120.0
HUNG = "exec sleep 98765"


@pytest.fixture(scope="module")
def _hosts() -> Iterator[Ssh]:
    with Ssh() as hosts:
        yield hosts


@pytest.fixture
def hosts(_hosts: Ssh) -> Iterator[Ssh]:
    """Eight sound hosts; afterwards they are so again."""
    yield _hosts
    for name in NODES:
        _hosts.becomes(name, SOUND)


def argv(hosts: Ssh, *words: str) -> list[str]:
    """The command at the head: one host may take 55 seconds."""
    ours = ["--hosts", "n[1-8]", "--level", "quick", "--timeout", "55", "--budget", str(BUDGET)]
    return [sys.executable, "-m", "gpudoctor", "fleet", *ours, "--ssh-options", hosts.options, *words]


def fleet(hosts: Ssh, *words: str) -> Ran:
    """What it says."""
    return hosts.run(HEAD, argv(hosts, *words), timeout=BUDGET + 300)


def because(document: dict[str, Any]) -> dict[str, str]:
    """Why each silent host is silent."""
    return {host["name"]: host["because"] for host in document["fleet"]["hosts"] if "because" in host}


def found(document: dict[str, Any]) -> dict[str, list[str]]:
    """The hosts of each error."""
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    return {finding["id"]: finding["subject"]["hosts"] for finding in errors}


def test_sound_hosts_are_go(hosts: Ssh) -> None:
    ran = fleet(hosts, "--json")
    assert (ran.code, ran.err) == (0, "")
    document = ran.document
    assert (document["verdict"], document["fleet"]["verdict"]) == ("sound", "go")
    assert [host["name"] for host in document["fleet"]["hosts"]] == list(NODES)
    assert [finding["id"] for finding in document["findings"]] == ["fleet.sound"]


def test_sick_hung_and_without_gpudoctor_are_each_named(hosts: Ssh) -> None:
    hosts.becomes("n7", "lost-gpu-h100")
    hosts.program("n3", "gpudoctor", HUNG)
    hosts.program("n4", "gpudoctor", None)
    hosts.program("n6", "gpudoctor", "echo 'SyntaxError: invalid syntax' >&2; exit 1")
    ran = fleet(hosts, "--json")
    document = ran.document
    assert ran.code == 1
    assert document["fleet"]["verdict"] == "no-go"
    assert found(document) == {"gpu.fell-off-bus": ["n7"]}
    silent = because(document)
    assert set(silent) == {"n3", "n4", "n6"}
    assert silent["n6"] == "it ended with 1: SyntaxError: invalid syntax"
    assert silent["n3"] == "no answer within 55 s"
    assert silent["n4"].startswith("gpudoctor cannot be run there: ")
    assert [drain["hosts"] for drain in document["fleet"]["drain"]] == [["n7"]]
    assert left_on(hosts, "sleep 98765") == []


def test_a_host_that_cannot_be_reached_is_named_with_what_ssh_says(hosts: Ssh) -> None:
    hosts.link("n6", "down")
    ran = fleet(hosts, "--json")
    hosts.link("n6", "up")
    assert ran.code == 3
    assert because(ran.document)["n6"].startswith("ssh: ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_heard_by_then_is_told_when_it_is_ended(hosts: Ssh, number: signal.Signals, code: int) -> None:
    for name in NODES[4:]:
        hosts.program(name, "gpudoctor", HUNG)
    heeding = ["env", "--default-signal=INT"]  # a suite that runs in the background ignores it
    with hosts.start(HEAD, [*heeding, *argv(hosts, "--json", "--timeout", "55")]) as process:
        assert until(lambda: only_four_are_still_asked(hosts))
        ours = min(int(line.split()[0]) for line in hosts.running(HEAD, "-m gpudoctor fleet"))
        hosts.run(HEAD, ["kill", f"-{number.value}", str(ours)])
        out, err = process.communicate(timeout=300)
    document = json.loads(out)
    assert process.returncode == code, err
    assert set(because(document)) == set(NODES[4:])
    assert left_on(hosts, "sleep 98765") == []


def only_four_are_still_asked(hosts: Ssh) -> bool:
    """The sound hosts' connections have come and gone, those of the hung ones are open."""
    return len(hosts.running(HEAD, "sleep 98765")) == len(hosts.running(HEAD, "-oBatchMode=yes")) == 4


def left_on(hosts: Ssh, pattern: str) -> list[str]:
    """What still runs a few seconds later: the connection's end has to arrive."""
    return left(lambda: hosts.running("n1", pattern))

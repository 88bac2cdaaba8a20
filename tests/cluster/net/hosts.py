"""Hosts in network namespaces on one switch, each with a name, files of /etc and faults; a job of one rank on each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests import needs
from tests.cluster.net.faults import Faults, Namespace
from tests.processes import Ran

PORT = 29500
"""torch's usual rendezvous port."""


class Host(Faults):
    """One machine: ``eth0`` on the switch, ``mgmt0`` up but connected to nothing, a name, and /etc/hosts of its own."""

    def __init__(self, number: int, name: str, names: Sequence[str], switch: Namespace, under: Path) -> None:
        self.number = number
        self.name = name
        self.address = address(number)
        self.address6 = f"fd77::{number + 1}"
        self.link_local = f"fe80::ff:fe00:77{number + 1:02x}"
        self.mac = mac(number)
        self.port = f"port{number}"
        """The switch's end of its cable."""
        self.rails: list[Rail] = []
        self.etc = under / name
        self.etc.mkdir()
        self._names = {**{one: address(other) for other, one in enumerate(names)}, "localhost": "127.0.0.1"}
        self._write_hosts()
        (self.etc / "resolv.conf").touch()  # nothing of the real machine's name servers
        super().__init__(switch, Namespace("", within=switch, name=name, etc=self.etc))

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, timeout: float = 60, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on this host to its end. `env` is added to the test's own environment."""
        return subprocess.run(
            self.namespace.command(argv),
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program on this host: the process is the program itself, so that signals reach it.

        What still runs when the hosts are taken down is killed.
        """
        process = subprocess.Popen(
            self.namespace.command(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.closing.callback(_over, process)
        return process

    def bind(self, source: Path, target: str) -> None:
        """Have a file or folder of the real machine stand at `target`, which exists, on this host alone."""
        self.namespace.tell(["mount", "--bind", str(source), target])

    def knows(self, name: str, address: str | None) -> None:
        """Have /etc/hosts of this host give a name another address: ``127.0.1.1``, or None to forget it."""
        if address is None:
            self._names.pop(name, None)
        else:
            self._names[name] = address
        self._write_hosts()

    def _write_hosts(self) -> None:
        lines = [f"{address}\t{name}\n" for name, address in self._names.items()]
        with (self.etc / "hosts").open("w") as file:  # in place: the file is bound over /etc/hosts
            file.writelines(lines)


class Rail(Faults):
    """One port of a host, ``rail2``, on a switch of its own that all ports of that name are on."""

    def __init__(self, host: Host, number: int) -> None:
        self.port = f"{host.port}r{number}"
        self.mac = f"02:00:00:{number + 1:02x}:77:{host.number + 1:02x}"
        self.address = f"10.{80 + number}.0.{host.number + 1}"
        super().__init__(host.switch, host.namespace, f"rail{number}")

    def plug_into(self, number: int) -> None:
        """Put its cable into another rail's switch."""
        self.switch.ip(f"link set {self.port} master railsw{number}")


class Hosts:
    """Machines on one switch: 10.77.0.1 is `hosts[0]`. A context manager; everything is gone at its end.
    With `rails` each has as many further ports, ``rail0`` and on, each on a switch and in a network of its own.
    """

    def __init__(self, count: int, mtu: int = 1500, names: Sequence[str] = (), rails: int = 0) -> None:
        self._names = list(names) or [f"node{number}" for number in range(count)]
        self._mtu = mtu
        self._rails = rails
        self._hosts: list[Host] = []
        self._closing = ExitStack()

    def __enter__(self) -> Hosts:
        for tool in ("ip", "nft", "tc", "unshare", "nsenter", "mount"):
            needs.program(tool)
        with ExitStack() as undo:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="gpudoctor-hosts-")))
            switch = undo.enter_context(_switch())
            for number, name in enumerate(self._names):
                self._hosts.append(undo.enter_context(Host(number, name, self._names, switch, folder)))
            for host in self._hosts:
                host.namespace.ready()
            _try(switch, "link add name bridge0 type bridge", "link set bridge0 up", *self._cables())
            for host in self._hosts:
                host.namespace.ip(*_addresses(host))
                host.rails = [Rail(host, number) for number in range(self._rails)]
            _try(switch, *self._rail_cables())
            for host in self._hosts:
                host.namespace.ip(*_rail_addresses(host))
            self._closing = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
        self._hosts.clear()

    def __getitem__(self, number: int) -> Host:
        return self._hosts[number]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._names)

    def environ(self, rank: int, port: int = PORT) -> dict[str, str]:
        """What torchrun would give a rank, with one rank per host and host 0 as the master."""
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "MASTER_ADDR": self[0].name,
            "MASTER_PORT": str(port),
        }

    def ranks(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, timeout: float = 60, port: int = PORT
    ) -> list[subprocess.CompletedProcess[str]]:
        """One rank on each host, side by side, to their ends: what each said. Raises ``TimeoutExpired``."""
        started = [host.start(argv, {**self.environ(host.number, port), **(env or {})}) for host in self]
        with ThreadPoolExecutor(len(started)) as hearing:  # all at once: a full pipe would stop a rank
            said = list(hearing.map(lambda process: process.communicate(timeout=timeout), started))
        return [
            subprocess.CompletedProcess(argv, process.returncode, *words)
            for process, words in zip(started, said, strict=True)
        ]

    def _rail_cables(self) -> Iterator[str]:
        for number in range(self._rails):
            yield f"link add name railsw{number} type bridge"
            yield f"link set railsw{number} up"
        for host in self._hosts:
            for number, rail in enumerate(host.rails):
                end = f"name {rail.device} address {rail.mac} netns {host.namespace.pid}"
                yield f"link add name {rail.port} type veth peer {end}"
                yield f"link set {rail.port} master railsw{number} up"

    def _cables(self) -> Iterator[str]:
        for host in self._hosts:
            end = f"name eth0 address {host.mac} mtu {self._mtu} netns {host.namespace.pid}"
            yield f"link add name {host.port} mtu {self._mtu} type veth peer {end}"
            yield f"link set {host.port} master bridge0 up"
            yield f"link add name nowhere{host.number} type veth peer name mgmt0 netns {host.namespace.pid}"
            yield f"link set nowhere{host.number} up"


def address(number: int) -> str:
    """The IPv4 address of a host on the switch's network."""
    return f"10.77.0.{number + 1}"


def mac(number: int) -> str:
    """The hardware address of a host."""
    return f"02:00:00:00:77:{number + 1:02x}"


def _addresses(host: Host) -> list[str]:
    """What ip does on a host."""
    return [
        "link set lo up",
        "link set eth0 up",
        f"addr add {host.address}/24 dev eth0",
        f"addr add {host.address6}/64 dev eth0 nodad",
        "link set mgmt0 up",
        f"addr add 10.88.{host.number}.1/24 dev mgmt0",
    ]


def _rail_addresses(host: Host) -> Iterator[str]:
    """What ip does on a host for its rails."""
    for rail in host.rails:
        yield f"link set {rail.device} up"
        yield f"addr add {rail.address}/24 dev {rail.device}"


def _switch() -> Namespace:
    """The namespace of the switch, in a user namespace of ours where we are not root."""
    for options in ("--net --mount", "--user --map-root-user --net --mount"):
        tried = subprocess.run(["unshare", *options.split(), "true"], check=False, capture_output=True, text=True)
        if tried.returncode == 0:
            return Namespace(options)
    return needs.missing(f"network namespaces (unshare says: {tried.stderr.strip()})")


def _try(switch: Namespace, *lines: str) -> None:
    """The devices of the network; a kernel without them cannot be helped."""
    try:
        switch.ip(*lines)
    except RuntimeError as error:
        needs.missing(f"bridge and veth devices ({error})")


def _over(process: subprocess.Popen[str]) -> None:
    """End a process that a test left, and read what it said, so that no pipe stays open."""
    if process.poll() is None:
        process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
    process.wait()


PREFLIGHT = [sys.executable, "-m", "gpudoctor", "preflight", "--network"]
"""Only the network: no host here has a GPU."""

Env = Mapping[int, Mapping[str, str]]
"""What the environment of single ranks has beside what the launcher sets."""


class Job:
    """The ranks of a job, on their way."""

    def __init__(
        self,
        hosts: Hosts,
        words: Sequence[str] = ("--json",),
        env: Env | Callable[[int], Mapping[str, str]] = lambda _: {},
        missing: Collection[int] = (),
        port: int = PORT,
    ) -> None:
        of = env if callable(env) else lambda rank: env.get(rank, {})
        self.ranks: dict[int, subprocess.Popen[str]] = {
            host.number: host.start([*PREFLIGHT, *words], {**hosts.environ(host.number, port), **of(host.number)})
            for host in hosts
            if host.number not in missing
        }

    def ended(self, timeout: float = 600) -> dict[int, Ran]:
        """Each rank's end."""
        with ThreadPoolExecutor(len(self.ranks)) as hearing:  # all at once: a full pipe would stop a rank
            said = hearing.map(lambda process: self._heard(process, timeout), self.ranks.values())
            return dict(zip(self.ranks, said, strict=True))

    def _heard(self, process: subprocess.Popen[str], timeout: float) -> Ran:
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)

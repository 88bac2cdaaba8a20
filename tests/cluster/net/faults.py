"""A host's namespaces, and its faults: each is there from its call until ``remove()`` or the end of its ``with``."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

Way = Literal["from", "to", "both"]
"""Traffic that leaves the host, traffic that reaches it."""

RELAY = Path(__file__).with_name("relay.py")
_numbers = itertools.count()


class Fault:
    """One fault that is there now."""

    def __init__(self, *undo: Callable[[], None]) -> None:
        self._undo = list(undo)

    def remove(self) -> None:
        """Take it away; once is enough."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Faults:
    """What can be wrong with a host, or a port of one, whose cable leads from `device` to `port` of the switch."""

    port: str
    mac: str
    address: str

    def __init__(self, switch: Namespace, namespace: Namespace, device: str = "eth0") -> None:
        self.switch = switch
        self.namespace = namespace
        self.device = device
        self.closing = ExitStack()
        self._relay: _Relay | None = None

    def __enter__(self) -> Any:
        self.closing.enter_context(self.namespace)
        self.closing.callback(self._straight)
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    def drop(
        self, port: int | str | None = None, peer: Faults | None = None, way: Way = "to", protocol: str = "tcp"
    ) -> Fault:
        """Packets to a port (all of them where None; ``"1024-65535"``) vanish on this host without an answer.

        `way` "to": what comes in; "from": what it sends. `peer` limits it to traffic with one other host.
        """
        return self._firewall(_match(port, peer, way, protocol) + " drop", way)

    def refuse(self, port: int | str | None = None, peer: Faults | None = None, way: Way = "to") -> Fault:
        """Connections to a port are answered with a reset."""
        return self._firewall(_match(port, peer, way) + " reject with tcp reset", way)

    def unroutable(self, port: int | str | None = None, peer: Faults | None = None, way: Way = "to") -> Fault:
        """Connections to a port are answered by ICMP: host unreachable."""
        return self._firewall(_match(port, peer, way) + " reject with icmpx type host-unreachable", way)

    def first(self, count: int, port: int) -> Fault:
        """The first so many attempts of others to connect to a port vanish (60 bytes each), and none after them."""
        first = f"tcp flags & (syn | ack) == syn quota until {60 * count} bytes"
        return self._firewall(f"tcp dport {port} {first} drop", "to")

    def only(self, port: int) -> Fault:
        """Of what comes from other hosts, only connections to this port come through."""
        return self._firewall(f'ct state established,related accept; iif "eth0" tcp dport != {port} drop', "to")

    def loss(self, share: float, way: Way = "to", peer: Faults | None = None) -> Fault:
        """A share of the packets is lost, on the cable: the sender does not know."""
        lost = f"numgen random mod 1000 <= {round(share * 1000) - 1} drop"
        ways: list[Way] = ["to", "from"] if way == "both" else [way]
        parts = []
        for one in ways:
            address = f"ether {'saddr' if one == 'to' else 'daddr'} {peer.mac} " if peer else ""
            namespace, device = (self.namespace, self.device) if one == "to" else (self.switch, self.port)
            parts.append(_table(namespace, "netdev", f"hook ingress device {device}", address + lost))
        return Fault(*(part.remove for part in parts))

    def slow(self, mbit: float, way: Way = "from") -> Fault:
        """The host sends ("from") or receives ("to") at most so many Mbit/s."""
        ends = {"from": (self.namespace, self.device), "to": (self.switch, self.port)}
        shape = f"root tbf rate {mbit:g}mbit burst 64kb latency 400ms".split()
        undo = []
        for one in ("from", "to") if way == "both" else (way,):
            namespace, device = ends[one]
            namespace.tell(["tc", "qdisc", "add", "dev", device, *shape])
            undo.append(_later(namespace, ["tc", "qdisc", "del", "dev", device, "root"]))
        return Fault(*undo)

    def delay(self, ms: float, way: Way = "both", peer: Faults | None = None) -> Fault:
        """Every frame waits so many milliseconds, in each of the ways."""
        return self._relayed({"way": way, "peer": peer.mac if peer else "", "delay": ms / 1000, "most": 0})

    def hole(self, most: int, way: Way = "both", peer: Faults | None = None) -> Fault:
        """IP packets of more than `most` bytes vanish on the cable, and no ICMP says so."""
        return self._relayed({"way": way, "peer": peer.mac if peer else "", "delay": 0.0, "most": most})

    def _straight(self) -> None:
        if self._relay:
            self._relay.close()
            self._relay = None

    def _firewall(self, rule: str, way: Way) -> Fault:
        hook = {"to": "input", "from": "output"}[way]
        return _table(self.namespace, "inet", f"hook {hook}", rule)

    def _relayed(self, fault: dict[str, Any]) -> Fault:
        if self._relay is None:
            self._relay = _Relay(self.switch, self.port)
        relay = self._relay
        relay.set([*relay.faults, fault])
        return Fault(lambda: self._unrelayed(relay, fault))

    def _unrelayed(self, relay: _Relay, fault: dict[str, Any]) -> None:
        left = list(relay.faults)
        left.remove(fault)
        if left:
            relay.set(left)
        else:
            self._straight()


class _Relay:
    """A relay.py between the port of a host and the switch, for as long as it has faults."""

    def __init__(self, switch: Namespace, port: str) -> None:
        self.faults: list[dict[str, Any]] = []
        self._switch = switch
        self._port = port
        near, far = f"{port}a", f"{port}b"
        mtu = switch.read(f"/sys/class/net/{port}/mtu")
        switch.ip(
            f"link set {port} nomaster",
            f"link add name {near} mtu {mtu} type veth peer name {far} mtu {mtu}",
            f"link set {far} master bridge0 up",
            f"link set {near} up",
        )
        argv = switch.command([sys.executable, "-S", "-E", str(RELAY), port, near])
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._heard()

    def set(self, faults: list[dict[str, Any]]) -> None:
        """Replace its faults; they hold when this returns."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(faults) + "\n")
        self._process.stdin.flush()
        self._heard()
        self.faults = faults

    def close(self) -> None:
        """Plug the port straight into the switch again."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()
        self._switch.ip(f"link del {self._port}a", f"link set {self._port} master bridge0")

    def _heard(self) -> None:
        assert self._process.stdout
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the relay did not start; what failed is on standard error")


def _match(port: int | str | None, peer: Faults | None, way: Way, protocol: str = "tcp") -> str:
    """The beginning of a rule of nft; loopback stays untouched."""
    loopback, address = ("iif", "saddr") if way == "to" else ("oif", "daddr")
    parts = [f'{loopback} != "lo"', f"ip {address} {peer.address}" if peer else "", f"meta l4proto {protocol}"]
    return " ".join(part for part in [*parts, "" if port is None else f"{protocol} dport {port}"] if part)


def _table(namespace: Namespace, family: str, hook: str, rule: str) -> Fault:
    """A firewall table with one chain and one rule, which goes as a whole."""
    name = f"fault{next(_numbers)}"
    chain = f"chain only {{\n type filter {hook} priority 0; policy accept;\n {rule}\n}}\n"
    namespace.tell(["nft", "-f", "-"], f"table {family} {name} {{\n{chain}}}\n")
    return Fault(_later(namespace, ["nft", "delete", "table", family, name]))


def _later(namespace: Namespace, argv: list[str]) -> Callable[[], None]:
    return lambda: namespace.tell(argv)


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

    def __exit__(self, *_: object) -> None:
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

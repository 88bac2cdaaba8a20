"""What the meeting asks of a machine: connect to others, measure with another, and tell of its own check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from ipaddress import ip_address
from typing import Any

from gpudoctor.job.wire import Message
from gpudoctor.links import choice
from gpudoctor.links.flow import Flow, measure
from gpudoctor.links.interfaces import carrying, interfaces
from gpudoctor.links.reach import Reached, connect
from gpudoctor.links.server import Server
from gpudoctor.probes._net.settings import settings_of
from gpudoctor.target.local import Local

REACH = 2.0
"""Seconds of one attempt to connect."""
_AT_A_TIME = 64


class Listeners:
    """This machine, `host`, listens where NCCL and Gloo would: on the addresses that they announce to the other ranks.

    By the rules of a present NCCL: which release the job loads is known only when torch has started, and others wait
    for us to listen long before that.
    """

    def __init__(self, key: str, host: str, environ: Mapping[str, str]) -> None:
        self._key = key
        self._host = host
        self._servers: list[Server] = []
        self.announced: list[Message] = []
        """Each address, who would announce it, and the port on which we listen there; or why we do not."""
        by_address: dict[str, Message] = {}
        among = interfaces() or ()
        settings = settings_of(Local(environ=environ)).values
        for user, chosen in (("nccl", choice.nccl(among, settings)), ("gloo", choice.gloo(among, environ))):
            known = by_address.get(chosen.address)
            if known and chosen.address:
                known["used_by"].append(user)
                continue
            by_address[chosen.address] = message = {
                "used_by": [user],
                "interface": chosen.interface,
                "address": chosen.address,
                "because": chosen.because,
                "loopback": bool(chosen) and ip_address(chosen.address.partition("%")[0]).is_loopback,
            }
            self.announced.append({**message, **self._listen(chosen.address)})

    def _listen(self, address: str) -> Message:
        if not address:
            return {"port": 0}
        try:
            server = Server(address, self._key, name=self._host)
        except OSError as error:
            return {"port": 0, "because": f"cannot listen on {address}: {error.strerror or error}"}
        self._servers.append(server)
        return {"port": server.port}

    def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()


def reach(message: Mapping[str, Any]) -> Message:
    """Connect to each of ``to``, all at the same time: ``{"links": [{...}]}`` in their order."""
    to: Sequence[Mapping[str, Any]] = message["to"]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return {"links": list(pool.map(_reached, to))}


def _reached(one: Mapping[str, Any]) -> Message:
    address = str(one["address"])
    found = _own(address, connect(address, int(one["port"]), REACH))
    return {"outcome": found.outcome, "words": found.words, "ms": round(found.seconds * 1e3, 3)}


def _own(address: str, found: Reached) -> Reached:
    """No firewall is to blame where the address leads back here: docker0 has the same on each machine."""
    own = carrying(address, interfaces() or ()) if found.outcome != "connected" else None
    words = f"{address} leads from there to their own {own.name}" if own else ""
    return replace(found, outcome="unroutable", words=words) if own else found


def flow(message: Mapping[str, Any], key: str, host: str) -> Message:
    """Measure with the machine at ``address`` and ``port``, both ways. `host` is the name of our own servers."""
    address = str(message["address"])
    found = measure(address, int(message["port"]), key, float(message["seconds"]))
    if found.peer == host:
        found = Flow("unroutable", f"{address} leads from there to itself", host, seconds=found.seconds)
    return {"flow": asdict(found)}

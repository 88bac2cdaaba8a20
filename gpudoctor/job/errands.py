"""What the meeting asks of a machine: connect to others, measure with another, and tell of its own check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

from gpudoctor.job.wire import Said
from gpudoctor.links import choice
from gpudoctor.links.ear import Ear
from gpudoctor.links.flow import measure
from gpudoctor.links.interfaces import interfaces
from gpudoctor.links.reach import connect

REACH = 2.0
"""Seconds of one attempt to connect."""
_AT_A_TIME = 64


class Ears:
    """This machine listens where NCCL and Gloo would: on the addresses that they announce to the other ranks."""

    def __init__(self, job: str, environ: Mapping[str, str]) -> None:
        self._job = job
        self._ears: list[Ear] = []
        self.told: list[Said] = []
        """Each address, who would announce it, and the port on which we listen there; or why we do not."""
        by_address: dict[str, Said] = {}
        among = interfaces() or ()
        for user, chosen in (("nccl", choice.nccl(among, environ)), ("gloo", choice.gloo(among, environ))):
            known = by_address.get(chosen.address)
            if known and chosen.address:
                known["used_by"].append(user)
                continue
            by_address[chosen.address] = said = {
                "used_by": [user],
                "interface": chosen.interface,
                "address": chosen.address,
                "because": chosen.because,
                "loopback": bool(chosen) and ip_address(chosen.address.partition("%")[0]).is_loopback,
            }
            self.told.append({**said, **self._listen(chosen.address)})

    def _listen(self, address: str) -> Said:
        if not address:
            return {"port": 0}
        try:
            ear = Ear(address, self._job)
        except OSError as error:
            return {"port": 0, "because": f"cannot listen on {address}: {error.strerror or error}"}
        self._ears.append(ear)
        return {"port": ear.port}

    def close(self) -> None:
        """Listen no more."""
        for ear in self._ears:
            ear.close()


def reach(said: Mapping[str, Any]) -> Said:
    """Connect to each of ``to``, all at the same time: ``{"links": [{...}]}`` in their order."""
    to: Sequence[Mapping[str, Any]] = said["to"]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return {"links": list(pool.map(_reached, to))}


def _reached(one: Mapping[str, Any]) -> Said:
    found = connect(str(one["address"]), int(one["port"]), REACH)
    return {"outcome": found.outcome, "words": found.words, "ms": round(found.seconds * 1e3, 3)}


def flow(said: Mapping[str, Any], job: str) -> Said:
    """Measure with the machine at ``address`` and ``port``, both ways."""
    return {"flow": asdict(measure(str(said["address"]), int(said["port"]), job, float(said["seconds"])))}

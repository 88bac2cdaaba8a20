"""What a rank brings with it: its machine's own check, where it can be reached, and what the meeting can ask of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.links.flow import Flow, measure
from gpudoctor.cluster.links.server import Server
from gpudoctor.cluster.links.tcp import connect
from gpudoctor.cluster.preflight import JobOptions
from gpudoctor.cluster.preflight.diagnosis import diagnose_job, scheduler
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.meeting import JoinedRank, Meeting
from gpudoctor.cluster.preflight.member import Member, NotMetError, Task
from gpudoctor.cluster.preflight.ports import listen_at, own_ports, read_counters, run_perftest
from gpudoctor.cluster.preflight.results import LinkSeen, MeetingResults, RankSeen
from gpudoctor.cluster.preflight.wire import Message
from gpudoctor.core import language, shipped
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Rows, Unread
from gpudoctor.core.fleet import Fleet
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels import across_hosts
from gpudoctor.kernels.across_hosts import Across
from gpudoctor.probes._net_choice import settings_of
from gpudoctor.target import rights
from gpudoctor.target.child import MARK, run_child
from gpudoctor.target.local import Local
from gpudoctor.target.network import gloo_choice, interface_with_address, list_interfaces, nccl_choice


class OwnRank:
    """This rank's own side. Local rank 0 of each machine leads: it listens and runs the machine's check."""

    def __init__(self, options: JobOptions, place: Place, environ: Mapping[str, str]) -> None:
        """Start the listeners if this rank leads its machine."""
        self._wanted = options
        self._place = place
        self._leads = place.local_rank == 0
        self._listeners = Listeners(place.key, _listener_name(place), environ) if self._leads else None

    def hello(self) -> Message:
        """The message by which the rank introduces itself to the coordinator: world, local rank, pid, listeners and
        more.
        """
        place = self._place
        return {
            "world": place.world,
            "local_rank": place.local_rank,
            "leads": self._leads,
            "switch": place.switch,
            "pid": os.getpid(),
            "machine": _machine_id(),
            "version": __version__,
            "listeners": self._listeners.announced if self._listeners else [],
            "ports": self._listeners.ports if self._listeners else [],
        }

    def begin(self, rank: Member) -> None:
        """If this rank leads, start the machine's check in a thread, which sends its document to the coordinator."""
        if self._leads:
            threading.Thread(target=self._check, args=(rank,), name="check", daemon=True).start()

    def tasks(self, rank: Member) -> Mapping[str, Task]:
        """Task functions by the name that the coordinator asks for: reach, flow, perftest, counters, collective."""
        return {
            "reach": connect_to_peers,
            "flow": partial(measure_flow, key=self._place.key, host=_listener_name(self._place)),
            "perftest": run_perftest,
            "counters": lambda _: read_counters(Local(), self._listeners.ports if self._listeners else ()),
            "collective": partial(self._take_part, rank),
        }

    def _take_part(self, rank: Member, message: Mapping[str, Any]) -> Message:
        """Task ``collective``: take part in the collective that the message describes, in a child process;
        ``{"across": result as JSON}``. The coordinator is told each step.
        """
        place, level = self._place, str(message["level"])
        address, port = message["store"]
        answer = across_hosts.run(
            Local(level, self._wanted.python),
            across_hosts.Member(place.rank, place.world, place.local_rank, place.host, (str(address), int(port))),
            level=level,
            seconds=float(message["seconds"]),
            canary=message.get("canary") is True,
            tell=lambda step: rank.set_step(f"collective: {step}"),
            listening=lambda port: rank.tell(store=port),
        )
        rank.set_step("waiting for the others")
        return {"across": answer.to_json()}

    def close(self) -> None:
        """Stop the servers of this machine, if this rank leads it."""
        if self._listeners:
            self._listeners.close()

    def _check(self, rank: Member) -> None:
        """Run this machine's check and send its document (without findings for a check of the network alone) and NCCL
        version, or why it failed, to the coordinator.
        """
        rank.set_step(f"check of this machine, level {self._wanted.level}")
        try:
            document = check_this_machine(self._wanted)
        except CheckFailedError as error:
            rank.tell(failed=f"its own check failed: {error}")
            return
        rank.tell(
            document=_without_findings(document) if self._wanted.network else document, nccl=_nccl_version(document)
        )
        rank.set_step("waiting for the others")


def as_fleet(diagnosis: Diagnosis, place: Place, seconds: float) -> Fleet | None:
    """Fleet of the one machine of a single-rank job, in the form of a larger job's document."""
    folding = FleetFold(rulebook.load())
    folding.add(Reply(json.dumps(diagnosis.to_json()), place.host))
    whole = FleetContext(name=place.host, scheduler=scheduler(place), seconds=seconds)
    return folding.diagnosis(whole).fleet


def diagnosis_without_meeting(options: JobOptions, place: Place, error: NotMetError) -> Diagnosis:
    """Diagnosis from what this rank alone knows, when it could not join or lost the meeting; rank 0 is reported as
    missing if all ports of its host refused, and it belongs there as far as is known.
    """
    found = MeetingResults(place, checked=False, asked=False, cut=str(error))
    found.ranks = [RankSeen(place.rank, "here", place.host, place.local_rank, world=place.world)]
    outcomes = [(port, end) for port in place.ports if (end := error.outcomes.get(port))]
    found.links = [
        LinkSeen(place.host, place.master, "rendezvous", end.outcome, end.words, "rendezvous", place.master, port)
        for port, end in outcomes
        if end.outcome != "connected"
    ]
    if (
        outcomes
        and all(end.outcome == "refused" for _, end in outcomes)
        and (not place.hosts or place.hosts[0] == place.master)
    ):
        because = f"of {place.master} does not listen there: it never came, or a firewall turns all away"
        found.ranks.insert(0, RankSeen(0, "missing", place.master, because=because))
    return diagnose_job(found, rulebook.load(options.rules))


def _listener_name(place: Place) -> str:
    """Name its listeners give themselves, ``host/rank``: unique even if machines share a host name."""
    return f"{place.host}/{place.rank}"


def _machine_id() -> str:
    """Boot id and network namespace: equal for all ranks on one machine; ``""`` if they cannot be read."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    return ""


def _without_findings(document: Mapping[str, Any]) -> Message:
    """The document with its facts, but without findings, notes and counts and with verdict unknown: for the network
    alone.
    """
    nothing: Message = {"findings": [], "unjudged": [], "passed": [], "notes": [], "verdict": "unknown"}
    return {**document, **nothing, "counts": {"found": 0, "unjudged": 0, "passed": 0}}


def _nccl_version(document: Mapping[str, Any]) -> str:
    """NCCL version that torch loaded, else that of the installed wheel; ``""`` if neither is known."""
    facts = document.get("facts", {})
    for name in ("live.nccl", "torch.nccl"):
        entry = facts.get(name, {})
        if isinstance(entry, dict) and entry.get("value"):
            return str(entry["value"])
    return ""


# ---- This machine's own check, in a process of its own ----
# It may hang or crash, and it must not hold up what is measured.

_MOST_DOCUMENT_BYTES = 64 << 20
"""Bytes of a document."""


class CheckFailedError(Exception):
    """The machine's own check gave no document; the message says why."""


def check_this_machine(options: JobOptions) -> Message:
    """Diagnosis document of this machine, from ``gpudoctor check --json`` in a child process.
    Raises `CheckFailedError` if that cannot be started or gives no document (in time).
    """
    words = ["check", "--json", "--level", options.level]
    words += ["--python", options.python] if options.python else []
    words += [word for folder in options.rules for word in ("--rules", str(folder))]
    words += ["--expect", options.expect] if options.expect else []
    words += ["--lang", language.current()] if language.current() != language.ENGLISH else []
    argv = [*shipped.own_command(), *words, *rights.consent_options()]
    try:
        answer = run_child(
            argv, options.limits.whole, {**os.environ, MARK: secrets.token_hex(8)}, limit=_MOST_DOCUMENT_BYTES
        )
    except OSError as error:
        raise CheckFailedError(f"it cannot be started: {error}") from error
    try:
        document = json.loads(answer.out)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        last = answer.err.strip().splitlines()[-1:] or [answer.how]
        raise CheckFailedError(f"{answer.how}: {last[0]}" if last[0] != answer.how else answer.how)
    return document


# ---- What the meeting asks of a machine: listen, connect to others, measure with another ----

CONNECT_SECONDS = 2.0
"""Seconds of one attempt to connect."""
_CONNECTS_AT_A_TIME = 64


class Listeners:
    """Servers on the addresses that NCCL and Gloo would announce to other ranks; `announced` describes each.
    Addresses are chosen by the rules of current NCCL, since the version that the job loads is not known yet.
    """

    def __init__(self, key: str, host: str, environ: Mapping[str, str]) -> None:
        self._key = key
        self._host = host
        self._servers: list[Server] = []
        self.announced: list[Message] = []
        """Each address, who would announce it, and the port on which we listen there; or why we do not."""
        by_address: dict[str, Message] = {}
        among = list_interfaces() or ()
        target = Local(environ=environ)
        settings = settings_of(target).values
        for user, chosen in (("nccl", nccl_choice(among, settings)), ("gloo", gloo_choice(among, environ))):
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
        self.ports: list[Message] = []
        """Its network ports that are measured one by one: a `Port` each; none where it has one only."""
        for port in own_ports(target, settings, among):
            listening, server = listen_at(port, key, host)
            self._servers += [server] if server else []
            self.ports.append(asdict(listening))

    def _listen(self, address: str) -> Message:
        """Start a server at the address: ``{"port": N}``; 0 without an address, and with ``because`` if it cannot
        listen.
        """
        if not address:
            return {"port": 0}
        try:
            server = Server(address, self._key, name=self._host)
        except OSError as error:
            return {"port": 0, "because": f"cannot listen on {address}: {error.strerror or error}"}
        self._servers.append(server)
        return {"port": server.port}

    def close(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            server.close()


def connect_to_peers(message: Mapping[str, Any]) -> Message:
    """Task ``reach``: connect to all peers in ``message["to"]`` in parallel; ``{"links": [outcome of each]}``."""
    to: Sequence[Mapping[str, Any]] = message["to"]
    with ThreadPoolExecutor(_CONNECTS_AT_A_TIME) as pool:
        return {"links": list(pool.map(_connect_to_peer, to))}


def _connect_to_peer(peer: Mapping[str, Any]) -> Message:
    """Connect to one peer and close again: ``outcome``, explaining ``words``, ``ms`` taken, and ``answers``: whether
    the host answers on other ports. Unroutable if that failed and the address is one of this machine.
    """
    address = str(peer["address"])
    found = connect(address, int(peer["port"]), CONNECT_SECONDS, str(peer.get("source", "")))
    own = interface_with_address(address, list_interfaces() or ()) if found.outcome != "connected" else None
    if own:  # docker0 is alike everywhere
        found = replace(found, outcome="unroutable", words=f"{address} leads from there to their own {own.name}")
    ms = round(found.seconds * 1e3, 3)
    return {"outcome": found.outcome, "words": found.words, "ms": ms, "answers": found.answers}


def measure_flow(message: Mapping[str, Any], key: str, host: str) -> Message:
    """Task ``flow``: measure rate and round trip to the server at ``address`` and ``port``, both ways, from ``source``
    (a local address or port) if given. ``{"flow": Flow as a dictionary}``; unroutable if the server calls itself
    `host`, for it is then this machine.
    """
    address = str(message["address"])
    source = str(message.get("source", ""))
    found = measure(address, int(message["port"]), key, float(message["seconds"]), source=source)
    if found.peer == host:
        found = Flow("unroutable", f"{address} leads from there to itself", host, seconds=found.seconds)
    return {"flow": asdict(found)}


# ---- Collectives over the job's ranks by torch.distributed ----

_START_SECONDS = 15.0
"""Seconds that rank 0's child has to start and listen; it imports torch later."""
_SLACK_SECONDS = 3.0


def run_collective(
    meeting: Meeting, level: str, seconds: float, unreachable: bool, canary: bool = False
) -> list[Across] | str:
    """Each rank's result of a collective by torch.distributed, or as text why none was run: not every rank is
    connected, or, by `unreachable`, machines do not reach each other. `seconds` limits it; with `canary` some training
    steps follow.
    """
    here = meeting.here
    if [joined.rank for joined in here] != list(range(meeting.place.world)):
        return "not every rank is here: a collective would wait for the others"
    if unreachable:
        return "some machines do not reach each other: a collective would hang"
    task: Message = {"task": "collective", "level": level, "seconds": seconds, "canary": canary}
    first = here[0]
    listeners = (own for joined in meeting.leaders if joined.host == first.host for own in joined.listeners)
    address = next((str(listener["address"]) for listener in listeners if listener.get("port")), "")
    began = meeting.give({first.rank: {**task, "store": [address, 0]}})
    meeting.wait_until(
        lambda: "store" in first.reports or bool(first.ended) or bool(began[0] in first.answers), _START_SECONDS
    )
    store = first.reports.get("store")
    if not isinstance(store, int):
        answers = meeting.collect_answers(began, 0.5)
    else:
        others = meeting.give({joined.rank: {**task, "store": [address or first.host, store]} for joined in here[1:]})
        answers = {
            **meeting.collect_answers(others, seconds + _SLACK_SECONDS),
            **meeting.collect_answers(began, _SLACK_SECONDS),
        }
    return [_result_of(joined, answers.get(joined.rank, {})) for joined in here if joined.rank in answers or store]


def _result_of(joined: JoinedRank, message: Mapping[str, Any]) -> Across:
    """A rank's result from its answer; if that has none, a failed result with the reason and its last known step."""
    if isinstance(raw := message.get("across"), dict):
        return Across.from_json(raw)
    why = str(message.get("because") or joined.ended or "did not come to an end")
    return Across(joined.rank, joined.host, int(joined.hello.get("local_rank") or 0), why=why, step=joined.step)


def rows(results: list[Across] | str) -> Rows:
    """Rows of the group ``collective``; Unread with the reason if none was run or nothing was measured."""
    if isinstance(results, str):
        return Unread(results)
    return across_hosts.collective_rows(results) or Unread(_failure_reason(results))


def _failure_reason(results: list[Across]) -> str:
    """First failure as ``rank 3 on n1: why``; ranks that could not take part come before those that waited for them."""
    failed = sorted((answer for answer in results if answer.why), key=lambda answer: (not answer.cannot, answer.rank))
    return f"rank {failed[0].rank} on {failed[0].host}: {failed[0].why}" if failed else "no rank measured anything"

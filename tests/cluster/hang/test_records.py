"""NCCL's RAS by its socket, and dumps of torch's flight recorder: what they tell, and what harms nobody."""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.running_job.hosts import Asked
from gpudoctor.cluster.running_job.job_diagnosis import diagnose
from gpudoctor.cluster.running_job.recorded import dump_columns
from gpudoctor.core.fact import Absent, Known, Reason, Unread
from gpudoctor.probes._job.nccl_records import flight_record, plain_document, ras_address, ras_report
from gpudoctor.readers import read_report
from gpudoctor.readers.tools.flight_recorder import Dump, dump_of
from gpudoctor.target.local import Local
from tests.cluster.hang.jobs import asked, titles
from tests.processes import free_port

REPORT = """\
NCCL version 2.28.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 412
  1 rank has launched up to operation 410
  Rank 2 has launched up to operation 410 -- GPU 0 managed by process 41 on node h002

"""
"""What ncclras prints, after NCCL's src/ras/client_support.cc (read 2026-11)."""


class Ras:
    """Answers as a rank's RAS does (NCCL src/ras/client_support.cc, rasClientEventLoop, read 2026-11)."""

    def __init__(self, report: str = REPORT, hello: bytes = b"SERVER PROTOCOL 2\n", deaf: bool = False) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._report, self._hello, self._deaf = report, hello, deaf
        self.asked: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.getsockname()
        return host, port

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            with line, line.makefile("rwb") as file:
                for command in file:
                    self.asked.append(command)
                    if self._deaf:
                        continue
                    if command.lower().startswith(b"client protocol "):
                        file.write(self._hello)
                    elif command.lower().startswith(b"timeout "):
                        file.write(b"OK\n")
                    elif command.lower() == b"verbose status\n":
                        file.write(self._report.encode())
                        file.flush()
                        break
                    file.flush()

    def end(self) -> None:
        """Close it."""
        self._server.close()


@pytest.fixture
def ras() -> Iterator[Ras]:
    server = Ras()
    yield server
    server.end()


def test_the_address_is_the_ranks_own() -> None:
    assert ras_address({}) == ("localhost", 28028)
    assert ras_address({"NCCL_RAS_ADDR": "10.0.0.7:5000"}) == ("10.0.0.7", 5000)
    assert ras_address({"NCCL_RAS_ADDR": "[::1]:5000"}) == ("::1", 5000)
    assert ras_address({"NCCL_RAS_ADDR": "nonsense"}) == ("localhost", 28028)


def test_a_report_is_asked_for_as_ncclras_does(ras: Ras) -> None:
    assert ras_report(ras.address) == REPORT
    assert [command.split()[0].lower() for command in ras.asked] == [b"client", b"timeout", b"verbose"]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Ras(deaf=True), Reason.TIMED_OUT),
        (Ras(hello=b"HTTP/1.1 400 Bad Request\n"), Reason.MALFORMED),
        (Ras(hello=b""), Reason.TIMED_OUT),
    ],
)
def test_what_is_no_ras_costs_its_seconds_alone(server: Ras, reason: Reason) -> None:
    report = ras_report(server.address, 0.5)
    server.end()
    assert isinstance(report, Unread)
    assert report.reason is reason


def test_nobody_listens() -> None:
    report = ras_report(("127.0.0.1", free_port()), 0.5)
    assert isinstance(report, Unread)
    assert report.reason is Reason.MISSING


def test_a_rank_that_is_behind_twice_by_ras_is_named(ras: Ras) -> None:
    host, port = ras.address
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "4", "NCCL_RAS_ADDR": f"{host}:{port}"}
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environ)
    try:
        document = asked(str(rank.pid), "--look", "0.5")
    finally:
        rank.kill()
        rank.wait()
    assert document["facts"]["job.ras"]["value"] == f"{host}:{port}"
    assert "Rank 2 is behind the others" in titles(document)["nccl.rank-behind"]


# ---- Dumps ----


class Evil:
    """Runs a program where it is unpickled."""

    def __reduce__(self) -> tuple[object, Sequence[str]]:
        return os.system, ("touch /tmp/evil",)


def endless() -> object:
    """Lists of lists of the same list: a few bytes that are billions of values."""
    value: object = 0
    for _ in range(9):
        value = [value] * 100
    return value


@pytest.mark.parametrize("harm", [pickle.dumps(Evil()), pickle.dumps(endless()), b"\x80\x04\x95", b"junk", b"{", b""])
def test_what_is_no_plain_document_is_refused(harm: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        plain_document(harm)


def test_a_list_within_itself_is_refused() -> None:
    inside: list[object] = []
    inside.append(inside)
    with pytest.raises(ValueError, match="too deep"):
        plain_document(pickle.dumps(inside))


DUMP = {
    "pg_status": {"0": {"last_enqueued_collective": "3", "last_completed_collective": "2"}},
    "entries": [
        {
            "collective_seq_id": 3,
            "process_group": ("0", "default_pg"),
            "profiling_name": "gloo:all_reduce",
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "is_p2p": False,
            "frames": [{"name": "train"}],
        }
    ],
}


@pytest.mark.parametrize("form", [json.dumps(DUMP).encode(), pickle.dumps(DUMP)])
def test_a_dump_is_read_in_both_forms(form: bytes, tmp_path: Path) -> None:
    (tmp_path / "dump_1").write_bytes(form)
    found = flight_record(Local("quick"), 1, {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
    assert isinstance(found, tuple)
    path, document = found
    assert path == f"{tmp_path}/dump_1"
    dump = dump_of(document, path)
    assert dump
    assert (dump.enqueued, dump.completed, dump.calls) == (3, 2, {3: ("all_reduce of [[4]]", "Float")})


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "HOME"])
def test_a_dump_is_found_where_torch_puts_it_by_default(name: str, tmp_path: Path) -> None:
    """torch 2.13: DebugInfoWriter::getWriter."""
    place = tmp_path / (".cache/torch" if name == "HOME" else "torch") / "comm_lib_trace_rank_3"
    place.parent.mkdir(parents=True)
    place.write_bytes(pickle.dumps(DUMP))
    assert isinstance(flight_record(Local("quick"), 3, {name: str(tmp_path)}), tuple)
    off = flight_record(Local("quick"), 4, {name: str(tmp_path), "TORCH_FR_BUFFER_SIZE": "0"})
    assert isinstance(off, Unread)
    assert off.reason is Reason.NOT_STATED


def test_dumps_that_are_not_there_or_old_are_said_to_be(tmp_path: Path) -> None:
    target, environ = Local("quick"), {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    (tmp_path / "dump_0").write_bytes(json.dumps(DUMP).encode())
    os.utime(tmp_path / "dump_0", (1000, 1000))
    for rank, environment, since in ((0, environ, 2000.0), (1, environ, 0.0), (0, {"HOME": str(tmp_path)}, 0.0)):
        dump = flight_record(target, rank, environment, since=since)
        assert isinstance(dump, Unread)
        assert dump.reason is Reason.MISSING


def test_what_is_no_dump_of_plain_values_is_said_to_be(tmp_path: Path) -> None:
    """Nothing that a stranger's pickle names is looked up or run."""
    (tmp_path / "dump_0").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "dump_1").write_bytes(b"[1, 2]")
    for rank in (0, 1):
        dump = flight_record(Local("quick"), rank, {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
        assert isinstance(dump, Unread)
        assert dump.reason is Reason.MALFORMED
    assert not Path("/tmp/evil").exists()


def test_ranks_behind_by_dumps_as_torch_writes_them() -> None:
    """torch 2.13 writes the counts of a process group as text."""
    ahead = json.dumps(
        {**DUMP, "pg_status": {"0": {"last_enqueued_collective": "3", "last_completed_collective": "2"}}}
    )
    behind = json.dumps(
        {**DUMP, "pg_status": {"0": {"last_enqueued_collective": "2", "last_completed_collective": "2"}}}
    )
    text = f"nccl_trace_rank_0\n{ahead}\n\nnccl_trace_rank_1\n{behind}\n"
    assert read_report(text, "dumps").texts("nccl.ranks_behind") == ("1",)


# ---- Dumps of several hosts ----


def reply(host: str, ranks: Mapping[int, Dump], still: bool = True) -> Reply:
    """What that host answers whose ranks wait, and have those dumps."""
    rows = [
        {
            "rank": Known(rank, "test"),
            "host": Known(host, "test"),
            "state": Known("waits", "test"),
            "still": Known(still, "test"),
            "collective": Known("all_reduce", "test"),
            **dump_columns(dump),
        }
        for rank, dump in ranks.items()
    ]
    diagnosis = diagnose("job", rows, 8.0, {"job.ras": Absent("no rank has loaded NCCL")}, ())
    return Reply(json.dumps(diagnosis.to_json()), host)


def ids_of(*replies: Reply) -> dict[str, str]:
    """The titles of what is found of all these hosts, by id."""
    asked_hosts = Asked()
    for one in replies:
        asked_hosts.add(one)
    diagnosis = diagnose("job", asked_hosts.with_missing(), 8.0, asked_hosts.records, ())
    return {finding.id: finding.title for finding in diagnosis.findings}


def dump(enqueued: int, completed: int, types: str = "Float") -> Dump:
    """A dump whose last call is this one."""
    return Dump(enqueued, completed, {enqueued: ("all_reduce of [[8]]", types)}, "test")


def test_a_rank_of_another_host_that_has_not_come() -> None:
    waits = dump(812, 811)
    assert "nccl.rank-behind" not in ids_of(reply("n0", {0: waits, 1: waits}))
    found = ids_of(reply("n0", {0: waits, 1: waits}), reply("n1", {2: dump(811, 811)}))
    assert found["nccl.rank-behind"] == (
        "Rank 2 is behind the others: its last collective was number 811, others have called 812 (3 ranks tell)"
    )


def test_a_rank_of_another_host_that_has_completed_fewer() -> None:
    ahead = reply("n0", {0: dump(815, 814), 1: dump(815, 814)})
    found = ids_of(ahead, reply("n1", {2: dump(815, 811)}))
    assert found["nccl.rank-behind"].startswith("Rank 2 has completed only 811 of the 815 collectives")
    moves = ids_of(reply("n0", {0: dump(815, 814)}, still=False), reply("n1", {2: dump(815, 811)}, still=False))
    assert "nccl.rank-behind" not in moves


def test_types_that_differ_between_hosts() -> None:
    found = ids_of(reply("n0", {0: dump(7, 6), 1: dump(7, 6)}), reply("n1", {2: dump(7, 6, types="BFloat16")}))
    assert "all_reduce of [[8]] BFloat16 (rank 2), all_reduce of [[8]] Float (ranks 0, 1)" in found["workload.desync"]


def test_ranks_of_two_hosts_that_agree_are_not_blamed() -> None:
    found = ids_of(reply("n0", {0: dump(7, 6), 1: dump(7, 6)}), reply("n1", {2: dump(7, 6), 3: dump(7, 6)}))
    assert set(found) == {"nccl.all-wait"}

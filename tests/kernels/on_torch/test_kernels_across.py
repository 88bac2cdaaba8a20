"""Collectives of a job over many hosts and its training canary, by Gloo and a real torch: who fails is named."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Known, Row, Unread, number_of, value_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.kernels import across_hosts
from gpudoctor.kernels.across_hosts import Across, Member, collective_rows, run
from gpudoctor.kernels.canary import canary_rows, summary
from gpudoctor.target.local import Local
from tests import needs, processes

_PLANTED = """

_step = MemberRank.step


def _fails(me, what, *rest, **more):
    import signal
    _step(me, what, *rest, **more)
    if me.rank != {rank} or not what.startswith({when!r}):
        return
    if {what!r} == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if {what!r} == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    if {what!r} == "raise":
        raise RuntimeError("bad link")
    if {what!r} == "flip":
        _flip()
    if {what!r} == "slow":
        _slow()


def _slow():
    import torch
    layer = torch.nn.TransformerEncoderLayer
    once = layer.forward
    layer.forward = lambda *given, **more: (once(*given, **more) + once(*given, **more)) / 2


def _flip():
    from ._operations import OPERATIONS
    right = OPERATIONS["broadcast"]

    def buffers(group, numbers):
        made = right.buffers(group, numbers)

        def call():
            made.call()
            made.got.view(group.torch.int32)[7] ^= 1

        return made._replace(call=call)

    OPERATIONS["broadcast"] = right._replace(buffers=buffers)


MemberRank.step = _fails
"""


@contextmanager
def planted(folder: Path, rank: int, what: str, when: str) -> Iterator[None]:
    """Have that rank's child ``die``, ``hang``, ``raise``, ``flip`` a bit of what it gets, or train at half of its
    speed (``slow``), when it says that step.
    """
    child = folder / "child"
    shutil.copytree(Path(across_hosts.program()).parent, child)
    module = child / "collective" / "_across_hosts.py"
    module.write_text(module.read_text() + _PLANTED.format(rank=rank, what=what, when=when))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(across_hosts, "program", lambda: str(child / "__main__.py"))
        yield


def job(python: str, hosts: Sequence[str], world: int = 0, **options: Any) -> list[Across]:
    """What each rank answers, one for each of `hosts`; `world` is how many it believes that there are."""
    target = Local("standard", python)
    answers: list[Across | None] = [None] * len(hosts)
    known, port = threading.Event(), [0]

    def listening(number: int) -> None:
        port[0] = number
        known.set()

    def one(rank: int) -> None:
        if rank:
            known.wait(120)
        me = Member(rank, world or len(hosts), hosts[:rank].count(hosts[rank]), hosts[rank], ("127.0.0.1", port[0]))
        answers[rank] = across_hosts.run(target, me, listening=listening, **options)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer for answer in answers if answer]


pytestmark = pytest.mark.full

ALONE = """
import sys
from gpudoctor.kernels.across_hosts import Member, run
from gpudoctor.target.local import Local

def tell(step):
    print(step, flush=True)

run(Local("standard", sys.argv[1]), Member(0, 2, 0, "alpha", ("127.0.0.1", 0)), seconds=60.0, tell=tell)
"""
"""Rank 0 of two, the other of which never comes."""
HOSTS = ("alpha", "alpha", "beta", "beta")


@pytest.fixture(scope="module")
def steps() -> list[str]:
    """What the ranks of `sound` tell."""
    return []


@pytest.fixture(scope="module")
def sound(python: str, steps: list[str]) -> list[Across]:
    return job(python, HOSTS, tell=steps.append)


def _rows(answers: list[Across]) -> list[dict[str, Any]]:
    """The facts by column, those alone that are known."""
    return [
        {name: state.value for name, state in row.items() if isinstance(state, Known)}
        for row in collective_rows(answers)
    ]


def test_every_operation_is_right_on_every_leg(sound: list[Across]) -> None:
    rows = _rows(sound)
    assert {(row["leg"], row["groups"]) for row in rows} == {("node", 2), ("network", 2), ("all", 1)}
    assert {(row["operation"], row["bytes"]) for row in rows} == {
        (operation, size)
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_receive")
        for size in (4 << 10, 1 << 20)
    }
    assert len(rows) == 3 * 6 * 2
    for row in rows:
        assert (row["right"], row["ranks"], row["state"]) == (True, 4, "measured")
        assert row["busbw"] > 0
        assert row["via"] == ("lo 127.0.0.1",)


def test_each_rank_tells_its_steps_and_comes_to_the_end(sound: list[Across]) -> None:
    for answer in sound:
        assert (answer.why, answer.ended, answer.device, answer.nccl) == ("", (), "cpu", "")
        assert answer.step == "send_receive 1 MiB, gloo, all"
        assert Across.from_json(json.loads(json.dumps(answer.to_json()))) == answer


def test_steps_are_told_as_they_begin(sound: list[Across], steps: list[str]) -> None:
    assert steps.index("import torch") < steps.index("init_process_group gloo, node")
    assert steps.index("first collective gloo, node") < steps.index("all_reduce 4 KiB, gloo, node")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("die", 'rank 3 was killed by SIGSEGV at "broadcast 4 KiB, gloo, network" (host beta)'),
        ("raise", 'rank 3 failed: RuntimeError: bad link at "broadcast 4 KiB, gloo, network" (host beta)'),
        ("hang", 'rank 3 did not come to an end at "broadcast 4 KiB, gloo, network" (host beta)'),
    ],
)
def test_who_fails_is_named_and_what_came_before_counts(python: str, tmp_path: Path, what: str, words: str) -> None:
    with planted(tmp_path, 3, what, "broadcast 4 KiB, gloo, network"):
        answers = job(python, HOSTS, seconds=30.0)
    rows = _rows(answers)
    (failed,) = [row for row in rows if row["state"] == "failed"]
    assert (failed["leg"], failed["culprits"][0], failed["hosts"][0]) == ("network", 3, "beta")
    assert failed["words"].startswith(words)
    assert {row["right"] for row in rows if row["leg"] == "node"} == {True}
    assert {row["operation"] for row in rows if row["leg"] == "node"} >= {"all_reduce", "send_receive"}


def test_who_has_a_wrong_value_is_named(python: str, tmp_path: Path) -> None:
    with planted(tmp_path, 2, "flip", "init_process_group gloo, all"):
        answers = job(python, HOSTS)
    wrong = [row for row in _rows(answers) if not row["right"]]
    assert {(row["leg"], row["operation"], row["culprits"], row["hosts"]) for row in wrong} == {
        ("all", "broadcast", (2,), ("beta",))
    }
    assert wrong[0]["words"] == "rank 2 (host beta): 1 of 1024 values is wrong"


def test_who_never_comes_is_named_by_all(python: str) -> None:
    answers = job(python, HOSTS[:3], world=4, seconds=30.0)
    assert [(answer.why, answer.cannot) for answer in answers] == [("rank 3 did not come", True)] * 3
    assert {answer.step for answer in answers} == {"wait for all ranks"}
    assert collective_rows(answers) == ()


def test_without_torch_nothing_is_said_against_the_links() -> None:
    environ = {**os.environ, "PYTHONNOUSERSITE": "1"}
    target = Local("standard", needs.program("python3"), environ=environ)
    me = Member(0, 2, 0, "alpha", ("127.0.0.1", 0))
    answer = run(target, me)
    assert (answer.why, answer.cannot) == ("torch is not installed in this interpreter", True)


def test_one_rank_alone_is_checked_and_tests_no_link(python: str) -> None:
    (row,) = {row["operation"]: row for row in _rows(job(python, ["alpha"]))}.values()
    assert (row["operation"], row["right"], row["ranks"]) == ("all_reduce", True, 1)
    assert "busbw" not in row


def test_the_store_listens_at_the_address_of_the_job_alone(python: str) -> None:
    port: list[int] = []
    tried: list[int] = []

    def tell(step: str) -> None:
        if step == "wait for all ranks":  # torch has taken the socket over
            for address in ("127.0.0.1", "127.0.0.2"):
                with socket.socket() as one:
                    tried.append(one.connect_ex((address, port[0])))

    me = Member(0, 2, 0, "alpha", ("127.0.0.1", 0))
    run(Local("standard", python), me, tell=tell, listening=port.append, halt=lambda: "enough" if tried else "")
    assert tried == [0, errno.ECONNREFUSED]


def test_whoever_asks_can_end_it(python: str) -> None:
    began: list[str] = []
    answers = job(python, HOSTS[:1], world=2, tell=began.append, halt=lambda: "the job is over" if began else "")
    assert [(answer.why, answer.cannot) for answer in answers] == [("the job is over", True)]


def test_no_child_outlives_who_asked_for_it(python: str) -> None:
    """The process that asks is killed, which leaves it no time to clean up."""
    asking = subprocess.Popen([sys.executable, "-c", ALONE, python], stdout=subprocess.PIPE, text=True)
    assert asking.stdout
    while asking.stdout.readline() != "wait for all ranks\n":
        assert asking.poll() is None
    (child,) = (int(pid) for pid in Path(f"/proc/{asking.pid}/task/{asking.pid}/children").read_text().split())
    asking.kill()
    asking.wait()
    asking.stdout.close()
    assert processes.gone(child)


def trained(python: str, **options: Any) -> list[Across]:
    """Four ranks on two hosts, as ``preflight --canary`` has them train."""
    return job(python, HOSTS, **{"level": "quick", "canary": True, "seconds": 300.0, **options})


def rows_of(answers: list[Across]) -> tuple[Row, ...]:
    rows = canary_rows(answers)
    assert isinstance(rows, tuple), rows
    return rows


def titles(rows: tuple[Row, ...]) -> list[str]:
    """What the pages say of that job."""
    snapshot = Snapshot(Target("fleet", "job"), {}, {"canary": rows})
    return [finding.title for finding in judge(snapshot, rulebook.load([])).findings]


def test_sound_ranks_train_alike_and_nobody_is_named_and_halves_of_a_job_can_be_asked_for(python: str) -> None:
    answers = trained(python, level="standard", legs={"halves": [[0, 3], [1, 2]]})
    assert [(answer.why, answer.ended, len(answer.trained)) for answer in answers] == [("", (), 1)] * 4
    assert {(row["leg"], row["groups"], row["right"]) for row in _rows(answers)} == {("halves", 2, True)}
    assert Across.from_json(json.loads(json.dumps(answers[2].to_json()))) == answers[2]
    rows = rows_of(answers)
    assert [value_of(row["rank"]) for row in rows] == [0, 1, 2, 3]
    assert [value_of(row["host"]) for row in rows] == list(HOSTS)
    assert all(isinstance(row["ratio"], Known) for row in rows)
    assert all((number_of(row[name]) or 0) > 0 for row in rows for name in ("own_ms", "exchange_ms", "reach"))
    assert titles(rows) == []
    assert "4 ranks train" in summary(rows)


def test_a_rank_at_half_of_its_speed_is_named_with_its_host_and_figures(python: str, tmp_path: Path) -> None:
    with planted(tmp_path, 2, "slow", "training_step gloo, training"):
        rows = rows_of(trained(python))
    (title,) = titles(rows)
    assert title.startswith("Rank 2 on beta (cpu) takes ")
    assert f"{value_of(rows[2]['own_ms']):g} ms for a training step of its own" in title
    assert "is rank 2 on beta" in summary(rows)


def test_a_rank_that_fails_in_training_is_named(python: str, tmp_path: Path) -> None:
    with planted(tmp_path, 1, "die", "training_step gloo, training"):
        answers = trained(python)
    assert {answer.found for answer in answers} == {()}
    (failed,) = collective_rows(answers)
    assert (value_of(failed["leg"]), value_of(failed["state"]), value_of(failed["hosts"])) == (
        "training",
        "failed",
        ("alpha",),
    )
    assert "rank 1 was killed by SIGSEGV" in str(value_of(failed["words"]))


def test_two_ranks_are_not_compared(python: str) -> None:
    rows = rows_of(job(python, HOSTS[:2], level="quick", canary=True, seconds=300.0))
    assert [number_of(row["ratio"]) for row in rows] == [None, None]
    assert titles(rows) == []
    assert "slowest" not in summary(rows)


def test_where_nobody_trains_it_is_said_why() -> None:
    none = canary_rows([Across(0, "alpha", 0, why="torch is not installed in this interpreter", cannot=True)])
    assert none == Unread("torch is not installed in this interpreter")

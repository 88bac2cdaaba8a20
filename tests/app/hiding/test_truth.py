"""A shared document says the same: what was equal stays equal, what is everybody's stays, and it is judged alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.app.hiding import Sharing
from gpudoctor.core import pattern
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.texts import texts
from gpudoctor.readers import read_text
from gpudoctor.views import document
from tests.app.hiding.planting import BOOK
from tests.fuzz.seeds import seeds
from tests.generated.changes import broken
from tests.sim import scenario
from tests.sim.documents import sampled

_EVERYBODYS = (
    *("gpu.name", "gpu.address", "driver.version", "lib.name", "lib.version", "package.name", "package.version"),
    *("pci.address", "pci.name", "xid.code", "torch.version", "torch.cuda", "host.os", "host.kernel", "pin.name"),
    *("interface.name", "rdma.device", "node.path", "toolkit.version", "nvlink.link", "setting.name", "env.nccl_set"),
)


def _shared(diagnosis: Diagnosis) -> Diagnosis:
    return Sharing(this_machine=False)(diagnosis)


def _judged(diagnosis: Diagnosis) -> list[tuple[object, ...]]:
    return [(one.id, one.severity, one.role, one.confidence) for one in diagnosis.findings]


def _snapshots() -> Iterator[Snapshot]:
    yield from (one.snapshot for one in islice(broken(5, 1), 25))
    yield from (reading.snapshot_of(text) for text in [*seeds().snapshots[::90], *seeds().reports[::60]])


@pytest.mark.full
def test_a_shared_snapshot_is_judged_as_the_snapshot_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the search may cost: a machine that is paused for longer than a text may take must not fail it."""
    monkeypatch.setattr(pattern, "_ThreadClock", lambda: lambda: 0.0)
    for snapshot in _snapshots():
        saved = document.facts(snapshot, __version__)
        told = document.facts(Sharing(this_machine=False)(snapshot), __version__)
        own, others = (reading.read(text, book_name) for text, book_name in ((saved, "own"), (told, "shared")))
        assert _judged(own) == _judged(others), snapshot.target
        assert own.passed == others.passed
        assert [one.id for one in own.unjudged] == [one.id for one in others.unjudged]


@pytest.mark.parametrize("name", sampled(scenario.names(scenario.PROFILES), str, one_of=2))
def test_what_is_everybodys_stays(name: str) -> None:
    record = json.dumps(_record(name))
    diagnosis = reading.read(record, name)
    told = _shared(diagnosis)
    for fact in _EVERYBODYS:
        group, _, column = fact.rpartition(".")
        if group in diagnosis.snapshot.groups:
            rows, others = diagnosis.snapshot.rows(group), told.snapshot.rows(group)
            if isinstance(rows, tuple) and isinstance(others, tuple):
                assert [_value(row.get(column)) for row in rows] == [_value(row.get(column)) for row in others]
        else:
            assert _value(diagnosis.snapshot.get(fact)) == _value(told.snapshot.get(fact))
    assert [one.id for one in told.findings] == [one.id for one in diagnosis.findings]
    assert [one.why for one in told.findings] == [one.why for one in diagnosis.findings]


def _record(name: str) -> object:
    from gpudoctor.target.record import to_json

    return to_json(scenario.load(scenario.PROFILES / f"{name}.json"))


def _value(state: object) -> object:
    return state.value if isinstance(state, Known) else None


def test_equal_names_stay_equal_and_others_differ() -> None:
    text = (
        "Nov 22 10:11:12 zarkon kernel: NVRM: one\nNov 22 10:11:12 quuxor kernel: NVRM: two\n"
        "zarkon:1:1 [0] NCCL INFO Connect to 10.4.1.7<1000>\nquuxor:1:1 [0] NCCL INFO Connect to 10.4.1.9<1000>\n"
        "10.4.2.7:29500 /home/qanna/x /home/qotto/y qanna@zarkon.lab.org QANNA"
    )
    said = Sharing(this_machine=False)([text])[0]
    assert said.splitlines() == [
        "Nov 22 10:11:12 host1 kernel: NVRM: one",
        "Nov 22 10:11:12 host2 kernel: NVRM: two",
        "host1:1:1 [0] NCCL INFO Connect to 10.1.1.1<1000>",
        "host2:1:1 [0] NCCL INFO Connect to 10.1.1.2<1000>",
        "10.1.2.1:29500 /home/user1/x /home/user2/y user1@host1.domain1.example user1",
    ]


def test_what_is_shared_again_stays_as_it_is() -> None:
    for snapshot in islice(_snapshots(), 0, None, 7):
        once = Sharing(this_machine=False)(snapshot)
        twice = Sharing(this_machine=False)(once)
        changed = {(one, other) for (one, _), (other, _) in zip(texts(once), texts(twice), strict=True) if one != other}
        assert not {pair for pair in changed if "10." not in pair[0] and "192.168." not in pair[0]}


@pytest.mark.parametrize(
    ("user", "host"),
    [
        *[("nvidia", "gpu"), ("torch", "localhost"), ("root", "node"), ("ubuntu", "cuda"), ("cuda", "kernel")],
        *[("gpu", "driver"), ("user", "gpu"), ("memory", "cuda"), ("will", "node")],
    ],
)
def test_a_name_that_is_a_word_leaves_the_words_alone(user: str, host: str) -> None:
    report = (
        f"{user}@{host}:~$ python /home/{user}/train.py\nHOSTNAME={host}\nUSER={user}\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
        "| NVIDIA-SMI 570.124.06    Driver Version: 570.124.06    CUDA Version: 12.8 |\n"
        "The torch driver kernel on the gpu will use cuda memory of this user and node.\n"
    )
    own, told = pipeline.diagnose(read_text(report), BOOK), _shared(pipeline.diagnose(read_text(report), BOOK))
    assert [(one.id, one.title, one.why) for one in told.findings] == [
        (one.id, one.title, one.why) for one in own.findings
    ]
    lines = [row["line"] for row in told.snapshot.rows("text")]  # type: ignore[union-attr]
    assert {_value(line) for line in lines} >= set(report.splitlines()[3:5])

"""What is hidden and what only looks so; and a shared document says the same, for what was equal stays equal."""

import json
import struct
from collections.abc import Iterator
from itertools import islice

import pytest

from gpudoctor.app import interactive, pipeline, reading
from gpudoctor.app.commands.record import Hider
from gpudoctor.app.interactive import work_on
from gpudoctor.app.redaction import Redactor, shared
from gpudoctor.core import pattern
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.texts import texts
from gpudoctor.readers import read_text
from gpudoctor.views import document
from tests.app.redaction.views import BOOK
from tests.fuzz.seeds import seeds
from tests.generated.changes import broken
from tests.sim import scenario
from tests.sim.documents import sampled

_STAYS = (
    "nvidia-cudnn-cu12==9.1.0.70 libcublas10 10.2.1.243-1 TensorRT 10.0.1.6",
    "127.0.0.1 0.0.0.0 169.254.169.254 docker0 172.17.0.1 [::1]:29500",
    "0000:3b:00.0 sm_90a Xid 79 GB200 NVL72 mlx5_0 libnccl.so.2.21.5",
    "torch.nn.functional.linear scipy.io train.py libcuda.so.1 _ZN3c105ErrorC1ENS_14SourceLocationESs",
    "https://download.pytorch.org/whl/cu128 nvcr.io/nvidia/pytorch:24.05-py3 git@github.com:pytorch/pytorch",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)",
    "/var/cache/x /usr/local/cuda-12.8 /opt/conda/envs/x /data/models/llama /home/ubuntu/x",
    "TOKENIZERS_PARALLELISM=false max_tokens=4096 pad_token=<pad> PWD=/opt/x key: value",
    "host: not found; node: unreachable; user: none; std::vector c10::Error at::Tensor 12:34:56",
    "commit 9f3c1e5b7a2d4c6e8f0a1b3c5d7e9f1a2b4c6d8e",
    "grep -w error,warning hosts: none,unknown",
    "args[0] rank[0-3] gpu[0] systemd-journald[412]: x getty@tty1.service",
)


@pytest.mark.parametrize("text", _STAYS)
def test_what_only_looks_personal_stays(text: str) -> None:
    assert Redactor(this_machine=False)([text]) == [text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SLURM_NODELIST=zed[01-03,07],login9 zed02 zed[01-02]", "SLURM_NODELIST=host[1-4],host5 host2 host[1-2]"),
        ("srun -w kermit,grover3 x; kermit is down", "srun -w host1,host2 x; host1 is down"),
        ("--nodelist=zed[01-02],kermit --exclude=grover3,big4", "--nodelist=host[1-2],host3 --exclude=host4,host5"),
        ("10.31.7.0/24 via 10.31.7.4, 10.31.9.4", "10.1.1.0/24 via 10.1.1.1, 10.1.2.1"),
        (
            "CUDA_VISIBLE_DEVICES=GPU-8b0e7153 GPU-8b0e7153-bf7c-3706-d85c-524e44006655",
            "CUDA_VISIBLE_DEVICES=GPU-00000001 GPU-00000001-f000-4f00-8f00-000000000001",
        ),
        (
            "b8:59:9f:d4:1a:2c fe80:0000:0000:0000:b859:9f03:00d4:1a2c",
            "02:00:00:00:00:01 fe80:0000:0000:0000:0002:c903:0000:0001",
        ),
        ("C:\\Users\\Jane Doe\\x, then Jane Doe", "C:\\Users\\user1\\x, then user1"),
        ("projects/zed-prod/zones/us-central1-a", "projects/cloud1/zones/us-central1-a"),
        ("compute.googleapis.com/compute/v1/projects/zed-prod", "compute.googleapis.com/compute/v1/projects/cloud1"),
        ("/opt/projects/trainer/train.py", "/opt/projects/trainer/train.py"),
        ("https://me:pw@zed.corp.org/x?token=abcdef123456", "https://(hidden)@host1.domain1.example/x?token=(hidden)"),
        ("HOSTNAME=zed.lab.acme: search lab.acme", "HOSTNAME=host1.domain1.example: search domain1.example"),
    ],
)
def test_what_stands_for_it_keeps_its_form(text: str, said: str) -> None:
    assert Redactor(this_machine=False)([text]) == [said]


def test_the_interface_shows_what_a_report_would() -> None:
    paste = "Nov 22 10:11:12 qnodex17 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    told = pipeline.diagnose(reading.snapshot_of(paste, "/home/qzorbu/x"), BOOK)
    work = interactive.shared(work_on("/home/qzorbu/x", lambda _: iter([told])))
    partly: list[Diagnosis] = []
    whole = work.diagnose(lambda _: None, partly.append)
    assert whole == partly[-1] == shared(told)
    assert "qzorbu" not in work.title + whole.snapshot.target.name
    assert (work.apply, work.undo, work.kernels) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jane-doe-crash.txt", "file1.txt"),
        ("/srv/acme/Acme Q3.log", "file1.log"),
        ("C:\\acme\\acme.out", "file1.out"),
        ("/srv/acme/nccl-rank0.log", "nccl-rank0.log"),
        ("/srv/acme/requirements-cu124.txt", "requirements-cu124.txt"),
        ("-", "-"),
    ],
)
def test_the_name_of_a_file_is_hidden_where_it_may_tell_of_somebody(name: str, said: str) -> None:
    told = pipeline.diagnose(reading.snapshot_of("torch 2.6.0\nXid 79\n", name), BOOK)
    assert Redactor(this_machine=False)(told).snapshot.target.name == said


def test_a_files_name_is_hidden_in_sources_too_and_what_was_shared_stays() -> None:
    told = reading.diagnose_text("torch==2.6.0\nflash-attn\n", "acme/requirements-acme.txt", BOOK, None, None)
    once = Redactor(this_machine=False)(told)
    assert "acme" not in repr(once)
    assert "(file1.txt, line 2)" in repr(once.notes)
    assert Redactor(this_machine=False)(once) == once


def test_names_are_replaced_by_the_same_word_everywhere() -> None:
    hider = Hider("gpu-node-17.example.org", ["jdoe"])
    hider.learn("/home/annette/env")
    said = hider.text(
        "jdoe@gpu-node-17.example.org gpu-node-17: /home/annette/env /nfs/home/jdoe b8:59:9f:d4:1a:2c"
        " GPU-8b0e7153-bf7c-3706-d85c-524e44006655 https://me:pass@host/x hf_abcdefghijklmnopqrst"
        " fe80:0000:0000:0000:b859:9f03:00d4:1a2c"
    )
    for name in ("jdoe", "annette", "gpu-node", "b8:59", "8b0e7153", "pass", "hf_abc", "b859"):
        assert name not in said
    assert said.count(hider.user("jdoe")) == 2
    assert said.count("host1") == 2
    assert "fe80:0000:0000:0000:" in said


def test_what_only_looks_personal_stays_in_a_record() -> None:
    hider = Hider("vm", ["root", "user"])
    hider.learn("MASTER_ADDR=10.1.2.3")
    for text in ("/proc/sys/vm/swappiness", "/opt/.cache", "cudnn 9.1.0.70", "0000:3b:00.0", "12.8.90.1", "127.0.0.1"):
        assert hider.text(text) == text
    assert hider.text("MASTER_ADDR=10.1.2.3 and 10.1.2.3") == "MASTER_ADDR=10.2.1.1 and 10.2.1.1"


def test_a_user_has_a_name_of_the_same_length_in_binary_files() -> None:
    hider = Hider("x", ["jdoe"])
    raw = b"\x7fELF/home/jdoe/env/lib\0" + struct.pack("<Q", 5)
    assert len(hider.raw(raw)) == len(raw)
    assert b"jdoe" not in hider.raw(raw)
    assert hider.raw(raw)[4:].startswith(hider.text("/home/jdoe/env/lib").encode())


_EVERYBODYS = (
    *("gpu.name", "gpu.address", "driver.version", "lib.name", "lib.version", "package.name", "package.version"),
    *("pci.address", "pci.name", "xid.code", "torch.version", "torch.cuda", "host.os", "host.kernel", "pin.name"),
    *("interface.name", "rdma.device", "node.path", "toolkit.version", "nvlink.link", "setting.name", "env.nccl_set"),
)


def _shared(diagnosis: Diagnosis) -> Diagnosis:
    return Redactor(this_machine=False)(diagnosis)


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
        told = document.facts(Redactor(this_machine=False)(snapshot), __version__)
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
    said = Redactor(this_machine=False)([text])[0]
    assert said.splitlines() == [
        "Nov 22 10:11:12 host1 kernel: NVRM: one",
        "Nov 22 10:11:12 host2 kernel: NVRM: two",
        "host1:1:1 [0] NCCL INFO Connect to 10.1.1.1<1000>",
        "host2:1:1 [0] NCCL INFO Connect to 10.1.1.2<1000>",
        "10.1.2.1:29500 /home/user1/x /home/user2/y user1@host1.domain1.example user1",
    ]


def test_what_is_shared_again_stays_as_it_is() -> None:
    for snapshot in islice(_snapshots(), 0, None, 7):
        once = Redactor(this_machine=False)(snapshot)
        twice = Redactor(this_machine=False)(once)
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

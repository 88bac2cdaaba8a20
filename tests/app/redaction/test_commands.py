"""``--share`` of every command that prints a document, in every form, through the program itself."""

from pathlib import Path

import pytest

from gpudoctor.app.arguments import commands_of, parser
from tests.app.redaction.views import plain
from tests.cluster.fleet_documents import document
from tests.conftest import Program

_PLANTED = ("qzorbu", "qnodex", "hunterqq", "10.31.7", "8b0e7153", "1654022003158", "qtarka")
_PASTE = """\
Nov 22 10:11:12 qnodex17 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
qnodex17:12:12 [0] NCCL INFO Bootstrap : Using eth0:10.31.7.4<0>
  File "/home/qzorbu/train.py", line 3, in <module>
ImportError: /scratch/qtarka/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommX
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8b0e7153-bf7c-3706-d85c-524e44006655)
    Serial Number                         : 1654022003158
WANDB_API_KEY=hunterqq1hunterqq2hunterqq3hunterqq4hunt
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's home, of which the name is in every path."""
    folder = tmp_path / "home" / "qzorbu"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def report(home: Path) -> Path:
    file = home / "qnodex17-dmesg.txt"
    file.write_text(_PASTE)
    return file


def test_every_command_that_gives_a_document_can_share_it() -> None:
    options = {name: command._option_string_actions for name, command in commands_of(parser())}
    giving = {name for name, own in options.items() if own.keys() & {"--json", "--format"}}
    assert len(giving) >= 12
    assert [name for name in giving if "--share" not in options[name]] == []


def test_what_was_hidden_is_told_by_kinds(called: Program, report: Path) -> None:
    done = called("read", "-", "--share", "--json", stdin=report.read_text())
    assert [word for word in _PLANTED if word in plain(done.out)] == []
    assert done.err == ("gpudoctor: hidden: 1 host name, 2 users, 1 UUID, 1 serial number, 1 network address\n")
    assert "hidden" not in called("read", "-", "--json", stdin=report.read_text()).err


def test_several_files_share_their_names(called: Program, report: Path, home: Path) -> None:
    other = home / "other.txt"
    other.write_text("job of qtarka on qnodex17 died\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    done = called("read", str(other), str(report), "--share", "--json")
    assert [word for word in _PLANTED if word in plain(done.out)] == []


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--level", "quick", "--json"),
        ("check", "--level", "quick"),
        ("snapshot", "--level", "quick"),
        ("diff", "REPORT", "OTHER"),
        ("diff", "REPORT", "OTHER", "--json"),
        ("fix", "--dry-run", "--read", "REPORT"),
        ("fix", "--dry-run", "--read", "REPORT", "--json"),
        ("fleet", "HOSTS", "--json"),
        ("fleet", "HOSTS", "--scheduler", "slurm"),
        ("bench", "--json", "--device", "cpu", "--kernel", "matmul.bf16"),
        ("preflight", "--json"),
        ("history",),
        ("setup", "torch", "--json", "--offline"),
        ("setup", "container", "--json"),
    ],
    ids=" ".join,
)
def test_a_shared_document_names_nobody(gpudoctor: Program, report: Path, home: Path, words: tuple[str, ...]) -> None:
    other, hosts = home / "other.txt", home / "hosts.jsonl"
    other.write_text(_PASTE.replace("10.31.7.4", "10.31.7.5"))
    hosts.write_text("".join(f"{document(f'qnodex{number}')}\n" for number in (17, 18)))
    named = {"REPORT": str(report), "OTHER": str(other), "HOSTS": str(hosts)}
    env = {
        "HOME": str(home),
        "USER": "qzorbu",
        "LOGNAME": "qzorbu",
        "HOSTNAME": "qnodex17",
        "HF_TOKEN": "hunterqq1hunterqq2",
        "NCCL_DEBUG_FILE": "/scratch/qtarka/nccl.log",
        "GPUDOCTOR_HISTORY": "on",
        "GPUDOCTOR_STATE": str(home / "state"),
    }
    done = gpudoctor(*(named.get(word, word) for word in words), "--share", env=env, cwd=home)
    assert done.code in (0, 1, 3), done.err
    assert done.out.strip()
    assert [word for word in _PLANTED if word in plain(done.out)] == []


def test_what_is_shared_is_not_run(called: Program) -> None:
    for words in (("fix", "--yes"), ("setup", "torch", "--apply"), ("setup", "driver", "--apply")):
        done = called(*words, "--share")
        assert (done.code, done.out) == (2, "")
        assert "--share" in done.err

"""What came back of a host is read as far as it goes and ends nothing; and the names of hosts in one word."""

import errno
import gzip
import io
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.app import reading
from gpudoctor.cluster.fleet import remote, sources
from gpudoctor.cluster.fleet.reading import Reply, ReplyReader, names_phrase, node_set, ordered
from gpudoctor.cluster.fleet.summary import Rate, Summary
from gpudoctor.cluster.preflight import launcher
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Absent, Known, Row, Value
from gpudoctor.views import document as view
from tests.cluster.fleet_documents import BOOK, LOST, document, driver, folded, machine
from tests.needs import program

N1 = document("n1")


def judged(text: str, name: str) -> Diagnosis:
    """As ``gpudoctor fleet`` has saved facts judged."""
    return reading.diagnose_text(text, name, BOOK)


def read(text: str, **named: str) -> list[Summary]:
    """The summaries of a reply."""
    return list(ReplyReader(BOOK, judge=judged).summaries(Reply(text, **named)))


def one(text: str, **named: str) -> Summary:
    """The only one."""
    (summary,) = read(text, **named)
    return summary


def test_a_document_is_kept_in_short() -> None:
    summary = one(document("n1", {**LOST, "cuda.nvcc_version": Absent("nvcc is not there")}))
    assert (summary.host, summary.answered, summary.verdict, summary.level) == ("n1", True, "broken", "standard")
    assert [(told.id, told.layer, told.severity) for told in summary.findings] == [("gpu.fell-off-bus", "gpu", "error")]
    assert summary.values["driver.version"] == driver()
    assert summary.values["cuda.nvcc_version"] == "not there"
    assert summary.gpus == 8
    assert sum(summary.passed.values()) > 50


def test_of_each_kernel_the_slowest_gpu_is_kept() -> None:
    def row(kernel: str, gpu: int, value: float, unit: str) -> Row:
        told: dict[str, Value] = {
            "kernel": kernel,
            "gpu": gpu,
            "value": value,
            "unit": unit,
            "rung": "torch",
            "status": "ran",
        }
        return {name: Known(said, "a kernel") for name, said in told.items()}

    rows = (
        row("matmul.bf16", 0, 722.0, "TFLOP/s"),
        row("matmul.bf16", 3, 478.0, "TFLOP/s"),
        row("launch", 0, 4.1, "µs"),
    )
    assert one(document("n1", measured=rows)).rates == {"matmul.bf16": Rate(478.0, "TFLOP/s", 3)}


def test_variables_are_those_in_force_whether_set_in_the_environment_or_a_file() -> None:
    rows = tuple(
        {"name": Known(name, "x"), "value": Known(value, "x"), "origin": Known("/etc/nccl.conf", "x")}
        for name, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_DEBUG", "WARN"), ("UCX_TLS", "tcp"))
    )
    facts = {"env.NCCL_DEBUG": Known("INFO", "environment")}
    values = one(document("n1", facts, setting=rows)).values
    assert {name: said for name, said in values.items() if name.startswith("env.")} == {
        "env.NCCL_IB_DISABLE": "1",
        "env.NCCL_DEBUG": "INFO",
    }


def test_the_name_by_which_a_host_was_asked_is_its_name() -> None:
    assert one(N1, host="login-alias").host == "login-alias"


@pytest.mark.parametrize(
    "banner",
    ["Welcome to n1\n", "{not json}\n", "\ufeff", '{"level": "motd"\n\n', "x" * 100_000 + "\n"],
    ids=["words", "braces", "a byte order mark", "a document cut off", "a long line"],
)
def test_what_stands_before_a_document_is_left_out(banner: str) -> None:
    assert [(found.host, found.answered) for found in read(banner + N1 + "\nlogout\n")] == [("n1", True)]


def test_documents_may_stand_one_a_line_or_indented() -> None:
    text = "\n".join([N1, json.dumps(json.loads(document("n2")), indent=1), document("n3")])
    assert [found.host for found in read(text)] == ["n1", "n2", "n3"]


@pytest.mark.parametrize("share", [0.0003, 0.3, 0.999])
def test_a_document_that_is_cut_off_is_named_as_such_with_its_host(share: float) -> None:
    found = one(N1[: int(len(N1) * share)], name="file7")
    assert found.because == "the document is cut off"
    assert found.host == ("n1" if share > 0.01 else "file7")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "nothing came back"),
        ("bash: gpudoctor: command not found\n", "no gpudoctor document, but: bash: gpudoctor: command not found"),
        (
            N1.replace("gpudoctor/1", "gpudoctor/2"),
            "schema gpudoctor/2 is not gpudoctor/1: a gpudoctor of another major",
        ),
        ('{"schema": "gpudoctor/1", "findings": [], "facts": {}}', "not a whole diagnosis document"),
        (N1.replace('"verdict":"sound"', '"verdict":"fine"'), "'fine' is none of sound"),
        (N1.replace('"findings":[{"id"', '"findings":[{"ip"'), "not a whole diagnosis document"),
        ('{"schema":' * 100_000, "nested without end"),
        ('{"schema": "gpudoctor/1", "verdict": nope}', "broken JSON"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_no_document_is_said(text: str, because: str) -> None:
    found = one(text, name="n7")
    assert not found.answered
    assert because in found.because
    assert len(found.because) < 300


def test_why_a_host_is_silent_is_what_whoever_asked_it_says() -> None:
    assert one("", host="n3", because="no answer within 60 s").because == "no answer within 60 s"
    assert one(N1[:5000], host="n1", because="no answer within 60 s").because == (
        "the document is cut off; no answer within 60 s"
    )


def test_a_saved_snapshot_is_judged() -> None:
    base = machine()
    snapshot = replace(base, target=replace(base.target, name="n9"), facts={**base.facts, **LOST})
    found = one(view.facts(snapshot, "1.0"))
    assert (found.host, found.verdict, found.findings[0].id) == ("n9", "broken", "gpu.fell-off-bus")


def test_a_folded_fleet_is_not_a_host() -> None:
    assert "whole fleet" in one(view.render(folded([N1]))).because


@settings(max_examples=30)
@given(st.integers(0, 4000), st.binary(max_size=40))
def test_no_damage_ends_the_reading(at: int, noise: bytes) -> None:
    place = at * len(N1) // 4000
    text = N1[:place] + noise.decode("latin-1") + N1[place + 7 :]
    assert read(text, name="n1")


def test_files_and_folders_and_standard_input_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rack1").mkdir()
    (tmp_path / "rack1/n1.json").write_text(N1)
    (tmp_path / "rack1/n2.json.gz").write_bytes(gzip.compress(document("n2").encode()))
    (tmp_path / "both.jsonl").write_text(f"{document('n3')}\n{document('n4')}\n")
    (tmp_path / "n5.out").write_text("srun: error: n5: task 4: Killed\n")
    (tmp_path / ".hidden").write_text("x")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(document("n6").encode())))
    reader = ReplyReader(BOOK)
    found = [one for reply in sources.replies([str(tmp_path), "-"]) for one in reader.summaries(reply)]
    assert [one.host for one in found] == ["n3", "n4", "n5", "n1", "n2", "n6"]
    assert [one.host for one in found if not one.answered] == ["n5"]


@pytest.mark.parametrize(
    ("at", "because"), [(10, "Error -3 while decompressing data"), (-8, "CRC check failed"), (None, "ended before")]
)
def test_a_damaged_file_is_a_host_without_an_answer(tmp_path: Path, at: int | None, because: str) -> None:
    zipped = bytearray(gzip.compress(N1.encode()))
    if at is None:
        del zipped[-20:]
    else:
        zipped[at] ^= 0xFF
    (tmp_path / "n1.json.gz").write_bytes(zipped)
    *_, reply = sources.replies([str(tmp_path)])
    assert reply.name == "n1"
    assert because in reply.because


def test_a_folder_that_may_not_be_listed_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    (tmp_path / "n1.json").write_text(N1)
    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return iter(listed(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    silent, found = sources.replies([str(tmp_path)])
    assert (silent.name, silent.because.startswith(f"{locked}: ")) == ("locked", True)
    assert found.text == N1


def test_a_file_that_is_not_there_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        sources.verify([str(tmp_path / "x.json")])


NAMES = st.sets(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["n", "gpu-", "rack1-node"]),
        st.one_of(st.integers(0, 120), st.integers(0, 12).map("{:02}".format), st.integers(0, 120).map("{:03}".format)),
        st.sampled_from(["", "", ".cluster", "-ib"]),
    ),
    min_size=1,
    max_size=40,
)


@given(NAMES)
def test_the_word_stands_for_these_names_and_no_others(names: set[str]) -> None:
    assert set(map(str, NodeSet(node_set(names)))) == names


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["node08", "node09", "node10", "node12"], "node[08-10,12]"),
        (["n9", "n10", "login"], "login,n[9-10]"),
        (["n7"], "n7"),
        (["n1-ib", "n2-ib"], "n[1-2]-ib"),
        (["10.0.0.8", "10.0.0.9"], "10.0.0.[8-9]"),
    ],
)
def test_neighbours_become_ranges(names: list[str], word: str) -> None:
    assert node_set(names) == word


def test_numbers_are_ordered_by_their_value() -> None:
    assert ordered(["n10", "n9", "a", "n9"]) == ["a", "n9", "n10"]


def test_a_sentence_names_a_few_and_counts_the_rest() -> None:
    assert names_phrase(["n9", "n1", "n7"]) == "n1, n7 and n9"
    assert names_phrase([f"n{number}" for number in range(1, 33)]) == "n[1-32]"
    assert (
        names_phrase([f"n{number}" for number in range(100, 10001, 100)])
        == "n100, n200, n300, n400, n500, n600 and 94 more"
    )


SHORT = {
    "": [],
    "node1": ["node1"],
    "node1,login": ["node1", "login"],
    "node[1-4,7]": ["node1", "node2", "node3", "node4", "node7"],
    "x[08-11]": ["x08", "x09", "x10", "x11"],
    "n[1-2]-ib,m": ["n1-ib", "n2-ib", "m"],
    "rack[1-2]n[01-02],login": ["rack1n01", "rack1n02", "rack2n01", "rack2n02", "login"],
}


@pytest.mark.parametrize(("short", "names"), SHORT.items())
def test_without_slurm_at_hand_they_are_written_out_alike(
    short: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert launcher.expanded(short) == names


@pytest.mark.parametrize(("short", "names"), [item for item in SHORT.items() if item[0] and "]-" not in item[0]])
def test_slurm_says_the_same_of_what_it_takes(
    short: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = program("scontrol")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "slurm.conf").write_text("ClusterName=test\nSlurmctldHost=localhost\n")
    said = subprocess.run([scontrol, "show", "hostnames", short], check=True, capture_output=True, text=True)
    assert said.stdout.split() == names


@pytest.mark.parametrize("broken", ["n[a-b]", "n[1-2", "n[1-99999999]", "n[-]"])
def test_what_is_no_list_names_nobody(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert not [name for name in launcher.expanded(broken) if "[" in name]


SINFO = """#!/bin/sh
cat <<END
node2 idle
node1 mixed
node3 idle*
node4 drained
node10 allocated
node11 down*
node12 idle~
END
"""
"""Slurm marks nodes that do not respond by an asterisk, those that are powered off by a tilde."""


def test_nodes_that_do_not_respond_or_are_taken_out_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sinfo"
    program.write_text(SINFO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nodes = remote.slurm_nodes("all")
    assert nodes.names == ("node1", "node2", "node10")
    assert nodes.out == {
        "node3": "Slurm calls it idle*",
        "node4": "Slurm calls it drained",
        "node11": "Slurm calls it down*",
        "node12": "Slurm calls it idle~",
    }

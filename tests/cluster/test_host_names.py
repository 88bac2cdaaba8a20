"""Host names in one word, as Slurm and ClusterShell read them back; what Slurm says of a partition's nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.cluster.fleet import remote
from gpudoctor.cluster.fleet.reading import names_phrase, node_set, ordered
from gpudoctor.cluster.preflight import launcher
from tests.needs import program

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
END
"""
"""Slurm marks nodes that do not respond by an asterisk."""


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
    }

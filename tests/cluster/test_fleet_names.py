"""Host names in one word, as Slurm and ClusterShell read them back."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.cluster.fleet.names import names_phrase, node_set, ordered

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

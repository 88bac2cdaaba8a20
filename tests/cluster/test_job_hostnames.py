"""Short forms of host names, held against Slurm's own program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpudoctor.cluster.job import launcher
from tests.needs import program

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

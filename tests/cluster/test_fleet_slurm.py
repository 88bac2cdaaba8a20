"""What Slurm says of a partition's nodes: whom to ask, and whom it calls unable to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.cluster.fleet import remote

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

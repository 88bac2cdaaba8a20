"""``run --gate``: the check of the job before it, and the command on go alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core.shipped import own_command
from tests.app.beside.running import PATIENCE, beside, run
from tests.processes import free_port
from tests.sim import scenario
from tests.sim.root import Machine

PAGE = """
id = "site.no"
title = "A machine that this site has not"
severity = "error"
when = ["host.memory_mib < 999999999"]
finding = "This site's machines have much memory, this one {host.memory_mib} MiB"
why = "For the test."
misses = "Nothing."
sources = ["the test, 2026-11"]

[[case]]
name = "too few"
facts = { "host.memory_mib" = 8 }
finds = "This site's machines have much memory, this one 8 MiB"

[[case]]
name = "enough"
facts = { "host.memory_mib" = 999999999 }
passes = true

[[case]]
name = "unread"
facts = { "host.memory_mib" = { unread = "no /proc" } }
unjudged = "no /proc"
"""


def gated(machine: Machine, *options: str) -> tuple[int, str, str]:
    """The exit code and what is printed of a command behind the gate on that machine."""
    ran = machine.run([*own_command(), "run", "--gate", *options, "--", sys.executable, "-c", "print('trained')"])
    return ran.code, ran.out, ran.err


@pytest.mark.full
def test_the_command_runs_on_go(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.PROFILES / "hgx-h100.json"), tmp_path / "root")
    code, out, err = gated(machine)
    assert (code, out) == (0, "trained\n"), err
    assert "GO: " in err
    assert "exit 0 after" in err
    assert gated(machine, "--quiet") == (0, "trained\n", "")


@pytest.mark.full
def test_it_does_not_on_no_go(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / "lost-gpu-h100.json"), tmp_path / "root")
    for options in ((), ("--quiet",)):
        code, out, err = gated(machine, *options)
        assert (code, out) == (1, ""), err
        assert "NO-GO: " in err
        assert "[gpu.fell-off-bus]" in err
        assert "exit " not in err


def test_no_rank_starts_where_one_may_not(tmp_path: Path) -> None:
    """The ranks meet before any of them starts, and a profile that no machine has here is a no-go for both."""
    mark = tmp_path / "mark"
    pages = tmp_path / "pages"
    (pages / "host").mkdir(parents=True)
    (pages / "host/site.no.toml").write_text(PAGE)
    environ = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [*beside("--gate", "--rules", str(pages)), "touch", str(mark)],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "TMPDIR": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], printed
    assert "This site's machines have much memory" in printed[0]
    assert printed[1] == ""
    assert not mark.exists()


def test_a_gate_of_bad_pages_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("id = ")
    assert run([*beside("--gate", "--rules", str(tmp_path)), "true"]).code == 2

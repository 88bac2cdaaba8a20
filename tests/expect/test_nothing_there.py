"""A machine that has nothing of what a profile asks of each GPU."""

from __future__ import annotations

from gpudoctor.expect import load
from gpudoctor.model.fact import Absent
from gpudoctor.model.snapshot import Snapshot, Target
from tests.expect.machines import held


def test_a_line_about_each_gpu_is_unmet_where_there_is_none() -> None:
    bare = Snapshot(Target("snapshot", "node", None, "quick"), {}, {"gpu": Absent("no NVIDIA GPU on the bus")})
    said = {finding.id: finding for finding in held(bare, load("hgx-h100")).findings}
    assert "expect.fabric" in said
    assert "no NVIDIA GPU on the bus" in str(said["expect.fabric"].evidence)

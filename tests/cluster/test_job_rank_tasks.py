"""An address that leads back to whoever asks is not the other machine, though it answers."""

from __future__ import annotations

import pytest

from gpudoctor.cluster.job import local
from gpudoctor.cluster.links.server import Server


@pytest.mark.parametrize(("asking", "outcome"), [("node0", "connected"), ("node1", "unroutable")])
def test_nothing_is_measured_with_oneself(asking: str, outcome: str) -> None:
    with Server("127.0.0.1", "the job", name="node1") as server:
        answer = local.measure_flow({"address": server.address, "port": server.port, "seconds": 5}, "the job", asking)
    assert answer["flow"]["outcome"] == outcome
    assert bool(answer["flow"]["gbps_out"]) is (outcome == "connected")

"""An address that leads back to whoever asks is not the other machine, though it answers."""

from __future__ import annotations

import pytest

from gpudoctor.job import errands
from gpudoctor.links.ear import Ear


@pytest.mark.parametrize(("asking", "outcome"), [("node0", "connected"), ("node1", "unroutable")])
def test_nothing_is_measured_with_oneself(asking: str, outcome: str) -> None:
    with Ear("127.0.0.1", "the job", name="node1") as ear:
        told = errands.flow({"address": ear.address, "port": ear.port, "seconds": 5}, "the job", asking)
    assert told["flow"]["outcome"] == outcome
    assert bool(told["flow"]["gbps_out"]) is (outcome == "connected")

"""What of a simulated machine is not the record's."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.sim import scenario
from tests.sim.root import Machine

_SPINS = """
import time
from gpudoctor.links._bulk import Clock
clock, until = Clock(), time.thread_time() + 0.1
while time.thread_time() < until: pass
print(clock.busy)
"""


def test_the_kernel_tells_of_the_programs_own_threads(tmp_path: Path) -> None:
    """Without it a rate that lacked a processor is a slow link's, and a sound node of a busy cluster test is sick."""
    machine = Machine(scenario.load(scenario.SICK / "ecc-uncorrected-h100.json"), tmp_path)
    ran = machine.run([sys.executable, "-c", _SPINS])
    assert 0.5 <= float(ran.out) <= 1, ran.err

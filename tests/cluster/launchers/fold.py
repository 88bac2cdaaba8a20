"""How long does it take to fold the documents of many hosts into one diagnosis, and how much memory?

python -m tests.cluster.launchers.fold [--documents N]

The documents are those of simulated machines, each under N names: sound H100 machines, and every hundredth with a lost
GPU. Processor time of one core and the most memory of this process, from the first document to the diagnosis as JSON.
Ends with 1 where a limit is passed, which is that of 10,000 documents.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.diagnosis import rulebook
from gpudoctor.views import document, fleet
from tests.needs import REPOSITORY
from tests.sim import scenario
from tests.sim.root import Machine

SECONDS, MIB, DOCUMENTS = 60.0, 1024.0, 10_000
"""Limits, and for how many documents they hold."""
SICK_EACH = 100


def simulated(name: str) -> str:
    """The document of a simulated machine: ``profiles/hgx-h100``."""
    record = scenario.load(REPOSITORY / f"tests/sim/{name}.json")
    with tempfile.TemporaryDirectory() as root:
        return Machine(record, Path(root)).gpudoctor("check", "--json").out


def replies(count: int) -> Iterator[Reply]:
    """One for each host: ``n1`` to ``n<count>``."""
    sound, sick = simulated("profiles/hgx-h100"), simulated("scenarios/lost-gpu-h100")
    for number in range(1, count + 1):
        yield Reply(sound if number % SICK_EACH else sick, host=f"n{number}")


def main() -> int:
    """Measure, print, and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    count = parser.parse_args().documents
    folding, size = FleetFold(rulebook.load()), 0
    started = time.process_time()
    for reply in replies(count):
        folding.add(reply)
        size += len(reply.text)
    heard = time.process_time() - started
    diagnosis = folding.diagnosis(FleetContext(scheduler="slurm"))
    written = document.render(diagnosis)
    assert diagnosis.fleet
    report = fleet.render(diagnosis, diagnosis.fleet)
    seconds = time.process_time() - started
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(report.splitlines()[1])
    print(f"{count} documents of {size / count / 1e3:.0f} kB: {seconds:.1f} s ({heard:.1f} s to read), {mib:.0f} MiB")
    print(f"one document of {len(written) / 1e6:.1f} MB; limits for {DOCUMENTS}: {SECONDS:g} s, {MIB:g} MiB")
    return int(seconds > SECONDS * count / DOCUMENTS or mib > MIB)


if __name__ == "__main__":
    sys.exit(main())

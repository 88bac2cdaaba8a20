"""How long do reading and judging take? Each document beside `json.loads` of the same document, in one run.

python -m tests.bench.diagnosis_time [--snapshots N] [--runs N] [--every N]

Processor time of one core, of each document the best of the runs. The documents: generated environments, sound and
changed, the simulated machines, the cases on the pages, the messages. Ends with 1 where a limit is passed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from gpudoctor.app.commands import rules
from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.target.record import to_json
from gpudoctor.views import document
from tests import rates
from tests.fuzz.seeds import seeds
from tests.generated.changes import broken
from tests.generated.sound import sound
from tests.sim import scenario

SNAPSHOT_MS, REPORT_MS, MANY_S, MANY = 15.0, 40.0, 90.0, 10_000
"""Limits: to judge one snapshot, to read and judge one report, to judge as many snapshots as `MANY`."""
_REPEATED = 20
"""`json.loads` is too short to be timed once."""


class Document(NamedTuple):
    """What is read and judged: a snapshot's JSON, or a report's text."""

    name: str
    text: str


class Timed(NamedTuple):
    """Milliseconds that one document took us, and `json.loads`."""

    name: str
    ours: float
    theirs: float


def generated(count: int) -> Iterator[Document]:
    """Environments made from the tables, every third with one thing changed."""
    for number, one in enumerate(islice(sound(1), count - count // 3)):
        yield Document(f"sound {number}: {one.machine}", document.facts(one.snapshot, __version__))
    for planted in islice(broken(1, 1 + count // 200), count // 3):
        yield Document(f"{planted.change.name}: {planted.machine}", document.facts(planted.snapshot, __version__))


def machines(every: int) -> Iterator[Document]:
    """The simulated machines, healthy and sick, with the largest of them."""
    for folder in (scenario.PROFILES, scenario.SICK):
        for name in scenario.names(folder)[::every]:
            record = json.dumps(to_json(scenario.load(folder / f"{name}.json")))
            yield Document(f"machine {name}", document.facts(snapshot_of(record), __version__))


def measured() -> Iterator[Document]:
    """Machines with what kernels gave on them: hundreds of rows."""
    for name in rates.MODELS:
        yield Document(f"measured {name}", document.facts(rates.snapshot(name, rates.sound(name)), __version__))
    for name, (snapshot, _, _) in rates.sick().items():
        yield Document(f"measured, {name}", document.facts(snapshot, __version__))


def case_facts() -> Iterator[Document]:
    """The cases on the pages that tell facts."""
    for case in rulebook.cases():
        if not case.report:
            yield Document(f"{case.rule}: {case.name}", document.facts(rules.snapshot_of(case), __version__))


def milliseconds(act: Callable[[], object], times: int = 1) -> float:
    """Processor time of one call."""
    started = time.process_time()
    for _ in range(times):
        act()
    return 1e3 * (time.process_time() - started) / times


def read_and_judge(text: str, book: Rulebook) -> Diagnosis:
    return diagnose(snapshot_of(text), book)


def timed(documents: Sequence[Document], book: Rulebook, runs: int, reading: bool) -> list[Timed]:
    """Each document's times, the best of `runs`; with `reading`, ours includes reading the text."""
    out = []
    for one in documents:
        raw = json.dumps(one.text) if reading else one.text
        ours = partial(read_and_judge, one.text, book) if reading else partial(diagnose, snapshot_of(one.text), book)
        pairs = [(milliseconds(ours), milliseconds(partial(json.loads, raw), _REPEATED)) for _ in range(runs)]
        out.append(Timed(one.name, min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)))
    return out


def told(what: str, times: Sequence[Timed], limit: float) -> bool:
    """Print the figures; whether the slowest is within the limit."""
    order = sorted(times, key=lambda one: one.ours)
    ratio = statistics.median(one.ours / one.theirs for one in times)
    worst = order[-1]
    print(
        f"{what}: {len(order)} documents, median {statistics.median(one.ours for one in order):.1f} ms,"
        f" p99 {order[len(order) * 99 // 100].ours:.1f} ms, max {worst.ours:.1f} ms (limit {limit:.0f});"
        f" median {ratio:.0f} times json.loads"
    )
    for one in order[:-4:-1]:
        print(f"  {one.ours:.1f} ms ({one.ours / one.theirs:.0f} times json.loads)  {one.name[:110]}")
    return worst.ours <= limit


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=1000, help="generated snapshots (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each document (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="of each kind only every so many-th document")
    options = parser.parse_args()
    book = rulebook.load()
    snapshots = [
        *machines(options.every),
        *measured(),
        *list(case_facts())[:: options.every],
        *generated(options.snapshots),
    ]
    pasted = [Document(text[:60], text) for text in seeds().reports[:: options.every]]
    for one in snapshots[::20]:  # patterns and expressions are compiled once
        diagnose(snapshot_of(one.text), book)
    judged = timed(snapshots, book, options.runs, reading=False)
    fine = told("judging a snapshot", judged, SNAPSHOT_MS)
    fine &= told("reading and judging a report", timed(pasted, book, options.runs, reading=True), REPORT_MS)
    many = MANY * statistics.mean(one.ours for one in judged) / 1e3
    print(f"{MANY:,} snapshots: {many:.0f} s on one core (limit {MANY_S:.0f}), from the mean of {len(judged)}")
    return 0 if fine and many <= MANY_S else 1


if __name__ == "__main__":
    sys.exit(main())

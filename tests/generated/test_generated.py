"""A sample of the generated environments in every run; ``python -m tests.generated --all`` judges them all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from tests.generated import known
from tests.generated.changes import broken, changes
from tests.generated.figures import Figures
from tests.generated.machine import PLACES, machines
from tests.generated.sound import draft_of, sound

pytestmark = pytest.mark.full

MEASURED = ("measured.", "rung.", "rate.", "live.peers_wrong", "live.wrong_everywhere")
"""What kernels measure: these machines were not, as tests/rates.py has others that were."""
LOGGED = (
    *("nccl.ranks_behind", "nccl.differing_calls", "kubernetes", "slurm_node.", "write_error.", "request."),
    *("request.", "jax.gpus"),
)
"""What only a job, a cluster or a program prints, which no machine has by itself."""


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return rulebook.load([])


def test_sound_environments_raise_no_alarm(book: Rulebook) -> None:
    figures = Figures(book)
    figures.sound(islice(sound(seed=2), 300))
    assert figures.judged == 300
    assert figures.alarms == []


def test_the_one_thing_changed_is_named_first(book: Rulebook) -> None:
    figures = Figures(book)
    figures.broken(broken(seed=2, each=4))
    assert figures.places.total() == 4 * len(changes())
    assert figures.first >= 0.98, figures.missed
    assert figures.places[0] <= figures.places.total() / 100, figures.missed


@pytest.mark.parametrize("combination", known.combinations(), ids=lambda one: f"{one.gpu}-{one.driver}-{one.torch}")
def test_what_the_field_knows(combination: known.Combination, book: Rulebook) -> None:
    found = [finding.id for finding in diagnose(known.snapshot_of(combination), book).findings]
    assert found[:1] == ["workload.fits" if combination.outcome == "runs" else combination.outcome]


def _generated() -> Iterator[Snapshot]:
    yield from (one.snapshot for one in islice(sound(seed=5), 200))
    yield from (one.snapshot for one in broken(seed=5, each=1))


def test_generated_facts_are_declared_and_of_their_kind() -> None:
    declared = catalog()
    for snapshot in _generated():
        assert list(declared.misfits(snapshot)) == []
        assert [name for name in snapshot.facts if not declared.find(name)] == []
        assert [group for group in snapshot.groups if group not in declared.groups] == []


def test_every_place_tells_what_rules_ask(book: Rulebook) -> None:
    """Nothing that a rule's conditions need is left out, or the rules would pass for want of facts."""
    measured = {
        rule.id for rule in book.rules if any(name.startswith((*MEASURED, *LOGGED)) for name in facts_read(rule))
    }
    for place in PLACES:
        machine = next(one for one in machines(6, (place,)) if one.level == "standard")
        diagnosis = diagnose(draft_of(machine).snapshot(place, "standard"), book)
        assert {one.id for one in diagnosis.unjudged if one.because.endswith("not asked")} <= measured

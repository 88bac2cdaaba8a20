"""Machines that were measured, judged as saved snapshots are: what is sick is named, what is sound left alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpudoctor import rulebook
from gpudoctor.doctor import diagnose, snapshot_of
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.version import __version__
from gpudoctor.views import document
from tests import rates

SICK = rates.sick()


def judged(snapshot: Snapshot) -> Diagnosis:
    """As ``gpudoctor read`` does with what ``gpudoctor snapshot`` saved."""
    return diagnose(snapshot_of(document.facts(snapshot, __version__)), rulebook.load())


def loud(diagnosis: Diagnosis) -> Sequence[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity != "info"]


@pytest.mark.parametrize("name", SICK)
def test_what_is_sick_is_the_one_finding(name: str) -> None:
    snapshot, page, says = SICK[name]
    found = loud(judged(snapshot))
    assert [finding.id for finding in found] == [page] * len(found)
    assert found
    assert says in found[0].title


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", rates.MODELS)
def test_sound_gpus_that_differ_by_nature_give_no_finding(model: str, seed: int) -> None:
    assert loud(judged(rates.snapshot(model, rates.sound(model, seed)))) == []

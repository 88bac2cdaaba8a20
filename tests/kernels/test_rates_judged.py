"""Machines that were measured, judged as saved snapshots are: what is sick is named, what is sound left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.measurement import Kernel, Run
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.views import document
from tests import rates


def judged(snapshot: Snapshot) -> Diagnosis:
    """As ``gpudoctor read`` does with what ``gpudoctor snapshot`` saved."""
    return diagnose(snapshot_of(document.facts(snapshot, __version__)), rulebook.load())


def loud(diagnosis: Diagnosis) -> Sequence[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity != "info"]


def test_what_is_sick_is_the_one_finding() -> None:
    for name, (snapshot, page, says) in rates.sick().items():
        found = loud(judged(snapshot))
        assert {finding.id for finding in found} == {page}, name
        assert says in found[0].title, name


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", rates.MODELS)
def test_sound_gpus_that_differ_by_nature_give_no_finding(model: str, seed: int) -> None:
    assert loud(judged(rates.snapshot(model, rates.sound(model, seed)))) == []


def test_sound_ways_between_gpus_give_no_finding() -> None:
    assert loud(judged(rates.snapshot("H100", rates.with_ways(rates.sound("H100"), 371, {})))) == []
    bridged = rates.with_ways(rates.sound("V100"), 45, {3: 0.4})  # no switches: GPUs may well differ
    assert loud(judged(rates.snapshot("V100", bridged))) == []


def test_gpus_that_somebody_uses_are_not_judged_and_it_says_who() -> None:
    found = rates.changed(rates.sound("H100"), [3], "", rates.held("pid 41207, train.py"))
    diagnosis = judged(rates.snapshot("H100", found))
    assert loud(diagnosis) == []
    unjudged = {one.id: one.because for one in diagnosis.unjudged}
    for page in ("gpu.slow", "gpu.copies-slow", "gpu.wrong-results"):
        assert "in use by pid 41207, train.py" in unjudged[page]


def test_what_is_wrong_with_one_gpu_hides_nothing_on_another() -> None:
    hot = rates.slower(0.55, sm_clock_mhz=1110, temperature_c=89, reasons=("hw_slowdown", "hw_thermal_slowdown"))
    found = rates.changed(rates.sound("H100"), [5], "matmul", hot)
    found = rates.changed(found, [2], "matmul", rates.slower(0.5))
    diagnosis = loud(judged(rates.snapshot("H100", found)))
    assert {(one.id, (one.subject or {})["address"]) for one in diagnosis} == {
        ("gpu.throttled", "0000:ab:00.0"),
        ("gpu.slow", "0000:3a:00.0"),
    }


def test_a_gpu_that_spoils_its_own_copies_is_named_before_the_ways_to_it() -> None:
    found = rates.changed(rates.sound("H100"), [5], "copy.to", rates.wrong("3 of 33554432 values are wrong"))
    peers = Run("peer.copy", -1, "ran", 41.2, right=False, differ=12, compared=1 << 23, words="wrong on the way 2 to 5")
    kernels = (*found.kernels, Kernel("peer.copy", "GPU to GPU", "GB/s"))
    diagnosis = judged(rates.snapshot("H100", replace(found, kernels=kernels, runs=(*found.runs, peers))))
    assert diagnosis.findings[0].id == "gpu.wrong-results"
    assert "gpu.peer-wrong" in diagnosis.findings[0].explains


def test_cards_of_one_name_with_fewer_multiprocessors_may_give_other_bits() -> None:
    """RTX 3080 of 10 and of 12 GB: libraries sum in another order there."""
    sound = rates.snapshot("H100", rates.changed(rates.sound("H100"), range(8), "add", _digest))
    assert loud(judged(sound))[0].id == "gpu.wrong-results"
    rows = listed(sound.rows("cuda_device"))
    other = tuple({**row, "sms": Known(114, "test")} if at == 3 else row for at, row in enumerate(rows))
    assert loud(judged(replace(sound, groups={**sound.groups, "cuda_device": other}))) == []


def _digest(run: Run) -> Run:
    return replace(run, details={"digest": "b" if run.gpu == 3 else "a"})

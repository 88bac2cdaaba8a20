"""Each cause has a plan that is whole, and what the plan makes true clears the finding and brings about no other."""

import re
import shlex
from collections.abc import Mapping

import pytest

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.plan import Foreseen, Plan, PlanStep
from gpudoctor.fixes import effects, plan
from gpudoctor.fixes.effects.commands import command_of
from gpudoctor.fixes.plan import blanks
from gpudoctor.views import plan as views
from tests.fixes.specimens import CAUSES, judged, machines, specimens, told_by_facts
from tests.sim.documents import Documents

pytestmark = pytest.mark.full

READ_AGAIN: Mapping[str, str] = {
    "torch.wrong-results": "which library gives the wrong values is what its steps find out",
    "cuda.arch-dropped": "only the messages of a build tell of it",
    "cuda.arch-unknown": "only the messages of a build tell of it",
    "cuda.host-compiler": "only the messages of a build tell of it",
    "cuda.toolkit-mismatch": "only the messages of a build tell of it",
    "driver.device-problem": "which of a driver, a cable and a card it is, is seen when Windows is asked again",
    "env.python-32-bit": "another Python is another environment, read when it is named",
    "env.dll-blocked": "which files Windows lets be loaded is seen when torch is imported again",
    "env.path-length": "only the messages of an installation tell of it",
    "env.store-python": "which python a new shell finds is seen when it is asked",
    "env.vc-runtime": "which DLLs Windows finds is seen when it is asked again",
    "cudnn.version": "which cuDNN is loaded is seen when torch is asked again",
    "env.libc-too-old": "which library the loader takes is seen when torch is imported again",
    "container.kubernetes-gpus": "only what Kubernetes prints tells of it",
    "ext.triton-resources": "only the messages of a program tell of it",
    "ext.arch": "only the messages of a program tell of it",
}
"""Causes that no plan clears here: what its steps make true is known only when the machine is read again."""
HERE: Mapping[str, str] = {
    "dropped-gt710-beside-5090": "one driver branch serves one machine: a person takes the old card out"
}
"""Machines on which something is left for another plan."""
_UNFILLED = re.compile(r"\bNone\b|\(not known\)|\{[a-z_.]+\}")


def foreseen(cause: str, diagnosis: Diagnosis) -> Foreseen:
    return effects.predict(diagnosis, planned(cause, diagnosis), judged)


def planned(cause: str, diagnosis: Diagnosis) -> Plan:
    return plan.plan_for(diagnosis, (cause,), root=True, judge=judged)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_whole_plan_that_clears_it_and_adds_none(cause: str, documents: Documents) -> None:
    """On every machine that has it; of a page's cases one is enough, for they tell little of their machine."""
    found = specimens(cause, documents)
    assert found, "no machine and no case on which it is found"
    told = {}
    for name, diagnosis in found.items():
        made = planned(cause, diagnosis)
        steps = [step for step in made.chosen if not step.verify and step.cause]
        assert any(step.touches != "nothing" or not step.argv for step in steps), f"{name}: nothing is done"
        assert made.verifies == (cause,)
        for step in made.chosen:
            assert not _lacks(step), f"{name}: {step}"
        assert _way_back(made, cause), f"{name}: {[step.title for step in steps]} cannot be taken back"
        told[name] = effects.predict(diagnosis, made, judged)
        _check_printed(name, made, told[name])
    if cause not in READ_AGAIN and cause not in machines():  # its page's cases, laid over a sound machine
        told = {name: foreseen(cause, one) for name, one in told_by_facts(cause, documents).items()}
    if cause not in READ_AGAIN:
        _check_cleared(cause, {name: one for name, one in told.items() if name not in HERE})


def _check_printed(name: str, made: Plan, told: Foreseen) -> None:
    """No word of the plan is cut or left out."""
    printed = " ".join(views.render(made, foreseen=told).split())
    for step in made.chosen:
        for word in step.argv:
            assert " ".join(shlex.quote(word).split()) in printed, f"{name}: {word}"
        assert " ".join(step.text.split()) in printed or step.verify, f"{name}: {step.text}"
    assert "…" not in printed.replace("…", "", sum(step.text.count("…") for step in made.chosen))


def _lacks(step: PlanStep) -> str:
    """What the step does not say."""
    if not step.title or not (step.argv or step.text):
        return "what is done"
    words = " ".join((step.title, step.text, step.makes_true, *step.argv))
    if step.text.startswith("Not run: "):
        return step.text
    if found := _UNFILLED.search(words):
        return f"filled in: {found[0]}"
    if next(blanks(step.argv), "") and not step.hindrance:
        return "what a person fills in"
    changes = step.touches != "nothing" or step.verify
    return "what it makes true" if changes and not step.makes_true else ""


def _way_back(made: Plan, cause: str) -> bool:
    """Whether the cure says how it is undone: by words, by the packages that were kept, or that it changes nothing."""
    steps = [step for step in made.chosen if step.cause == cause and step.way and step.touches != "nothing"]
    return bool(made.undo) or all(command_of(step.argv) for step in steps)


def _check_cleared(cause: str, told: Mapping[str, Foreseen]) -> None:
    """What the plan makes true clears the cause and brings about no other."""
    good = {name for name, one in told.items() if cause in one.cleared and not one.new}
    wrong = {name: one.sentence for name, one in told.items() if name not in good}
    assert good, wrong
    assert not wrong or cause not in machines(), wrong


@pytest.mark.parametrize("cause", READ_AGAIN)
def test_what_is_not_cleared_is_to_be_read_again(cause: str, documents: Documents) -> None:
    for diagnosis in told_by_facts(cause, documents).values():
        told = foreseen(cause, diagnosis)
        assert cause in told.unjudged, "it is cleared: take it off the list"
        assert not told.new


@pytest.mark.parametrize("name", HERE)
def test_what_is_left_for_another_plan_is_told(name: str, documents: Documents) -> None:
    [cause] = [
        cause for cause, paths in machines().items() if name in [path.stem for path in paths] and cause in CAUSES
    ]
    told = foreseen(cause, specimens(cause, documents)[name])
    assert told.new or cause not in told.cleared, "nothing is left: take it off the list"

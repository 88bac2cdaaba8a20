"""The fixes of a page written out for one machine: those that apply, the ones known to apply first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpudoctor.expression import NOT_KNOWN, Evaluator, Facts, Mentioned, evaluate, fill
from gpudoctor.judge import arguments
from gpudoctor.language import say
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Fix, Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

Offer = tuple[int, Fix]
"""A fix as it would be done here, and how far it is from being known to apply: see `_doubt`."""


def offered(
    fixes: Sequence[Fix], facts: Facts, evaluator: Evaluator, groups: Mapping[str, str] | None = None
) -> list[Offer]:
    """The fixes whose `when` is not known to be false, as far as their commands can be written out: half a command is
    worse than none. What a fix sets up is done in its place, in every way that this machine has for it.

    Those known to apply come first, then those that do if what nobody mentioned is not there, then the rest.
    `groups` are what the sign that was heard names.
    """
    found: list[Offer] = []
    for fix in fixes:
        doubt = _doubt(fix.when, facts, evaluator)
        if doubt is None:
            continue
        if fix.setup:
            found += ((max(doubt, own), cure) for own, cure in _set_up(fix, facts.snapshot, evaluator, groups))
        elif written := _written(fix, evaluator, groups):
            found.append((doubt, written))
    ordered = sorted(found, key=lambda offer: offer[0])
    return [offer for place, offer in enumerate(ordered) if not _among(offer[1], ordered[:place])]


def _among(fix: Fix, offers: Sequence[Offer]) -> bool:
    """Whether the same is done by one of them, under whatever condition."""
    return any((fix.title, fix.steps) == (other.title, other.steps) for _, other in offers)


def set_up(name: str, snapshot: Snapshot, evaluator: Evaluator) -> list[Offer]:
    """The ways to set up what that page of ``rules/setup`` is about."""
    from gpudoctor.rulebook.setups import setups
    from gpudoctor.setup.fits import fitted

    facts = Facts(fitted(snapshot))
    with _seen(facts, evaluator):
        return offered(setups()[name].fixes, facts, evaluator)


def _set_up(fix: Fix, snapshot: Snapshot, evaluator: Evaluator, groups: Mapping[str, str] | None) -> Iterator[Offer]:
    """The cures that stand for a fix that names what is set up, called by its title and their own."""
    from gpudoctor.setup import SOLVED

    if fix.setup in SOLVED:
        from gpudoctor.setup.cure import torch_cures

        yield from ((0, cure) for cure in torch_cures(snapshot, fix.setup))
        return
    for doubt, cure in set_up(fix.setup, snapshot, evaluator):
        title = say("{title} ({way})", title=fill(fix.title, evaluator, groups), way=cure.title)
        yield doubt, replace(cure, title=title)


@contextmanager
def _seen(facts: Facts, evaluator: Evaluator) -> Iterator[None]:
    """Conditions are worked out on these facts meanwhile."""
    outer, evaluator.names = evaluator.names, facts
    try:
        yield
    finally:
        evaluator.names = outer


def _doubt(conditions: Sequence[str], facts: Facts, evaluator: Evaluator) -> int | None:
    """0 where they hold, 1 where they do if what nobody mentioned is not there, else 2; none where they do not."""
    holds = all_hold(conditions, evaluator)
    if not isinstance(holds, CannotJudge):
        return 0 if holds else None
    with _seen(Mentioned(facts.snapshot, facts.each, facts.index), evaluator):
        return 1 if all_hold(conditions, evaluator) is True else 2


def _written(fix: Fix, evaluator: Evaluator, groups: Mapping[str, str] | None) -> Fix | None:
    """The fix with its holes filled; none where a word of a command cannot be. A step whose words are not what a
    command takes in their place says so, and has no command.
    """

    def full(template: str) -> str:
        return fill(template, evaluator, groups)

    def made(name: str, value: Json) -> tuple[str, Json]:
        return name, full(value) if isinstance(value, str) else value

    def step(raw: Step) -> Step:
        makes = (made(name, value) for name, value in raw.makes)
        known = tuple((name, value) for name, value in makes if not (isinstance(value, str) and NOT_KNOWN in value))
        argv, text = tuple(map(full, raw.argv)), full(raw.text)
        if not any(NOT_KNOWN in word for word in argv) and (why := arguments.fault(raw.argv, argv, full)):
            argv, text, known = (), say("Not run: {why}. {text}", why=why, text=text).strip(), ()
        return replace(raw, argv=argv, text=text, makes=known, when=())

    steps = tuple(step(raw) for raw in fix.steps if all_hold(raw.when, evaluator) is True)
    if any(NOT_KNOWN in word for item in steps for word in item.argv):
        return None
    undo = full(fix.undo)
    return Fix(full(fix.title), steps, fix.when, "" if NOT_KNOWN in undo else undo)


def all_hold(conditions: Sequence[str], evaluator: Evaluator) -> bool | CannotJudge:
    """Whether all hold. One false condition settles it even where another is unread."""
    pending: CannotJudge | None = None
    for condition in conditions:
        try:
            if not evaluate(condition, evaluator):
                return False
        except CannotJudge as unread:
            pending = pending or unread
    return pending or True

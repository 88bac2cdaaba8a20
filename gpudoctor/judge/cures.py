"""The fixes of a page written out for one machine: those that apply, the ones known to apply first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from gpudoctor.expression import NOT_KNOWN, Evaluator, Facts, Mentioned, evaluate, fill
from gpudoctor.language import say
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import replace
from gpudoctor.model.pattern import pattern
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
        if not any(NOT_KNOWN in word for word in argv) and (why := fault(raw.argv, argv, full)):
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


# ---- Words of commands that are filled from facts ----
# Each matches the grammar of its place, or the command is not offered. A fact is what somebody else wrote: the name
# of a package is in its metadata, a path in a report. A page's template says where it stands in the command; what
# does not fit there (an option, a URL, a second command) never becomes a word.

_HOLE = pattern(r"\{([^{}]+)\}")
_QUOTED = pattern(r"'([^']*)'|\"([^\"]*)\"")
_HIDDEN = pattern(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UPWARDS = pattern(r"(?:^|[/\\])\.\.(?:[/\\]|$)")
_SHELL = pattern(r"[A-Za-z0-9_.:/@%+=,-]*")

_PATH = pattern(r"/[^/].*|/|[A-Za-z]:[\\/].*|\\\\[^\\].*")
_PROGRAM = pattern(r"/[^/].*|[A-Za-z]:[\\/].*|[A-Za-z][A-Za-z0-9._+-]*")
_SPECIFIER = r"(?:===?|[<>~!]=|[<>=])\s?[\w.+!*-]+"
_REQUIREMENT = pattern(
    rf"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[[\w.-]+(?:,[\w.-]+)*\])?(?:{_SPECIFIER}(?:,\s?{_SPECIFIER})*(?:=[\w.*]+)?)?"
)
_PACKAGE = pattern(r"[A-Za-z0-9][A-Za-z0-9.+_:~^*-]*(?:=[A-Za-z0-9.+_:~^*-]+)?")
_URL = pattern(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[\w.+~%-]*)*")
_GPU = pattern(r"\d{1,4}|(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?|(?:GPU|MIG)-[\w/-]+|[A-Z]{2,}")
_NUMBER = pattern(r"\d+(?:\.\d+)?")
_HOST = pattern(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?")
_PLAIN = pattern(r"[^\s\-;&|`$<>(){}'\"\\*?!#/~][^\s;&|`$<>(){}'\"\\*?!#]*")
_VALUE = pattern(r"--?[A-Za-z][\w-]*=[^\s;&|`$<>(){}'\"\\*?!#]+")

_MANAGERS = ("apt-get", "apt", "dnf", "yum", "microdnf", "zypper", "pacman", "ubuntu-drivers", "winget")
_INSTALLERS = ("pip", "pip3", "uv", "conda", "mamba", "micromamba")


def fault(templates: Sequence[str], words: Sequence[str], filled: Callable[[str], str]) -> str:
    """Why these words, filled into the templates, are no command to run; empty where they are one.

    `filled` is what fills a template.
    """
    first = _program(templates)
    name = _name(words, first)
    for place, (template, word) in enumerate(zip(templates, words, strict=True)):
        holes = _HOLE.findall(template)
        if all(_is_of_the_page(hole, filled) for hole in holes):
            continue
        shown = repr(word[:60])
        if _HIDDEN.search(word):
            return say("{word} holds characters that do not show", word=shown)
        if name in ("sh", "bash") and place > first:
            values = (filled(f"{{{hole}}}") for hole in holes if not _is_of_the_page(hole, filled))
            if spoilt := next((value for value in values if not _SHELL.fullmatch(value)), ""):
                return say("{word} is more than one word to a shell", word=repr(spoilt[:60]))
            continue
        what, grammar = _wanted(name, template, words[place - 1] if place > first else "", program=place == first)
        if not grammar.fullmatch(word) or _UPWARDS.search(word):
            return say("{word} is no {what}", word=shown, what=say(what))
    return ""


def _wanted(name: str, template: str, before: str, *, program: bool) -> tuple[str, re.Pattern[str]]:
    """What stands in that place of the command of that program, and its grammar."""
    if program:
        return "program by its absolute path", _PROGRAM
    if template.startswith("https://"):
        return "https address", _URL
    if before in ("--python", "-p", "--prefix") or template.startswith("/"):
        return "absolute path", _PATH
    if template.startswith("-"):
        return "value of an option", _VALUE
    if name in _INSTALLERS:
        return "package name or version (PEP 508, PEP 440)", _REQUIREMENT
    if name in _MANAGERS:
        return "package name of the system", _PACKAGE
    if name == "nvidia-smi":
        return ("GPU's number, address or UUID", _GPU) if before in ("-i", "--id") else ("number", _NUMBER)
    if name == "ssh":
        return "host name", _HOST
    if template.startswith("{") and template.endswith("/torch"):
        return "absolute path", _PATH
    return "plain word", _PLAIN


def _program(templates: Sequence[str]) -> int:
    """The place of the program behind ``env NAME=VALUE -u NAME`` and ``sudo``."""
    place = 0
    while place < len(templates) - 1 and (
        templates[place] in ("env", "sudo", "-u") or re.match(r"[A-Z_]+=", templates[place])
    ):
        place += 2 if templates[place] == "-u" else 1
    return place


def _name(words: Sequence[str], first: int) -> str:
    """What is run: ``pip`` of ``python -m pip`` as well."""
    if tuple(words[first + 1 : first + 2]) == ("-m",) and len(words) > first + 2:
        return words[first + 2]
    return PurePath(words[first]).name if words else ""


def _is_of_the_page(hole: str, filled: Callable[[str], str]) -> bool:
    """Whether what fills the hole is one of the page's own words, so that a fact chose among them at most."""
    value = filled(f"{{{hole}}}")
    inner, mark, otherwise = hole.partition("|")
    literals = {single or double for single, double in _QUOTED.findall(inner)}
    return value in literals or (bool(mark) and value == otherwise.strip().strip("'"))

"""The fixes of a page written out for one machine: those that apply, the ones known to apply first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.rule import SOLVED, Fix, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.expression import HOLE, NOT_KNOWN, Evaluator, Facts, UnreadAsAbsent, evaluate, fill
from gpudoctor.diagnosis.rulebook.compiled import setups

Offer = tuple[int, Fix]
"""A fix as it would be done here, and how far it is from being known to apply: see `_doubt`."""


def applicable_fixes(
    fixes: Sequence[Fix], facts: Facts, evaluator: Evaluator, groups: Mapping[str, str] | None = None
) -> list[Offer]:
    """(doubt, fix) of each fix not known to be inapplicable whose commands can be written out, surest first, each once.

    The doubt is 0 where its `when` holds, 1 where it holds if unread counts as absent, 2 where it is open. A fix that
    names a setup page is replaced by the options of that page; one that the solver works out stays. `groups` are what
    the sign's pattern captured.
    """
    found: list[Offer] = []
    for fix in fixes:
        doubt = _doubt(fix.when, facts, evaluator)
        if doubt is None:
            continue
        if fix.setup:
            found += ((max(doubt, own), cure) for own, cure in _setup_fixes(fix, facts.snapshot, evaluator, groups))
        elif written := _filled_fix(fix, evaluator, groups):
            found.append((doubt, written))
    ordered = sorted(found, key=lambda offer: offer[0])
    alike = [(fix.title, fix.steps, fix.setup) for _, fix in ordered]
    return [offer for place, offer in enumerate(ordered) if alike[place] not in alike[:place]]


def setup_options(page_id: str, snapshot: Snapshot, evaluator: Evaluator) -> list[Offer]:
    """(doubt, fix) of that setup page's fixes which may apply, surest first; see `applicable_fixes`."""
    from gpudoctor.diagnosis.knowledge.setup_facts import with_setup_facts

    facts = Facts(with_setup_facts(snapshot))
    with _with_facts(facts, evaluator):
        return applicable_fixes(setups()[page_id].fixes, facts, evaluator)


def _setup_fixes(
    fix: Fix, snapshot: Snapshot, evaluator: Evaluator, groups: Mapping[str, str] | None
) -> Iterator[Offer]:
    """(doubt, fix) of each option of the setup page that a fix names, titled by both; the solver's fix as it is."""
    if fix.setup in SOLVED:
        yield 0, fix
        return
    for doubt, cure in setup_options(fix.setup, snapshot, evaluator):
        title = say("{title} ({way})", title=fill(fix.title, evaluator, groups), way=cure.title)
        yield doubt, replace(cure, title=title)


@contextmanager
def _with_facts(facts: Facts, evaluator: Evaluator) -> Iterator[None]:
    """Context manager in which the evaluator reads these facts; its former ones are restored afterwards."""
    outer, evaluator.names = evaluator.names, facts
    try:
        yield
    finally:
        evaluator.names = outer


def _doubt(conditions: Sequence[str], facts: Facts, evaluator: Evaluator) -> int | None:
    """0: the conditions hold; 1: they hold if unread counts as absent; 2: open; None: they are false."""
    holds = all_hold(conditions, evaluator)
    if not isinstance(holds, CannotJudge):
        return 0 if holds else None
    with _with_facts(UnreadAsAbsent(facts.snapshot, facts.each, facts.index), evaluator):
        return 1 if all_hold(conditions, evaluator) is True else 2


def _filled_fix(fix: Fix, evaluator: Evaluator, groups: Mapping[str, str] | None) -> Fix | None:
    """The fix with its holes filled; None where a word of a command is not known, or none of its steps applies.

    A step whose words would not be a safe command becomes text that says so.
    """

    def filled(template: str) -> str:
        """The template with its holes filled."""
        return fill(template, evaluator, groups)

    def filled_step(raw: Step) -> Step:
        """The step filled in, effects with unknown values dropped; an unsafe command becomes text that says why."""
        makes = ((name, filled(value) if isinstance(value, str) else value) for name, value in raw.makes)
        known = tuple((name, value) for name, value in makes if not (isinstance(value, str) and NOT_KNOWN in value))
        argv, text = tuple(map(filled, raw.argv)), filled(raw.text)
        if not any(NOT_KNOWN in word for word in argv) and (why := command_fault(raw.argv, argv, filled)):
            argv, text, known = (), say("Not run: {why}. {text}", why=why, text=text).strip(), ()
        return replace(raw, argv=argv, text=text, makes=known, when=())

    steps = tuple(filled_step(raw) for raw in fix.steps if all_hold(raw.when, evaluator) is True)
    if (fix.steps and not steps) or any(NOT_KNOWN in word for item in steps for word in item.argv):
        return None
    undo = filled(fix.undo)
    return Fix(filled(fix.title), steps, fix.when, "" if NOT_KNOWN in undo else undo)


def all_hold(conditions: Sequence[str], evaluator: Evaluator) -> bool | CannotJudge:
    """Whether all conditions hold: False where one is false, even if others are open; else `CannotJudge` if one is.

    The `CannotJudge` is returned, not raised.
    """
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


def command_fault(templates: Sequence[str], words: Sequence[str], fill_template: Callable[[str], str]) -> str:
    """Why these words, filled into the templates, are not a safe command: the first fault; empty where there is none.

    Only words that a fact got into are checked, not what the page itself says.
    """
    first = _program_index(templates)
    name = _program_name(words, first)
    for place, (template, word) in enumerate(zip(templates, words, strict=True)):
        holes = HOLE.findall(template)
        if all(_is_literal_of_page(hole, fill_template) for hole in holes):
            continue
        shown = repr(word[:60])
        if _HIDDEN.search(word):
            return say("{word} holds characters that do not show", word=shown)
        if name in ("sh", "bash") and place > first:
            values = (fill_template(f"{{{hole}}}") for hole in holes if not _is_literal_of_page(hole, fill_template))
            if spoilt := next((value for value in values if not _SHELL.fullmatch(value)), ""):
                return say("{word} is more than one word to a shell", word=repr(spoilt[:60]))
            continue
        what, grammar = _word_grammar(name, template, words[place - 1] if place > first else "", program=place == first)
        if not grammar.fullmatch(word) or _UPWARDS.search(word):
            return say("{word} is no {what}", word=shown, what=say(what))
    return ""


def _word_grammar(name: str, template: str, previous: str, *, program: bool) -> tuple[str, re.Pattern[str]]:
    """What a word in that position of the program's command must be: its name, and the pattern it must match."""
    if program:
        return "program by its absolute path", _PROGRAM
    if template.startswith("https://"):
        return "https address", _URL
    if previous in ("--python", "-p", "--prefix") or template.startswith("/"):
        return "absolute path", _PATH
    if template.startswith("-"):
        return "value of an option", _VALUE
    if name in _INSTALLERS:
        return "package name or version (PEP 508, PEP 440)", _REQUIREMENT
    if name in _MANAGERS:
        return "package name of the system", _PACKAGE
    if name == "nvidia-smi":
        return ("GPU's number, address or UUID", _GPU) if previous in ("-i", "--id") else ("number", _NUMBER)
    if name == "ssh":
        return "host name", _HOST
    if template.startswith("{") and template.endswith("/torch"):
        return "absolute path", _PATH
    return "plain word", _PLAIN


def _program_index(templates: Sequence[str]) -> int:
    """Index of the word that is the program, after ``env``, assignments and ``sudo``; at most the last word's."""
    place = 0
    while place < len(templates) - 1 and (
        templates[place] in ("env", "sudo", "-u") or re.match(r"[A-Z_]+=", templates[place])
    ):
        place += 2 if templates[place] == "-u" else 1
    return place


def _program_name(words: Sequence[str], first: int) -> str:
    """The name, without folder, of the program at index `first`; of ``python -m pip`` pip; empty without words."""
    if tuple(words[first + 1 : first + 2]) == ("-m",) and len(words) > first + 2:
        return words[first + 2]
    return PurePath(words[first]).name if words else ""


def _is_literal_of_page(hole: str, fill_template: Callable[[str], str]) -> bool:
    """Whether the hole's value is one of the page's own quoted texts or its fallback, so that no fact gets in."""
    value = fill_template(f"{{{hole}}}")
    inner, mark, otherwise = hole.partition("|")
    literals = {single or double for single, double in _QUOTED.findall(inner)}
    return value in literals or (bool(mark) and value == otherwise.strip().strip("'"))

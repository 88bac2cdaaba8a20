"""What stands under ``rules/`` as values: a rule page, a setup page, and a table as a person reads it.

`gpudoctor.diagnosis.rulebook` loads the pages, `gpudoctor.diagnosis.knowledge` the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import frozen

Severity = Literal["error", "warning", "info"]
Role = Literal["cause", "symptom"]
Confidence = Literal["certain", "likely", "possible"]
Scope = Literal["machine", "cluster"]
"""What a page is judged on: the facts of one machine, or those folded from the machines of a job or a fleet."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("certain", "likely", "possible")
Prevalence = Literal["common", "usual", "rare"]
PREVALENCES: tuple[Prevalence, ...] = ("common", "usual", "rare")
"""How often a cause is behind reports that look like it: of 200 labelled ones at least 4, some, next to none."""
LAYERS = (
    "host",
    "driver",
    "gpu",
    "env",
    "container",
    "wsl",
    "torch",
    "cuda",
    "cudnn",
    "nccl",
    "ext",
    "frameworks",
    "workload",
    "expect",
)
"""From the ground up: a fault in a lower layer explains symptoms in a higher one."""


@frozen
class Step:
    """One command or instruction of a fix. `argv` is empty where a person must act, and `text` says how.

    `makes` are the facts that hold once it is done, by name: ``driver.module_loaded``, true. A value is JSON, or
    ``{"absent": WHY}``. Where its own `when` is not known to hold, the fix goes without it.
    """

    argv: tuple[str, ...] = ()
    text: str = ""
    needs: tuple[str, ...] = ()
    touches: str = "nothing"
    makes: tuple[tuple[str, Json], ...] = ()
    when: tuple[str, ...] = ()


@frozen
class Fix:
    """A cure: steps in order, offered where `when` is not known to be false.

    `setup` names what is set up instead of steps that stand on the page: ``driver``, ``torch``. The steps are then
    those that set it up on this machine.
    """

    title: str
    steps: tuple[Step, ...]
    when: tuple[str, ...] = ()
    undo: str = ""
    setup: str = ""


@frozen
class Part:
    """One part of a sign's pattern; the next may begin `reach` characters behind it. The rest is as in `Sign`."""

    match: str
    required_words: tuple[tuple[str, ...], ...] = ()
    goes_on: bool = True
    reach: int = 0


@frozen
class Sign:
    """A pattern of machine-printed text that speaks for the rule.

    A conclusive sign is proof by itself; a suggestive one makes the cause possible, and likely where its `when` holds
    or where a second sign agrees on another line. A sign whose `when` or page-wide `unless` contradicts does not count;
    one that is conclusive is only suggestive while a condition of its `when` that asserts something is open.
    `severity` is this sign's own; empty means the page's. `fixes` are the titles of the page's cures that mend what it
    shows; empty means all of them.
    `required_words` are sets of lower-case words: every match contains a word of each. `goes_on` is false where no
    match goes over the end of a line. `ways` are its alternatives, each with its parts that may stand pages apart;
    empty where all is one.
    """

    match: str
    conclusive: bool
    when: tuple[str, ...] = ()
    finding: str = ""
    severity: Severity | Literal[""] = ""
    fixes: tuple[str, ...] = ()
    required_words: tuple[tuple[str, ...], ...] = ()
    goes_on: bool = True
    ways: tuple[tuple[Part, ...], ...] = ()

    @property
    def asserted(self) -> tuple[str, ...]:
        """The conditions of `when` that must be known to hold: all but those that only deny (``not ...``)."""
        return tuple(condition for condition in self.when if not condition.startswith("not "))


@frozen
class Proof:
    """One way to know the cause: where `when` and the page's own conditions hold, and none of `unless`.

    `finding`, `confidence` and `severity` are this way's own; empty means the page's. `fixes` are as in `Sign`. What it
    adds to the sentence is a `Detail`.

    On a page with `each`, one that is `once` tells of the machine as a whole, not of a row: it is tried where no row
    gives a finding, and without the page's `when`, which is about a row.
    """

    when: tuple[str, ...]
    finding: str = ""
    confidence: Confidence | Literal[""] = ""
    severity: Severity | Literal[""] = ""
    once: bool = False
    fixes: tuple[str, ...] = ()


@frozen
class Detail:
    """What is added to a sentence of the page where `when` is known to hold: to the finding, or to `why`."""

    when: tuple[str, ...]
    says: str
    of: Literal["finding", "why"] = "finding"


@frozen
class Rule:
    """One page of the rulebook. Conditions are expressions over facts; see `gpudoctor.diagnosis.expression`.

    Where the page has `proofs`, one of them must hold beside `when`; the first that does gives the sentence.

    `several`: the cause comes about in several ways, of which `when` is one; where that is false, the signs of the
    others count as before.
    """

    id: str
    layer: str
    title: str
    severity: Severity
    role: Role
    finding: str
    why: str
    misses: str
    sources: tuple[str, ...]
    confidence: Confidence = "certain"
    prevalence: Prevalence = "usual"
    sound: bool = False
    several: bool = False
    each: str = ""
    subjects: tuple[str, ...] = ()
    """Lists of rows, or of mappings, that a finding is about; with `each` it is about the row."""
    explains: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    details: tuple[Detail, ...] = ()
    signs: Sequence[Sign] = ()
    fixes: Sequence[Fix] = ()
    confirm: str = ""
    """How to be sure, mostly a line for the shell."""
    confirm_windows: str = ""
    """The same for PowerShell; empty where `confirm` runs there as it is."""
    origin: str = ""
    scope: Scope = "machine"
    pages: str = ""
    """The folder of a site's own pages, or the page, that was given; empty for ours."""


@frozen
class Case:
    """A rule's own proof: facts or a pasted report, and what the rule must say of them."""

    rule: str
    name: str
    facts: Mapping[str, object]
    report: str = ""
    finds: str | None = None
    passes: bool = False
    unjudged: str | None = None
    scope: Scope = "machine"
    origin: str = ""
    """The file of the page."""


# ---- Setup pages ----
# How one thing is set up on every system, in cures that rule pages share.

SOLVED = ("torch", "torch same", "other python", "companions", "nvidia wheels", "torch again", "triton")
"""What a rule page may name as what is set up that the solver works out; the rest stands on pages of its own."""


@frozen
class SetupPage:
    """What is set up (`id`: ``driver``), by which fixes, and the documents that the steps are from."""

    id: str
    title: str
    fixes: tuple[Fix, ...]
    sources: tuple[str, ...]
    origin: str = ""


@frozen
class SetupCase:
    """A page's own proof: on these facts the first fix offered is that one (empty: none), and so its first command.

    `has` are commands that the fix runs after it, in that order.
    """

    page: str
    name: str
    facts: Mapping[str, object]
    offers: str
    argv: tuple[str, ...] = ()
    has: tuple[tuple[str, ...], ...] = ()


# ---- Tables ----
# As a person reads one: what it knows, from where, as of when.


@frozen
class Table:
    """What a table is about, its sources, the day they were last compared with it, and its keys by heading.

    `tries` are keys in other spellings that it takes as well.
    """

    name: str
    about: str
    checked: str
    sources: tuple[str, ...]
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    tries: tuple[str, ...]


@frozen
class Entry:
    """One row: its title, what it says under which label, and its own source where it has one."""

    title: str
    lines: tuple[tuple[str, str], ...]
    source: str = ""


@frozen
class Entries:
    """The rows that answer for a key; `note` says how the key was understood where that is not plain."""

    key: str
    entries: tuple[Entry, ...]
    note: str = ""

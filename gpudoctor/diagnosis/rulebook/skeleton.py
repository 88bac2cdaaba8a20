"""A new page: everything a page needs, with blanks to fill, and what belongs into each beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpudoctor.core.errors import UsageError
from gpudoctor.core.rule import LAYERS, Rule
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.rulebook.check import BLANK, is_id

_PAGE = """\
# What to look for, what to say of it, how it is cured, and the cases that prove it. Every blank begins {blank} and the
# page is refused while one is left. `gpudoctor explain driver.missing` shows a finished page, `gpudoctor explain
# driver.version` what a fact means and which rules read it.

id = "{id}"
title = "{blank} the problem as a heading, without values"

# error: GPU work stops or comes out wrong. warning: it costs speed, or will bite later. info: worth knowing.
# Sound machines must give no error: in doubt, a warning.
severity = "warning"

# cause, or symptom: what has a cause elsewhere and is shown under it.
role = "cause"

# How often it is behind reports that look like it: common, usual or rare. Of equal guesses the commoner comes first.
# prevalence = "rare"

# Other rules whose findings are mere consequences of this one: ["torch.cuda-unavailable"]
explains = []

# To judge each GPU (or each row of another group) by itself:
# each = "gpu"

# Otherwise, where it is about some GPUs, ports, ranks or hosts and not the whole machine: which.
# subjects = ["[g for g in gpu if g.utilization > 90]"]

# A name for what the page asks or says more than once, for its conditions and its sentences:
# let.busy = "[g.index for g in gpu if g.utilization > 90]"

# All must hold; one that is false settles it. A fact that nobody could read leaves the page unjudged, never passed; one
# that is known not to be there makes every comparison false (ask absent(x) or present(x)).
# Versions are ordered only so: version(driver.version) < "550.54". Rows: any(g.mig for g in gpu).
# A line of the log or paste: says(text, 'a pattern').
when = ["{blank} a condition over facts"]

# Any one that holds: never found, whatever else is seen.
unless = []

# Where the cause is known in several ways: a line each, of which one must hold beside `when` (which may then be left
# out). Each that holds adds what it `says` to the sentence; the first that does may give a whole `finding` or a
# `confidence` in place of the page's.
# proof = [
#   {{ when = ["gpu.count == 0"], finding = "No GPU is left" }},
#   {{ when = ["any(g.mig for g in gpu)"], says = "; a GPU is divided by MIG" }},
# ]

# What else is known to hold, and proves nothing, is added likewise, or to `why` (of = "why"). No `if` in a sentence.
# detail = [
#   {{ when = ["any(g.mig for g in gpu)"], says = "; a GPU is divided by MIG" }},
# ]

# Where `when` is but one of several ways to come true, so that its being false says nothing against the signs:
# several = true

# What is, with the values that clash: "driver.version is read so: {{driver.version}}, and {{gpu.count | some}} GPUs".
finding = "{blank} the sentence to say, with facts in braces"

why = "{blank} what follows from it, and why: two or three calm sentences"
misses = "{blank} what this page will not catch, and what it may take for it"
sources = ["{blank} where this is documented; for a number, with the date it was read"]

# A command whose output would settle it, where it is not certain.
# confirm = "nvidia-smi -q"

# Machine-printed text that speaks for it (regular expression; case does not matter). conclusive: proof by itself.
# suggestive: a second sign must agree, or the sign's own `when` hold.
# [[sign]]
# match = 'the words (?P<what>\\w+) failed'
# weight = "suggestive"
# finding = "The words of {{what}} failed"

[[fix]]
title = "{blank} what to do, in a few words"
# A command is a list of words, never a shell line. needs: root, reboot, network, downtime. touches: nothing,
# environment, system, hardware. `text` says what a person should know, or do where there is no command.
steps = [
  {{ text = "{blank} what to do first", needs = [], touches = "nothing" }},
  # {{ argv = ["systemctl", "restart", "some-service"], needs = ["root"], touches = "system" }},
]
# undo = "the command that takes it back"

# Three cases at least. Facts are values, {{ absent = "why" }} (known not to be there) or {{ unread = "why" }} (could
# not look); rows are lists: gpu = [{{ name = "NVIDIA L4" }}]. In place of facts, or beside them, what somebody pasted:
# report = '''the paste'''

[[case]]
name = "it fires"
facts = {{ "{blank} a fact" = "{blank} its value where something is wrong" }}
finds = "{blank} the finding's sentence, word for word"

[[case]]
name = "a near miss"
facts = {{ "{blank} a fact" = "{blank} the nearest value that is still right" }}
passes = true

[[case]]
name = "a fact is missing"
facts = {{ "{blank} a fact" = {{ unread = "not asked" }} }}
unjudged = "{blank} the fact's name"
"""


def page(rule_id: str) -> str:
    """The text of a new page for that id, with blanks to fill in."""
    return _PAGE.format(id=rule_id, blank=BLANK)


def place(rule_id: str, layer: str | None, folder: Path, rules: Sequence[Rule]) -> Path:
    """The path of a new page under `folder`; raises `UsageError` for a bad or taken id, or an unclear layer.

    `rules` are the shipped ones: they tell a topic's layer and which ids are taken.
    """
    if not is_id(rule_id):
        raise UsageError(f"{rule_id!r} is no name for a rule: <topic>.<what-is>, in lower case, as in site.no-quota")
    known = {rule.id: f"gpudoctor explain {rule.id} shows it" for rule in rules}
    taken = known.get(rule_id) or next((str(path) for path in _pages_in(folder) if path.stem == rule_id), None)
    if taken:
        raise UsageError(f"there is a rule {rule_id} already: {taken}")
    return folder / (layer or _layer(rule_id, rules)) / f"{rule_id}.toml"


def _pages_in(folder: Path) -> Iterator[Path]:
    """The pages under the folder; none where it does not exist."""
    return folder.rglob("*.toml") if folder.is_dir() else iter(())


def _layer(rule_id: str, rules: Sequence[Rule]) -> str:
    """The layer of the id's topic; raises `UsageError` where it is not clear."""
    topic = rule_id.partition(".")[0]
    layers = {rule.layer for rule in rules if rule.id.partition(".")[0] == topic} or {topic} & set(LAYERS)
    if len(layers) != 1:
        raise UsageError(f"which layer does {rule_id} belong to? Say --layer, one of {', '.join(LAYERS)}")
    return layers.pop()


def next_steps(path: Path, folder: Path) -> str:
    """Text with the commands to run after the page is filled in; `folder` is what ``--rules`` takes."""
    ours = folder.resolve() == pages.home().resolve()
    test = ["gpudoctor", "rules", "test"] + ([] if ours else [str(folder)])
    check = ["gpudoctor", "check"] + ([] if ours else ["--rules", str(folder)])
    intro = f"{path} is written. Fill in its blanks, which begin {BLANK!r}, then type:"
    return "\n".join([intro, *(f"  $ {shlex.join(words)}" for words in (test, check))])

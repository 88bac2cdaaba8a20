"""Documents with canaries, every view of them that another person may be given, and what of a canary is seen there."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Any, get_args

from gpudoctor.app import pipeline, reading
from gpudoctor.app.arguments.options import FORMS
from gpudoctor.app.commands.reports import rendered
from gpudoctor.app.redaction import Redactor
from gpudoctor.core.diagnosis import Diagnosis, from_json
from gpudoctor.core.fleet import Outcome
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.compare import compare
from gpudoctor.views import diff
from gpudoctor.views import document as page
from tests.app.redaction.canaries import Canary, some
from tests.cluster.fleet_documents import document, folded
from tests.fuzz.seeds import seeds
from tests.generated.changes import broken
from tests.generated.sound import sound

_RUN = 6
"""Characters of a token that are recognised."""


class Pipe:
    """A stream without a terminal behind it."""

    def isatty(self) -> bool:
        return False


def shown(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Each view of it by name, shared as the commands share it; the JSON, which holds most, first."""
    told = Redactor(this_machine=False)(diagnosis)
    for form in sorted(FORMS, key=lambda form: form != "json"):
        yield form, rendered(told, form, Pipe())  # type: ignore[arg-type]
    yield "snapshot", page.facts(told.snapshot, "1")
    if told.fleet:
        from gpudoctor.views import fleet

        yield "fleet", fleet.render(told, told.fleet)


def compared(a: Diagnosis, b: Diagnosis, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The same of a comparison."""
    here, there = (pipeline.diagnose(side.snapshot, BOOK) for side in (a, b))
    difference, sides = Redactor(this_machine=False)((compare(here, there), names))
    yield "diff --json", diff.document(difference)
    yield "diff", diff.render(difference, sides)


def seen(canary: Canary, view: str, text: str) -> str:
    """What of it is to be seen; nothing where it is hidden. `text` is of `plain`."""
    for part in canary.parts:
        if part.lower() in text:
            return part
    if canary.token and view in ("json", "diff --json"):
        token = canary.token.lower()
        for at in range(len(token) - _RUN + 1):
            if token[at : at + _RUN] in text:
                return token[at : at + _RUN]
    return ""


def plain(text: str) -> str:
    """As it reads: without the ends of lines, and what HTML and Markdown put before signs."""
    return re.sub(r"[\s\\\u200b]|\x1b\[[\d;]*m", "", html.unescape(text)).lower()


_CANARIES = 18
_COMPARED = 10
"""Every so many documents one is compared with the one before."""


@dataclass
class Figures:
    """`leaks` tell the document's number, the view, the canary, and what of it was to be seen."""

    documents: int = 0
    canaries: int = 0
    views: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)


def run(count: int, seed: int = 1, first: int = 0) -> Figures:
    """Plant, share, look; the same for the same seed and number."""
    figures = Figures()
    before: Diagnosis | None = None
    for number in range(first, first + count):
        random = Random(f"{seed} {number}")
        canaries = some(random, _CANARIES)
        diagnosis = planted(random, canaries)
        views = list(shown(diagnosis))
        if before and not (before.fleet or diagnosis.fleet) and number % _COMPARED == 0:
            views += compared(before, diagnosis, (canaries[0].text, canaries[1].text))
        for view, text in views:
            read = plain(text)
            figures.views[view] += 1
            for canary in canaries:
                if found := seen(canary, view, read):
                    at = read.find(found.lower())
                    figures.leaks.append(
                        f"{number} {view}: {found!r} of {canary.text!r} in ...{read[max(0, at - 60) : at + 60]}..."
                    )
        figures.documents += 1
        figures.canaries += len(canaries)
        before = diagnosis
    return figures


BOOK = rulebook.load()
_FIXED = frozenset(
    {
        *("schema", "kind", "level", "verdict", "severity", "role", "confidence", "id", "layer", "touches", "needs"),
        *("outcome", "version", "verify", "passed", "explains", "fact", "subject", "short", "rules"),
    }
)
"""Keys whose values are words of ours, which no document of ours has otherwise."""
_NAMED = frozenset({"facts", "timings_ms", "env"})
_LONGEST_LIST = 6
_WHOLE = 20
"""One of so many documents is planted whole."""


@lru_cache(maxsize=1)
def documents() -> list[str]:
    """Diagnoses of generated machines, simulated ones, pages' cases, pasted reports, and fleets, as their JSON."""
    found = [json.dumps(_brief(pipeline.diagnose(one, BOOK).to_json())) for one in _snapshots()]
    hosts = [document(f"n{number:02}") for number in range(1, 4)]
    return [*found, *([json.dumps(_brief(folded(hosts).to_json()))] * (len(found) // 20))]


def _snapshots() -> Iterator[Snapshot]:
    yield from (one.snapshot for one in islice(sound(11), 20))
    yield from (one.snapshot for one in islice(broken(11, 1), 40))
    texts = [*seeds().snapshots[::40], *seeds().snapshots[-3:], *seeds().reports[::40], *seeds().reports[-30::4]]
    yield from (reading.snapshot_of(text) for text in texts)


def _brief(raw: Any) -> Any:
    """The same with the first few of every list: many alike prove no more."""
    if isinstance(raw, dict):
        return {key: _brief(value) for key, value in raw.items()}
    return [_brief(value) for value in raw[:_LONGEST_LIST]] if isinstance(raw, list) else raw


def planted(random: Random, canaries: list[Canary]) -> Diagnosis:
    """One of the documents, each canary somewhere in it, most in several places."""
    raw = json.loads(random.choice(documents()))
    if random.randrange(_WHOLE):
        raw = _sliver(raw, random)
    slots = list(_slots(raw, ""))
    random.shuffle(slots)
    for number, (holder, key) in enumerate(slots[: 3 * len(canaries)]):
        _put(holder, key, _worded(canaries[number % len(canaries)].text, random))
    _put_beside(raw, canaries, random)
    return from_json(raw)


def _sliver(raw: Any, random: Random) -> Any:
    """A few facts, findings and reasons of it: another few each time."""
    facts = random.sample(sorted(raw["facts"]), min(24, len(raw["facts"])))
    few = {key: random.sample(raw[key], min(3, len(raw[key]))) for key in ("findings", "unjudged", "passed")}
    return {**raw, **few, "facts": {name: raw["facts"][name] for name in facts}}


def _slots(raw: Any, under: str) -> Iterator[tuple[Any, Any]]:
    """Every place that holds a text."""
    entries = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in entries:
        about = key if isinstance(key, str) else under
        if about in _FIXED and not _is_fact(value):
            continue
        if isinstance(value, str):
            if value not in get_args(Outcome):
                yield raw, key
        else:
            yield from _slots(value, about)


def _is_fact(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _put(holder: Any, key: Any, text: str) -> None:
    """Behind what is there, so that what is judged stays; a list's text stands alone."""
    holder[key] = f"{holder[key]} {text}" if isinstance(holder, dict) and holder[key] else text


def _put_beside(raw: Any, canaries: list[Canary], random: Random) -> None:
    """Where a document may hold a text, and this one does not: names of facts and probes, lines of a log, variables."""
    texts = [canary.text for canary in canaries]
    facts, pick = raw["facts"], iter(random.choices(texts, k=12))
    raw["timings_ms"][f"probe.{next(pick)}"] = 1.0
    facts[f"strange.{next(pick)}"] = {"value": True, "source": next(pick)}
    facts["env.NOTE"] = {"value": next(pick), "source": "the environment"}
    facts["strange.list"] = {"value": [next(pick), {next(pick): next(pick)}], "source": "x"}
    facts["strange.gone"] = {"absent": next(pick)}
    facts["strange.unread"] = {"unread": next(pick)}
    lines = facts.get("text") if isinstance(facts.get("text"), list) else []
    facts["text"] = [*lines, *({"line": {"value": text, "source": "line 1"}} for text in texts)]
    facts["strange_group"] = [{next(pick).partition("\n")[0]: {"value": next(pick), "source": "x"}}]
    raw["unjudged"].append({"id": "torch.cpu-build", "because": next(pick)})


def _worded(text: str, random: Random) -> str:
    """The canary as it is, or in one of the disguises that are seen through."""
    way = random.randrange(12)
    if way == 0 and "\\" not in text and "%" not in text:
        return json.dumps({"said": text})
    if way == 1:
        place = random.randrange(len(text))
        return f"{text[:place]}\x1b[1;31m{text[place:]}\x1b[0m"
    if way == 2:
        place = random.randrange(len(text))
        return f"{text[:place]}\u200b{text[place:]}"
    return text

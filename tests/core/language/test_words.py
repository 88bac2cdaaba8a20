"""The program's own words and their Chinese; how Chinese is folded; which language a run speaks."""

import ast
import json
import os
import re
import subprocess
import textwrap
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpudoctor
from gpudoctor.app import cli, demos
from gpudoctor.app.arguments import parse
from gpudoctor.cluster.preflight.pairs import Suspect, Way, sentence
from gpudoctor.core import language
from gpudoctor.core.language import choose_language, speaking, words
from gpudoctor.core.measurement import COUNTERS
from gpudoctor.core.rule import CONFIDENCES
from gpudoctor.core.shipped import own_command
from gpudoctor.core.texts import texts
from gpudoctor.diagnosis.knowledge import explain_tables
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.views import _report, _terminal, html, job
from gpudoctor.views._terminal import WIDTH, fold_wide, has_wide, width, wrapped
from gpudoctor.views.tui.words import summary
from tests.conftest import Program
from tests.processes import free_port

PACKAGE = Path(gpudoctor.__file__).parent
WORDS = words("zh")
HOLE = re.compile(r"\{(\w+(?:[!:][^{}]*)?)\}")
_TITLES = [demo.title for demo in demos.every()]
"""Of the recorded machines that ship."""


@lru_cache(maxsize=1)
def _trees() -> tuple[ast.AST, ...]:
    return tuple(ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py"))


def _said() -> Iterator[str]:
    """The sentences that are written where they are said, or that a variable holds which is said."""
    for tree in _trees():
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        if not any(node.module == "gpudoctor.core.language" for node in imports):
            continue
        held: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                held.setdefault(node.targets[0].id, []).append(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                first = node.args[0]
                for said in held.get(first.id, []) if isinstance(first, ast.Name) else [first]:
                    yield from _sentences(said)


def _shown() -> Iterator[str]:
    """The texts of the interface that it says where they are drawn: what keys do, labels and badges, messages."""
    for path in (PACKAGE / "views" / "tui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "Binding" and not any(one.arg == "group" for one in node.keywords):
                yield from _sentences(node.args[2])
                yield from (word for one in node.keywords if one.arg == "tooltip" for word in _sentences(one.value))
            elif name == "plural":
                yield from (f"{{count}} {word}{end}" for word in _sentences(node.args[1]) for end in ("", "s"))
            elif name in ("labelled", "say", "Search", "Pane"):
                yield from _sentences(node.args[0])
            elif name == "badge":
                yield from (word.partition(" ")[2] for word in _sentences(node.args[1]))


_NO_WORDS = re.compile(r"[^A-Za-z]*|GPU|ECC|CPU|P2P")
"""What has no language."""


def test_every_text_of_the_interface_has_its_chinese() -> None:
    assert {text for text in _shown() if not _NO_WORDS.fullmatch(text)} - set(WORDS) == set()


def _sentences(expression: ast.expr) -> Iterator[str]:
    """The texts that the expression may be: a constant, or one of two by a condition; an empty one is not said."""
    if isinstance(expression, ast.IfExp):
        yield from _sentences(expression.body)
        yield from _sentences(expression.orelse)
    elif isinstance(expression, ast.Constant) and isinstance(expression.value, str) and expression.value:
        yield expression.value


def test_every_sentence_has_its_chinese_with_the_same_holes() -> None:
    said = set(_said())
    assert len(said) > 200
    assert said - set(WORDS) == set()
    assert [one for one in said if sorted(HOLE.findall(WORDS[one])) != sorted(HOLE.findall(one))] == []


@pytest.mark.parametrize(
    "word",
    [
        *CONFIDENCES,
        *_report._VERDICTS.values(),
        *_terminal._MARKS.values(),
        *html._MARKS.values(),
        *COUNTERS.values(),
        *(words for several in job.STATES.values() for words in several),
        *language.VALUE_PHRASES,
        *language.JOBS,
        *job.UNSEEN,
        *job._SIGNALS,
        *(severity.upper() for severity in _report.SEVERITY_COLOURS),
        *_TITLES,
    ],
)
def test_every_word_that_a_report_chooses_has_its_chinese(word: str) -> None:
    assert word in WORDS


def test_every_translation_is_of_a_sentence_that_stands_in_the_program() -> None:
    constants = {node.value for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    constants |= {text.partition(" ")[2] for text in constants if isinstance(text, str)}  # behind a mark: "✗ ERROR"
    constants |= {*_shown(), *(f"{{count}} {word}{end}" for _, word in summary._COUNTED for end in ("", "s"))}
    tables = {text for name in explain_tables.NAMES for text, _ in texts(table(name)["words"])}
    assert set(WORDS) - constants - tables - {*_TITLES} == set()


NOTES = words("zh.notes")
"""Templates of what facts carry: sources, and the reasons why one was not read."""
_NOTE_AT = {"Absent": 0, "Known": 1, "Unread": 0}
"""Which argument is the note."""
_NAMES = {
    *("gpudoctor bench", "nft list ruleset", "scontrol show job", "scontrol show step", "systemctl show {}"),
    *("bind", "case", "connect", "getaddrinfo", "target"),
    *("{}, class 0680", "{}/METADATA, extra {}", "{}/{}/config: {} control"),
    *("{} and {}", "BNB_CUDA_VERSION={} and {}", "{} in {}"),
}
"""Notes that name a command, a system call or a part of a file; and two that join others."""
_ENGLISH = re.compile(r"(?<![\w/.=*$-])[a-z]{2,}(?![\w/.=*-])")
_SAMPLES = ("/x", "7", "line 1", "x")


def _notes(note: ast.expr) -> Iterator[str]:
    """The texts that the expression may be, ``{}`` for each of their holes."""
    if isinstance(note, ast.IfExp):
        yield from _notes(note.body)
        yield from _notes(note.orelse)
    elif isinstance(note, ast.Constant) and isinstance(note.value, str):
        yield note.value
    elif isinstance(note, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in note.values)


def test_every_note_of_a_fact_has_its_chinese_where_it_has_english_words() -> None:
    calls = (node for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Call))
    named = ((node.func.id, node.args) for node in calls if isinstance(node.func, ast.Name))
    at = ((_NOTE_AT[name], arguments) for name, arguments in named if name in _NOTE_AT)
    notes = {note for place, arguments in at for part in arguments[place : place + 1] for note in _notes(part)}
    assert len(notes) > 400
    with speaking("zh"):
        english = [
            note
            for note in notes - _NAMES
            if _ENGLISH.search(note)
            and all(
                language.phrase(text) == text
                for first, other in product(_SAMPLES, repeat=2)
                for text in [note.replace("{}", first, 1).replace("{}", other)]
            )
        ]
    assert english == [], "\n".join(english)


def test_every_note_that_is_translated_stands_in_the_program() -> None:
    nodes = (node.value for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    program = "\n".join(text for text in nodes if isinstance(text, str))
    parts = {template: max(re.split(r"\{\w+\}", template), key=len).strip(" (),;`") for template in NOTES}
    assert [template for template, part in parts.items() if part not in program] == []
    assert [
        template for template in NOTES if not set(HOLE.findall(NOTES[template])) <= set(HOLE.findall(template))
    ] == []


def test_values_that_are_words_of_ours_are_chinese_in_sentences_and_in_evidence(called: Program) -> None:
    for name, words_there, gone in (
        ("fabric-manager", ["driver.fabric_manager = 未安装", "状态为 未安装"], "not installed"),
        ("no-gpus", ["它缺少 驱动的库", "/dev/nvidia0（或另一块 GPU 的）"], "another GPU"),
        ("library-path", ["，而不是", "没有定义它"], "instead of"),
        (
            "stuck-loader",
            ["rank_group[0].who = node07 上的 pid 5037", "rank_group[0].state = 在等 DataLoader"],
            " on node07",
        ),
    ):
        shown = " ".join(called("demo", name, "--lang", "zh").out.split())
        assert [part for part in words_there if part not in shown] == []
        assert gone not in shown


@pytest.mark.parametrize("kind", ["host", "link", "switch"])
@pytest.mark.parametrize("measure", ["reach", "mtu", "loss", "latency", "bandwidth"])
def test_what_was_measured_between_hosts_is_chinese(kind: Any, measure: Any) -> None:
    ways: tuple[Way, ...] = ("from", "to", "both")
    names = {"host": ("n1",), "link": ("n1", "n2"), "switch": ("s1",)}[kind]
    for way, usual, rail, rdma in product(ways, (None, 9.4), ("", "mlx5_3"), (False, True)):
        for network in ("", "mlx5_4") if measure == "reach" and rail else ("",):
            suspect = Suspect(kind, names, way, measure, 0.25, usual, 0.2, 4, rail=rail, network=network, rdma=rdma)
            with speaking("zh"):
                assert not _ENGLISH.search(language.worded("suspect.words", sentence(suspect)).replace("mlx5", ""))


def test_every_passage_that_is_translated_stands_in_a_file_that_ships() -> None:
    paths = [PACKAGE / "app/commands/new_page.toml", *(PACKAGE / "app/recipes").rglob("*")]
    shipped = [path.read_text("utf-8") for path in paths if path.is_file() and path.suffix != ".pyc"]
    flat = re.sub(r"\s+(?:# *)?", " ", "\n".join(shipped))
    assert [passage for passage in words("zh.files") if passage not in flat] == []


def test_english_is_said_as_it_stands_and_what_has_no_translation_stays_english() -> None:
    words.cache_clear()
    assert language.say("To undo: {how}", how="reboot {now}") == "To undo: reboot {now}"
    assert words.cache_info().currsize == 0
    with speaking("zh"):
        assert language.say("nobody has translated this") == "nobody has translated this"
        assert language.say("To undo: {how}", how="reboot {now}") == "撤销：reboot {now}"
    assert language.current() == "en"
    with pytest.raises(ValueError, match="no language 'fr'; available: en, zh"):
        language.use("fr")


MIXED = st.lists(st.text("驱动内核模块，。、；：）（“”gpu-3_./", max_size=12).map("中".__add__), min_size=1).map(
    " ".join
)


def _columns(text: str) -> int:
    """By the standard alone: what a terminal advances."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def test_a_chinese_character_takes_two_columns_and_a_latin_one_takes_one() -> None:
    assert [width(text) for text in ("驱动", "gpu", "GPU 没有了。")] == [4, 3, 12]
    assert has_wide("GPU 没有了")
    assert not has_wide("a “quoted” word … and a café × 8")


def test_a_line_ends_behind_any_character_but_not_before_what_closes() -> None:
    assert fold_wide("没有驱动，也没有模块。", 9, "", "") == ["没有驱", "动，也没", "有模块。"]
    assert fold_wide("（需要 root）（会改动系统）", 12, "", "") == ["（需要", "root）（会改", "动系统）"]
    assert fold_wide("运行 nvidia-smi --query-gpu=name，看结果", 20, "", "") == [
        "运行 nvidia-smi",
        "--query-gpu=name，看",
        "结果",
    ]
    assert fold_wide("错误  没有驱动", 20, "", "") == ["错误  没有驱动"]


@given(MIXED)
def test_every_line_holds_in_a_terminal_and_nothing_is_lost(text: str) -> None:
    lines = wrapped(f"中 {text}", 2, 4)
    assert "".join("".join(lines).split()) == "中" + "".join(text.split())
    for line in lines:
        assert line[:2] == "  "
        assert line.lstrip()[0] not in "，。、；：）”"
        assert _columns(line) <= WIDTH or not any(map(str.isspace, line.strip()))


@given(st.text("abc ,.-(…×é ", max_size=300))
def test_text_without_wide_characters_is_wrapped_as_ever(text: str) -> None:
    told = [line for line in wrapped(text) if line]
    expected = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    assert told == expected


PLAIN_WORDS = re.compile(r"[a-z]{2,}(?: [a-z]{2,}){2,}")
"""Three English words in a row: a sentence of ours, where no command, name or value of a fact has them."""


def test_the_account_of_a_command_is_chinese_throughout(gpudoctor: Program) -> None:
    for argv, head in (
        (["true"], "gpudoctor：退出码 0，用时 "),
        (["sh", "-c", "exit 3"], "gpudoctor：退出码 3，用时 "),
        (["sh", "-c", "kill -USR1 $$"], "gpudoctor：被 SIGUSR1 终止，用时 "),
    ):
        account = gpudoctor("run", "--lang", "zh", "--", *argv).err
        assert account.startswith(head)
        assert "没有发现" in account
        assert not PLAIN_WORDS.search(account)


def test_the_report_of_a_preflight_is_chinese(gpudoctor: Program) -> None:
    report = gpudoctor("preflight", "--lang", "zh", "--level", "quick").out
    assert report.partition("：")[0] in ("可以开始", "不可开始", "无法判断")


def test_the_report_of_a_preflight_of_two_ranks_is_chinese_with_what_each_machine_found() -> None:
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    argv = [*own_command(), "preflight", "--lang", "zh", "--level", "quick"]
    started = [
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **place, "RANK": rank, "LOCAL_RANK": rank}
        )
        for rank in ("0", "1")
    ]
    report, _ = (process.communicate(timeout=600)[0] for process in started)
    assert "：多台机器，2 个 rank（环境变量），级别 quick" in report.splitlines()[0]
    assert ("[host.no-gpu]" in report) == ("错误  没有 NVIDIA GPU" in report)


PASTE = "PyTorch version: 2.13.0+cpu\nGPU 0: NVIDIA GeForce RTX 5090\nTorch not compiled with CUDA enabled\n"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.GB18030"}, "zh"),
        ({"LANG": "zh_SG.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zh-Hans-CN"}, "zh"),
        ({"LANG": "zh_TW.UTF-8"}, "en"),
        ({"LANG": "zh_HK"}, "en"),
        ({"LANG": "zh-Hant"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": ""}, "en"),
        ({"LANG": "en_US.UTF-8", "GPUDOCTOR_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "GPUDOCTOR_LANG": "en"}, "en"),
    ],
)
def test_the_locale_chooses_and_our_own_variable_goes_before_it(environ: dict[str, str], expected: str) -> None:
    assert choose_language(None, False, environ, "utf-8") == expected


def test_what_is_typed_goes_before_all_else() -> None:
    assert choose_language("en", False, {"LANG": "zh_CN.UTF-8"}, "utf-8") == "en"
    assert choose_language("zh", False, {"GPUDOCTOR_LANG": "en"}, "utf-8") == "zh"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "no-such-encoding"])
def test_what_a_stream_cannot_print_is_not_sent_there(encoding: str) -> None:
    assert choose_language(None, False, {"LANG": "zh_CN"}, encoding) == "en"
    assert choose_language("zh", False, {}, encoding) == "en"
    assert choose_language("zh", True, {}, encoding) == "zh"


@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", "zh"), ("markdown", "zh"), ("html", "zh"), ("json", "en"), ("junit", "en"), ("prometheus", "en")],
)
def test_what_people_read_is_in_their_language(form: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPUDOCTOR_LANG", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert cli._language_of(parse(["read", "-", "--format", form])) == expected


def test_a_document_is_english_unless_it_is_asked_for_otherwise(
    called: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    monkeypatch.setenv("GPUDOCTOR_LANG", "")
    titles = [
        called("read", "-", "--json", *words, stdin=PASTE).document["findings"][0]["title"]
        for words in ([], ["--lang", "zh"])
    ]
    assert titles == [
        "torch 2.13.0+cpu is a CPU-only build, and this machine has an NVIDIA GPU",
        "torch 2.13.0+cpu 是 CPU 版，而这台机器有 NVIDIA GPU",
    ]


def test_a_document_has_the_same_keys_ids_and_facts_in_every_language(called: Program) -> None:
    english, chinese = (called("read", "-", "--json", "--lang", it, stdin=PASTE).document for it in ("en", "zh"))
    for document in (english, chinese):
        document.pop("timings_ms")
        for finding in document["findings"]:
            for worded in ("title", "why"):
                finding.pop(worded)
            finding["fixes"] = [[step["argv"] for step in fix["steps"]] for fix in finding["fixes"]]
    assert json.dumps(english, sort_keys=True) == json.dumps(chinese, sort_keys=True)


@pytest.mark.parametrize("surroundings", [{"LC_ALL": "C"}, {"LC_ALL": "zh_CN.UTF-8", "PYTHONIOENCODING": "latin-1"}])
def test_a_terminal_that_has_no_chinese_gets_english(gpudoctor: Program, surroundings: dict[str, str]) -> None:
    told = gpudoctor("read", "-", stdin=PASTE, env={"GPUDOCTOR_LANG": "", **surroundings})
    assert told.code == 1
    assert told.out.isascii()
    assert "is a CPU-only build" in told.out

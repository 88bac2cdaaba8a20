"""Which language a run speaks."""

from __future__ import annotations

import json

import pytest

from gpudoctor.app import cli
from gpudoctor.app.arguments import parse
from gpudoctor.core.language import choose_language
from tests.conftest import Program

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


def test_a_document_is_english_unless_it_is_asked_for_otherwise(gpudoctor: Program) -> None:
    surroundings = {"LANG": "zh_CN.UTF-8", "GPUDOCTOR_LANG": ""}
    titles = [
        gpudoctor("read", "-", "--json", *words, stdin=PASTE, env=surroundings).document["findings"][0]["title"]
        for words in ([], ["--lang", "zh"])
    ]
    assert titles == [
        "torch 2.13.0+cpu is a CPU-only build, and this machine has an NVIDIA GPU",
        "torch 2.13.0+cpu 是 CPU 版，而这台机器有 NVIDIA GPU",
    ]


def test_a_document_has_the_same_keys_ids_and_facts_in_every_language(gpudoctor: Program) -> None:
    english, chinese = (gpudoctor("read", "-", "--json", "--lang", it, stdin=PASTE).document for it in ("en", "zh"))
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

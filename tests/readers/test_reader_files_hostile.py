"""Manifests that were made to break a reader: bounded in what is read of them, and at most one line of error."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.app.commands.reports import rendered
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.snapshot import from_json
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.readers import decode
from gpudoctor.readers.files._manifest import documents
from tests.readers.manifests import RTX_5090, examples, judged, value

NAMES = ("requirements.txt", "pyproject.toml", "uv.lock", "environment.yml", "Dockerfile", "compose.yaml", "pod.yaml")
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{own}: &{own} [{','.join(['*' + before] * 9)}]\n" for before, own in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN = [
    ("requirements.txt", "torch==2.5.1\n" * 200_000, "larger than"),
    ("pyproject.toml", "a = " + "[" * 100_000, "line 1: brackets"),
    ("pyproject.toml", "[" + "a." * 50_000 + "b]\n", "line 1: brackets"),
    ("pyproject.toml", "a = {" * 50 + "\n" * 10, "no TOML"),
    ("pyproject.toml", "[project]\ndependencies = [\n" + "[\n" * 5_000, "no TOML"),
    ("pyproject.toml", "\n".join(f"a{number} = {number}" for number in range(40_000)), "longer than"),
    ("environment.yml", "dependencies: " + "[" * 100_000, "without end"),
    ("environment.yml", "a:\n  " + "- " * 50_000 + "b\n", "without end"),
    ("environment.yml", "\n".join(f"{' ' * depth}a:" for depth in range(500)), "without end"),
    ("environment.yml", "dependencies:\n" + "  - pytorch=2.5\n" * 20_000, "longer than"),
    ("environment.yml", "dependencies:\n  - pytorch\n  - *x\n", "line 3: no YAML"),
    ("environment.yml", "dependencies:\n  - a: 'b\n", "no YAML"),
    ("environment.yml", "dependencies: [\x1b[31m]\n", "no YAML"),
    ("pod.yaml", "{{ if .Values.x }}\napiVersion: v1\nkind: Pod\n", "line 2: no YAML"),
]
SURVIVED = [
    ("requirements.txt", "torch\\\n" + "\\\n" * 100_000),
    ("requirements.txt", "torch[" + "a," * 100_000 + "]==2\n"),
    ("requirements.txt", "torch==2.5.1 ; " + "(" * 50_000),
    ("requirements.txt", "torch==" + "9" * 100_000),
    ("requirements.txt", "torch==1e999\ntorch==2.*.*\ntorch===weird\n"),
    ("requirements.txt", "torch==2.5.1+cu999\n-r\n"),
    ("requirements.txt", "".join(f"nvidia-{number}==1\n" for number in range(30_000))),
    ("uv.lock", "version = 1\n" + '[[package]]\nname = "torch"\nversion = "2.5.1"\n' * 40_000),
    ("pyproject.toml", "[project]\nname = 'x'\nrequires-python = 3\ndependencies = [1, {}, [], 'torch']\n"),
    ("pyproject.toml", "[tool.uv.sources]\ntorch = 5\n[project]\ndependencies = ['torch']\n"),
    ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '^'\npython = '^99999999999999'\n"),
    ("environment.yml", LAUGHS + "dependencies: *i\n"),
    ("environment.yml", "a: &a\n  b: *a\ndependencies: &d\n  - *d\n  - pytorch\n"),
    ("environment.yml", "dependencies: {a: b}\n"),
    ("environment.yml", "!!python/object/apply:os.system ['true']\n"),
    ("environment.yml", "dependencies: &a\n" + "  - &b\n" * 3_000),
    ("Dockerfile", "FROM a AS a\nFROM a AS b\n" * 20_000),
    ("Dockerfile", "FROM x\nRUN <<EOF\n" + "pip install torch\n" * 30_000),
    ("Dockerfile", "FROM x\nRUN pip install torch \\\n" + "a \\\n" * 100_000),
    ("Dockerfile", "FROM x\nRUN " + "a && " * 100_000),
    ("Dockerfile", "FROM x\nRUN [" + "[" * 100_000 + "\nRUN (" * 50),
    ("Dockerfile", "ARG A=x\n" + "ARG A=$A$A$A$A$A\n" * 1_000 + "FROM $A\nENV A\nRUN pip install $A\n"),
    ("Dockerfile", "FROM x\nENV A=" + "\\" * 100_000),
    ("compose.yaml", "services: &s\n  a: *s\n"),
    ("compose.yaml", "services:\n  a: &a\n    <<: *a\n    image: x\n"),
    ("compose.yaml", LAUGHS + "services:\n  x: *i\n  y: {image: [x], environment: 5, deploy: []}\n"),
    ("compose.yaml", "services:\n" + "".join(f"  s{number}:\n    image: a\n" for number in range(3_000))),
    ("compose.yaml", "services:\n  a:\n    image: ${A:-${B}}\n    shm_size: 99999999999999999999g\n    gpus: [{}]\n"),
    ("pod.yaml", "apiVersion: v1\nkind: Pod\nspec: &s\n  containers: [*s]\n"),
    ("pod.yaml", "apiVersion: v1\nkind: List\nitems: &i [*i]\n"),
    ("pod.yaml", "---\n" * 100_000),
]


def check(diagnosis: Diagnosis) -> None:
    """It can be shown, saved and read again; no reader failed; every fact is of its kind."""
    assert value(diagnosis, "report.trouble") is None
    assert list(catalog().misfits(diagnosis.snapshot)) == []
    for form in ("text", "markdown", "html", "json"):
        assert "\x1b" not in rendered(diagnosis, form, io.StringIO())
    again = from_json(json.loads(rendered(diagnosis, "json", io.StringIO())))
    assert again.facts == diagnosis.snapshot.facts


@pytest.mark.parametrize(("name", "text", "why"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_such_file_says_so_in_one_line(name: str, text: str, why: str) -> None:
    with pytest.raises(DocumentError) as caught:
        judged(text, name, RTX_5090)
    assert str(caught.value).startswith(f"{name}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), SURVIVED, ids=range(len(SURVIVED)))
def test_what_can_be_read_of_it_is_read(name: str, text: str) -> None:
    check(judged(text, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\xff", b"\xff" * 300, b"t\x00orch==2.5.1\n" * 50, b"\x00" * 9, b"\xef\xbb\xbftorch\n"]
)
def test_bytes_that_are_no_text(name: str, raw: bytes) -> None:
    with contextlib.suppress(DocumentError):
        check(judged(decode(raw, name), name))


def test_names_bear_no_control_characters() -> None:
    diagnosis = judged("torch==2.5.1\x1b]0;x\x07\x1b[31m\n", "requirements\x1b[2J.txt")
    check(diagnosis)
    assert value(diagnosis, "torch.version") == "2.5.1"


def test_a_hostile_gpu_or_package_never_becomes_a_word_of_a_command() -> None:
    diagnosis = judged("torch==1.13.1 ; python_version < '4'\n", "requirements.txt", "gpu=--index-url,driver=550")
    words = [
        word for finding in diagnosis.findings for fix in finding.fixes for step in fix.steps for word in step.argv
    ]
    assert not any(word.startswith("--index-url") for word in words)


def test_only_documents_that_matter_are_parsed_of_a_long_stream() -> None:
    filler = "---\nkind: ConfigMap\ndata:\n" + "  a: b\n" * 1_000
    found = documents(filler * 100 + "---\nkind: Pod\nspec: {containers: []}\n", ("containers:",))
    assert [node.at("kind").text for node in found] == ["Pod"]
    assert found[0].at("kind").line == 100 * 1_003 + 2


@settings(max_examples=50)
@given(st.sampled_from(NAMES), st.data())
def test_mutations_of_the_examples_are_survived(name: str, data: st.DataObject) -> None:
    kind = name.rpartition(".")[2]
    alike = [text for own, text in examples().items() if kind in own or name.partition(".")[0] in own]
    text = data.draw(st.sampled_from(alike))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        middle = data.draw(st.text("{}[]()<>&*!|'\"\\#-:=,;$@%\n\t \x00\x1b+.0aé", max_size=6))
        text = text[:start] + middle + text[end:]
    with contextlib.suppress(DocumentError):
        check(judged(decode(text.encode(), name), name))

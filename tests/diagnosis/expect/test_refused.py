"""What does not belong into a profile is refused, in words and by the schema."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.diagnosis.expect import judge_lines, load
from gpudoctor.diagnosis.expect.reading import shipped_names, text_of
from gpudoctor.diagnosis.expect.writing import profile_text
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.views import schema
from tests.diagnosis.expect import test_values
from tests.diagnosis.expect.machines import known, machine, profile, put

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

_WORDS = [
    ("[expect]\ngpu.cout = 8", "[expect] gpu.cout: no fact 'gpu.cout'; did you mean gpu.count"),
    ("[expect]\ndriver.versoin = '570'", "did you mean driver.version"),
    ("[expect]\ngpus = 8", "no fact 'gpus'"),
    (
        "[expect]\ntorch.cuda = 12.10",
        "[expect] torch.cuda: a bare number where a version belongs (12.10 is not 12.1): write it in quotes",
    ),
    ('[expect]\ngpu.count = "eight"', "'eight' is no number and no range of numbers"),
    ("[expect]\ngpu.count = true", "it is a number, not true"),
    ('[expect]\ngpu.ecc = "on"', "it is true or false, not 'on'"),
    ("[expect]\ngpu.name = 8", "it is text, not 8"),
    ("[expect]\ngpu.name = []", "an empty list leaves nothing that it may be"),
    ('[expect]\ndriver.version = ">= 570 < 590"', "'>= 570 < 590' is no range of versions"),
    ('[expect]\nlimits.shm_mib = ">= 64 GHz"', "GHz does not go with it, for it is in MiB"),
    ('[expect]\ngpu.count = ">= 8 GiB"', "GiB does not go with it, for it is a number without a unit"),
    ('[expect]\ndriver.module_params = "x"', "write a [line.NAME]"),
    ("[expect]\ngpu.count = { is = 8, severty = 'error' }", "unknown key 'severty'; did you mean severity?"),
    ("[expect]\ngpu.count = { severity = 'error' }", "it says nothing of what it must be"),
    ("[expect]\ngpu.count = { is = 8, severity = 'fatal' }", "severity is one of error, warning, info, not 'fatal'"),
    ("[expect]\ngpu.count = { is = 8, at_least = 2 }", "gpu.count is a fact of the machine"),
    ("[expect]\ngpu.ecc = { has = ['x'] }", "has is for lists; gpu.ecc is bool"),
    ("[expect]\ngpu.count = { present = true, is = 8 }", "present = false: it must not be there"),
    ("[expect]\ngpu.count = { is = 8, needs = ['root'] }", "needs goes with do"),
    ("[expect]\ngpu.count = { is = 8, do = 3 }", "do is a sentence, or a command as a list of words"),
    ("[measure]\nmatmul.bf61 = '> 1'", "no kernel 'matmul.bf61'; did you mean matmul.bf16"),
    ("[measure]\nautograd = '> 1'", "it measures no rate"),
    ("[measure]\nmatmul.bf16 = '>= 600 GB/s'", "GB/s does not go with it, for it is in TFLOP/s"),
    ("[line.x]\nwhen = []", "when is missing"),
    ("[line.X]\nwhen = ['gpu.count > 1']", "a line's name has lower-case letters"),
    ("[line.x]\nwhen = ['gpu.cout > 1']", "no fact gpu.cout"),
    ("[line.x]\nwhen = ['gpu.count >']", "not a condition: 'gpu.count >'"),
    ("[line.x]\nwhen = ['driver.version > 570']", "a bare number where a version belongs"),
    ("[line.x]\nwhen = [\"driver.version > '570'\"]", "versions are ordered by version(...)"),
    ("[line.x]\nwhen = ['open(gpu.name)']", "no function 'open'"),
    ("[line.x]\nwhen = ['1 == 1']", "asks for no fact"),
    ("[line.x]\neach = 'gpus'\nwhen = ['gpu.ecc']", "each = 'gpus' is no group; did you mean gpu"),
    ("[line.x]\nwhen = ['gpu.count > 1']\nsays = '{gpu.cout}'", "no fact gpu.cout"),
    ("[expect]\ngpu.count = 8\n[line.gpu-count]\nwhen = ['gpu.count > 1']", "two lines would be called gpu-count"),
    ("expected = 3", "unknown key 'expected'; did you mean expect"),
    ("about = 'nothing'", "it expects nothing"),
    ("extends = 'hgx-h10'", "hgx-h10: no such file, and no profile of that name ships; did you mean hgx-h100"),
    ("extends = 'hgx-h100'\nwithout = ['gpu.cout']", "without: there is no line 'gpu.cout'; did you mean gpu-count"),
    ("[expect\n", "(at line 2"),
]


@pytest.mark.parametrize(("text", "words"), _WORDS, ids=[text.replace("\n", " ") for text, _ in _WORDS])
def test_it_is_refused_in_words_that_help(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        profile(tmp_path, text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value).strip()


def test_the_file_is_named_and_its_name_is_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "profile = 'Ours'\n[expect]\ngpu.count = 8")
    with pytest.raises(UsageError, match=r"ours\.toml: it begins with its name, in lower case"):
        load(str(path))


_FOR_EVER = {
    "ten megabytes": "#" * 10_000_000,
    "brackets": "[expect]\nx = " + "[" * 1400,
    "tables": "[expect]\nx = " + "{a=" * 450,
    "a key of many parts": "\n".join(f"{'.'.join(['a'] * 700)}.b{number} = 1" for number in range(80)),
    "a wide line": f"about = '{'x' * 2000}'",
    "thousands of lines": "[expect]\n" + "\n".join(f"env.A{number} = '1'" for number in range(3000)),
    "a power": "[line.x]\nwhen = ['gpu.count < 9**9**9']",
    "parentheses": f"[line.x]\nwhen = ['{'(' * 400}gpu.count{')' * 400}']",
    "a long condition": f"[line.x]\nwhen = ['gpu.count{' + 1' * 300} > 1']",
    "three loops": "[line.x]\nwhen = ['all(a.ecc for a in gpu for b in gpu for c in gpu)']",
    "a pattern that backtracks": "[expect]\ngpu.name = { matches = '(a+)+$' }",
    "a pattern of two repeats": "[line.x]\neach = 'gpu'\nwhen = [\"matches(gpu.name, 'a.*b.*c')\"]",
    "alternatives again and again": "[expect]\ngpu.name = { matches = '(a|aa)*b' }",
    "a pattern from a fact": "[line.x]\neach = 'gpu'\nwhen = ['matches(gpu.name, gpu.uuid)']",
    "a pipe": "extends = 'pipe'\n[expect]\ngpu.count = 8",
    "a device": "extends = '/dev/zero'\n[expect]\ngpu.count = 8",
    "itself": "extends = 'ours.toml'\n[expect]\ngpu.count = 8",
    "no text": "[expect]\ngpu.name = '\udcff'",
    "nan": "[expect]\ngpu.power_w = nan",
    "a huge number": f"[expect]\ngpu.count = {'9' * 1400}",
}


@pytest.mark.parametrize("what", _FOR_EVER)
def test_what_could_take_for_ever_is_refused_at_once(tmp_path: Path, what: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "ours.toml"
    path.write_bytes(f'profile = "ours"\n{_FOR_EVER[what]}'.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError):
        load(str(path))


@pytest.mark.parametrize(
    "condition",
    [
        "all(a.line != b.line for a in text for b in text)",
        "len([a for a in text for b in text]) > 0",
        "any(matches(a.line, 'a*b') for a in text)",
    ],
)
def test_what_takes_too_long_on_this_machine_is_not_judged(tmp_path: Path, condition: str) -> None:
    snapshot = known(text=[{"line": "a" * 4000}] * 5000)
    ((_, outcome),) = judge_lines(profile(tmp_path, f'[line.x]\nwhen = ["{condition}"]'), snapshot)
    assert "too long" in str(outcome) or "TooLong" in str(outcome)


_SCHEMA = json.loads(schema.text("profile"))
_REFUSED_BY_SHAPE = ("severty", "fatal", "do = 3", "when = []", "[line.X]", "expected = 3")


def fits(text: str) -> None:
    raw: dict[str, Any] = tomllib.loads(text if "profile =" in text else f'profile = "ours"\n{text}')
    jsonschema.validate(raw, _SCHEMA)


def test_what_is_read_fits_the_schema_that_the_command_prints(called: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(_SCHEMA)
    fits(profile_text([complete(machine("hgx-h100"))], "2026-11-22"))
    fits(test_values._RAILS)
    for line, _, _ in test_values._HOLDS:
        fits(f"[expect]\n{line}")
    assert called("schema", "profile").document == _SCHEMA


@pytest.mark.parametrize("name", shipped_names())
def test_profiles_that_ship_fit_it(name: str) -> None:
    fits(text_of(name))


@pytest.mark.parametrize("mistake", _REFUSED_BY_SHAPE)
def test_what_is_of_the_wrong_shape_does_not(mistake: str) -> None:
    for text, _ in _WORDS:
        if mistake in text:
            with pytest.raises(jsonschema.ValidationError):
                fits(text)

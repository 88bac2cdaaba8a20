"""The schema that editors check profiles by: what is read fits it, and much of what is refused does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.diagnosis.expect.reading import shipped_names, text_of
from gpudoctor.diagnosis.expect.writing import profile_text
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.views import schema
from tests.diagnosis.expect import test_lines, test_refused, test_values
from tests.diagnosis.expect.machines import machine

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

_SCHEMA = json.loads(schema.text("profile"))
_REFUSED_BY_SHAPE = ("severty", "fatal", "do = 3", "when = []", "[line.X]", "expected = 3")


def fits(text: str) -> None:
    raw: dict[str, Any] = tomllib.loads(text if "profile =" in text else f'profile = "ours"\n{text}')
    jsonschema.validate(raw, _SCHEMA)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(_SCHEMA)


@pytest.mark.parametrize("name", shipped_names())
def test_profiles_that_ship_fit_it(name: str) -> None:
    fits(text_of(name))


def test_what_is_read_fits_it() -> None:
    fits(profile_text([complete(machine("hgx-h100"))], "2026-11-22"))
    fits(test_lines._RAILS)
    for line, _, _ in test_values._HOLDS:
        fits(f"[expect]\n{line}")


@pytest.mark.parametrize("mistake", _REFUSED_BY_SHAPE)
def test_what_is_of_the_wrong_shape_does_not(mistake: str) -> None:
    for text, _ in test_refused._WORDS:
        if mistake in text:
            with pytest.raises(jsonschema.ValidationError):
                fits(text)


def test_the_command_prints_it(gpudoctor: Any, tmp_path: Path) -> None:
    assert gpudoctor("schema", "profile").document == _SCHEMA

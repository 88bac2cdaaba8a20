"""Every JSON document that the program gives a test is held against ``gpudoctor schema``, whatever the test asks."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from gpudoctor.views import schema

_BEGINNING = '{"schema":"gpudoctor'
_OF_NOBODY = "gpudoctor-record/1"
"""A record is read by its own strict reader, and has no schema."""


def misfits(text: str) -> list[str]:
    """What in the documents among these lines, one a line, the schemas do not allow."""
    return [misfit for line in text.splitlines() if line.startswith(_BEGINNING) for misfit in _misfits(line)]


def _misfits(line: str) -> Iterator[str]:
    try:
        document = json.loads(line)
    except ValueError as error:
        yield f"no JSON: {error}: {line[:80]}..."
        return
    name = document["schema"]
    if name == _OF_NOBODY:
        return
    kind = "snapshot" if name == "gpudoctor/1" and "verdict" not in document else _kinds().get(name)
    if kind is None:
        yield f"gpudoctor schema knows no {name}"
        return
    for misfit in _validator(kind).iter_errors(document):
        yield f"{kind} {'.'.join(map(str, misfit.instance_path))}: {misfit.message[:300]}"


@cache
def _kinds() -> dict[str, str]:
    """Kinds by what their documents say of themselves."""
    named = {kind: json.loads(schema.text(kind))["properties"]["schema"]["const"] for kind in schema._KINDS}
    return {name: kind for kind, name in reversed(named.items())}


@cache
def _validator(kind: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(schema.text(kind)))


@contextmanager
def watching() -> Iterator[None]:
    """Fail whoever gets a document that the schema does not allow: from a process, its ``-o`` file, or our output."""
    communicate, readouterr = subprocess.Popen.communicate, pytest.CaptureFixture.readouterr

    def communicated(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> Any:
        said = communicate(process, *args, **kwargs)
        if _is_the_program(process.args) and process.returncode in range(128):  # one that was ended may say half of it
            _check(said[0], *_files(process.args))
        return said

    def read(capture: pytest.CaptureFixture[Any]) -> Any:
        said = readouterr(capture)
        _check(said.out)
        return said

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", communicated)
        patch.setattr(pytest.CaptureFixture, "readouterr", read)
        yield


def _is_the_program(args: object) -> bool:
    words = _words(args)
    return any(Path(word).name == "gpudoctor" for word in words)


def _files(args: object) -> Iterator[str]:
    """What it was told to write."""
    words = _words(args)
    for at, word in enumerate(words[:-1]):
        if word == "-o" and (place := Path(words[at + 1])).is_file():
            yield place.read_text("utf-8", "replace")


def _words(args: object) -> Sequence[str]:
    return [str(word) for word in args] if isinstance(args, (list, tuple)) else []


def _check(*texts: object) -> None:
    for text in texts:
        said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if isinstance(said, str) and _BEGINNING in said:
            found = misfits(said)
            assert not found, f"a document is not as gpudoctor schema says: {found[:5]}"

"""What the user chose and wants again: a few words in the platform's folder for configuration."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

_MOST_BYTES = 4096
"""A larger file is not ours."""
_MOST_LETTERS = 60


@dataclass(frozen=True, slots=True)
class Choices:
    """What is remembered; an empty word is no choice."""

    theme: str = ""
    marks: str = ""
    """``ascii`` or ``unicode``, where the terminal is not to be asked."""


class ChoicesError(Exception):
    """The file cannot be read or written; why, in words."""


def path() -> Path:
    """The file; raises `ChoicesError` where the user has no folder of its own."""
    from gpudoctor import state

    folder = state.config()
    if not folder.is_absolute():
        raise ChoicesError("no home folder")
    return folder / "tui.json"


def load() -> Choices:
    """What was kept, nothing where there is no file; raises `ChoicesError`."""
    try:
        return _parsed(_content(path()))
    except (OSError, ValueError, RecursionError) as error:
        raise ChoicesError(_why(error)) from error


def _content(file: Path) -> bytes:
    if not file.exists():
        return b"{}"
    if not file.is_file():  # a pipe would keep us waiting
        raise ChoicesError("not a file")
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ChoicesError(f"more than {_MOST_BYTES} bytes")
    return content


def _parsed(content: bytes) -> Choices:
    """The words we know; others, of a newer version, are let be."""
    raw = json.loads(content)
    if not isinstance(raw, dict):
        raise ChoicesError("no JSON object")
    words = {field.name: raw.get(field.name, "") for field in fields(Choices)}
    for name, word in words.items():
        if not isinstance(word, str) or len(word) > _MOST_LETTERS:
            raise ChoicesError(f"{name} is no word")
    return Choices(**words)


def keep(choices: Choices) -> None:
    """Write them so that another gpudoctor sees the old file or the new one, never half; raises `ChoicesError`."""
    try:
        file = Path(os.path.realpath(path()))  # where it is a link, the file it leads to is written
        file.parent.mkdir(parents=True, exist_ok=True)
        words = {name: word for name, word in asdict(choices).items() if word}
        handle, name = tempfile.mkstemp(prefix=".tui-", dir=file.parent)
        new = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(words, stream, indent=2)
                stream.write("\n")
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ChoicesError(_why(error)) from error


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not JSON"

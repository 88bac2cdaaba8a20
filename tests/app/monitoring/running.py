"""How tests run a command bare, and under ``gpudoctor run``."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpudoctor.core.shipped import own_command

PATIENCE = 240.0


class End(NamedTuple):
    """What came of a command: its exit code (negative: a signal), and what it printed."""

    code: int
    out: bytes
    err: bytes


def beside(*options: str) -> list[str]:
    """The command line that runs what follows it under ``gpudoctor run``."""
    return [*own_command(), "run", *options, "--"]


def run(argv: Sequence[str], stdin: bytes = b"", **more: Any) -> End:
    """Run it with pipes, to its end."""
    ran = subprocess.run(list(argv), input=stdin, capture_output=True, timeout=PATIENCE, check=False, **more)
    return End(ran.returncode, ran.stdout, ran.stderr)


def python(code: str) -> list[str]:
    """The command line of a Python program."""
    return [sys.executable, "-c", code]


def document(argv: Sequence[str], place: Path, env: Mapping[str, str] | None = None, before: Sequence[str] = ()) -> Any:
    """The document that is written of that command, and its end; `before` is put in front of gpudoctor."""
    out = place / "run.json"
    end = run([*before, *beside("-o", str(out)), *argv], env=dict(os.environ, **(env or {})))
    return json.loads(out.read_text()), end


def found(whole: Any) -> dict[str, str]:
    """The titles of a document's findings by their ids."""
    return {finding["id"]: finding["title"] for finding in whole["findings"]}

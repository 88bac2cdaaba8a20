"""The program, called in the process of the tests."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gpudoctor import cli
from tests.conftest import Program, Run


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program as `gpudoctor` of all tests, without a process of its own."""

    def run(
        *words: str, stdin: str = "", timeout: float = 0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Run:
        if timeout or env or cwd:
            raise ValueError("these need a process")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        capsys.readouterr()
        try:
            code = cli.run(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run

"""The server for assistants reads nothing but what it was given, and no call ends it."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpudoctor.core.errors import UsageError
from tests.app.packaging.shelf import bare


@pytest.fixture
def mcp() -> ModuleType:
    """The server's module, which imports much: not for whoever only collects tests."""
    return importlib.import_module("gpudoctor.app.mcp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Named at the start; beside it is a secret, to which a link, a linked folder and a hard way lead."""
    (tmp_path / "secret.txt").write_text("the secret")
    inside = tmp_path / "logs"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep/job.log").write_text("torch==2.9.0")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "around").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    return inside.resolve()


@pytest.mark.parametrize("name", ["deep/job.log", "./deep/job.log", "{folder}/deep/job.log"])
def test_files_of_the_folder_are_read(mcp: ModuleType, folder: Path, name: str) -> None:
    assert mcp.text_under([folder], name.format(folder=folder)) == "torch==2.9.0"


OUTSIDE = (
    "../secret.txt",
    "deep/../../secret.txt",
    "link.txt",
    "around/secret.txt",
    "{folder}/../secret.txt",
    "{folder}2/secret.txt",
    "/etc/passwd",
    "/proc/self/environ",
    "pipe",
    "deep",
    ".",
    "",
    "a\0b",
    "nowhere",
    "x" * 900,
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_else_is(mcp: ModuleType, folder: Path, name: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(UsageError):
        mcp.text_under([folder], name.format(folder=folder))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_without_a_folder_no_file_can_be_named(mcp: ModuleType, folder: Path) -> None:
    with pytest.raises(UsageError, match="gpudoctor mcp --folder DIR"):
        mcp.text_under([], str(folder / "deep/job.log"))


def test_a_large_file_is_refused(mcp: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "MOST_TEXT_CHARACTERS", 4)
    with pytest.raises(UsageError, match="larger"):
        mcp.text_under([folder], "deep/job.log")


def test_what_is_malformed_is_answered_or_passed_over_and_ends_nothing(folder: Path, tmp_path: Path) -> None:
    """Lines as no client sends them, then an honest call in the same process."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    odd: list[Any] = [
        "no json",
        "[" * 5000,
        "[]",
        "null",
        '{"jsonrpc":"2.0"}',
        _call(2, "read", text=7),
        _call(3, "read", text="x" * (3 << 20)),
        _call(4, "read_file", path="../secret.txt"),
        _call(5, "no such tool"),
        _call(6, "setup", want=["-r /etc/passwd"]),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        *odd,
        _call(9, "explain", id="gpus", key="RTX 5090"),
    ]
    env = bare(tmp_path, GPUDOCTOR_STATE=str(tmp_path), XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"])
    command = [sys.executable, "-m", "gpudoctor", "mcp", "--folder", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    ) as child:
        assert child.stdin
        assert child.stdout
        try:
            child.stdin.write("\n".join(lines) + "\n")
            child.stdin.flush()
            answers: dict[int, Any] = {}
            for line in child.stdout:
                answer = json.loads(line)
                answers[answer.get("id")] = answer
                if {2, 3, 4, 5, 6, 9} <= set(answers):
                    break
        finally:
            child.kill()
    assert "12.0" in str(answers[9]["result"])
    for number in (2, 3, 4, 5, 6):
        assert "error" in answers[number] or answers[number]["result"]["isError"], number
        assert "the secret" not in str(answers[number])


def _call(number: int, tool: str, **arguments: Any) -> str:
    call = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})

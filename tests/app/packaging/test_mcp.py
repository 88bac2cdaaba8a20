"""The protocol's own client talks to the real server: its tools look and tell, hide what is personal, never write."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.app.packaging.shelf import bare
from tests.conftest import Program

if TYPE_CHECKING:
    from mcp import Client

REPORT = """\
PyTorch version: 2.13.0+cpu
Is CUDA available: False
OS: Ubuntu 24.04.3 LTS (x86_64)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 470.57.02
alice@gpu-node-17:~$ ls /home/alice
"""


@asynccontextmanager
async def connected(folder: Path, *words: str) -> AsyncIterator[Client]:
    """A server in a process of its own, and a client that has shaken hands with it."""
    from mcp import Client, StdioServerParameters  # heavy: not for whoever only collects

    env = bare(folder, GPUDOCTOR_STATE=str(folder), XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"])
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "gpudoctor", "mcp", *words], env=env, cwd=folder
    )
    async with Client(started, read_timeout_seconds=120) as client:
        yield client


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content)


async def test_tools_say_that_they_never_write_and_what_they_answer(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"check", "read", "explain", "setup"}
    for tool in tools.values():
        assert tool.annotations
        assert tool.annotations.read_only_hint
        assert tool.annotations.destructive_hint is False
        assert tool.description
        assert tool.output_schema
    answered = tools["check"].output_schema or {}
    assert {"verdict", "findings", "counts", "unjudged"} <= set(answered["properties"])


async def test_a_machine_is_checked_and_nothing_is_kept(tmp_path: Path, gpudoctor: Program) -> None:
    async with connected(tmp_path) as client:
        result = await client.call_tool("check", {"facts": ["host"]})
    assert list(tmp_path.iterdir()) == []
    document = result.structured_content
    assert document
    installed = gpudoctor("check", "--level", "quick", "--json", "--share", env=bare(tmp_path)).document
    assert document["verdict"] == installed["verdict"]
    assert [one["id"] for one in document["findings"]] == [one["id"] for one in installed["findings"]]
    assert {name.partition(".")[0] for name in document["facts"]} == {"host"}
    assert "not judged" in text_of(result)


async def test_a_paste_is_diagnosed_and_what_is_personal_hidden(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        hidden = await client.call_tool("read", {"text": REPORT})
        assert hidden.structured_content
        assert hidden.structured_content["findings"][0]["id"] == "driver.too-old-for-gpu"
        page = await client.call_tool("explain", {"id": "torch.cpu-build"})
        assert text_of(page).startswith("torch.cpu-build")
        table = await client.call_tool("explain", {"id": "gpus", "key": "RTX 5090"})
        assert "12.0" in text_of(table)
    assert "gpu-node-17" not in str(hidden.structured_content) + text_of(hidden)


async def test_a_stack_is_planned_for_a_machine_that_is_not_here(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        words = {"machine": "gpu=H100,driver=580,python=3.12", "want": ["torch>=2.6"]}
        planned = await client.call_tool("setup", words)
    assert planned.structured_content
    assert planned.structured_content["torch"]
    assert "pip install" in text_of(planned)


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("explain", {"id": "driver.missng"}, "near it: driver.missing"),
    ("explain", {"id": "--rules=/etc"}, "no rule, fact or table '--rules=/etc'"),
    ("setup", {"machine": "colour=blue"}, "colour"),
    ("check", {"level": "deep"}, "quick"),
    ("read", {"text": "x" * (3 << 20)}, "at most"),
    ("read", {"text": "torch==2.9.0", "machine": "colour=blue"}, "colour"),
)


async def test_what_cannot_be_met_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        for tool, given, sentence in REFUSED:
            result = await client.call_tool(tool, given)
            assert result.is_error
            assert sentence in text_of(result)
            assert "Traceback" not in text_of(result)


@pytest.mark.full
def test_without_the_sdk_it_says_what_to_install(lean: Path, tmp_path: Path) -> None:
    from tests.app.packaging.test_pyz import run

    said = run(lean, "mcp", env=bare(tmp_path))
    assert said.code == 2
    assert "pip install 'gpudoctor[mcp]'" in said.err

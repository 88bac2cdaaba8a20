"""The server: four tools over stdio. What they answer is for a language model, which may run elsewhere.

So answers are hidden as by ``--share`` unless whoever starts the server says otherwise: a report can hold sentences
that tell a model what to ask for next, and what it asks must not be able to uncover names. Nor can a tool name a file
outside the folders that were named at the start, none by default, or a program to be run: texts come with the call, and
the interpreter whose torch is meant with the start.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from gpudoctor import shipped
from gpudoctor.model.diagnosis import from_json
from gpudoctor.model.errors import DoctorError, UsageError
from gpudoctor.target.child import MARK, run_child
from gpudoctor.version import __version__
from gpudoctor.views import text as report
from gpudoctor.views._terminal import Style

INSTRUCTIONS = """\
gpudoctor finds out why a GPU machine does not work. `check` looks at the machine that this server runs on; `read`
takes what somebody pasted (collect_env, nvidia-smi, logs, tracebacks, requirements); `explain` tells all that is known
of a finding's id; `setup` works out which torch fits a machine. Nothing is ever changed. Findings come root cause
first, with commands for the user to run; what could not be judged is counted, and is not healthy.
"""
MOST_TEXT = 2 << 20
"""Letters of a text that is given to be read."""
MOST_DOCUMENT = 200_000
"""Letters of a document that is answered; one that is longer comes without its facts."""
MOST_REPORT = 40_000

_LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_SECONDS = {"quick": 60.0, "standard": 180.0}
_READING = 60.0

Topics = Annotated[list[str], Field(max_length=50, description="topics of facts to be told, too: gpu, driver, torch")]


class Document(TypedDict, total=False):
    """The document of ``gpudoctor check --json``; its whole schema is printed by ``gpudoctor schema``."""

    schema: str
    tool: dict[str, Any]
    target: dict[str, Any]
    verdict: Literal["sound", "impaired", "broken", "unknown"]
    findings: list[dict[str, Any]]
    counts: dict[str, Any]
    unjudged: list[dict[str, Any]]
    facts: dict[str, Any]


class Stack(TypedDict, total=False):
    """The document of ``gpudoctor setup torch --json``; its schema is printed by ``gpudoctor schema stack``."""

    schema: str
    torch: Any


@dataclass(frozen=True)
class Tools:
    """The tools of one server: the interpreter whose torch is meant, and whether what is personal is hidden."""

    python: str = ""
    share: bool = True
    folders: tuple[Path, ...] = ()

    def check(
        self,
        level: Literal["quick", "standard"] = "quick",
        facts: Topics = [],  # noqa: B006 - never changed
    ) -> Annotated[CallToolResult, Document]:
        """Diagnose the GPUs, driver, containers and torch of the machine that this server runs on.

        quick only reads, and takes a second; standard also imports torch and computes a little on each GPU.
        """
        words = ["check", "--level", level, *self._hidden, *([f"--python={self.python}"] if self.python else [])]
        return _diagnosis(words, _SECONDS[level], "", facts)

    def read(
        self,
        text: Annotated[str, Field(max_length=MOST_TEXT, description="what was pasted, as it is")],
        machine: Annotated[str, Field(max_length=500, description="gpu=RTX 5090,driver=570: for requirements")] = "",
        facts: Topics = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Document]:
        """Diagnose a pasted report or log, a saved snapshot, or a manifest such as requirements.txt or a Dockerfile."""
        words = ["read", "-", *self._hidden, *([f"--for={machine}"] if machine else [])]
        return _diagnosis(words, _READING, text, facts)

    def read_file(
        self,
        path: Annotated[str, Field(max_length=1000, description="a file in one of the folders of this server")],
        machine: Annotated[str, Field(max_length=500, description="gpu=RTX 5090,driver=570: for requirements")] = "",
        facts: Topics = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Document]:
        """As `read`, of a file under a folder that was named when this server was started."""
        return self.read(_or_error(lambda: text_under(self.folders, path)), machine, facts)

    def explain(
        self,
        id: Annotated[str, Field(max_length=100, description="driver.missing, driver.version, or a table: gpus")],  # noqa: A002
        key: Annotated[str, Field(max_length=100, description="what to look up in a table: RTX 5090")] = "",
    ) -> str:
        """Tell all that is known of a finding or a fact by its id, or what a table knows of a GPU or a CUDA release."""
        return _cut(_or_error(lambda: said(["explain", "--", id, *key.split()], _READING)))

    def setup(
        self,
        machine: Annotated[
            str, Field(max_length=500, description="gpu=RTX 5090,driver=570,python=3.12; else here")
        ] = "",
        want: Annotated[list[str], Field(max_length=20, description="requirements: torch>=2.6, flash-attn")] = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Stack]:
        """Work out which torch stack fits a machine, why, and which commands would install it; installs nothing."""
        words = ["setup", "torch", "--offline", *self._hidden, *(f"--want={one}" for one in want)]
        words += [f"--for={machine}"] if machine else [f"--python={self.python}"] if self.python else []
        stack = _or_error(lambda: document([*words, "--json"], _READING))
        return _result(_cut(_or_error(lambda: said(words, _READING))), stack)

    @property
    def _hidden(self) -> Sequence[str]:
        return ("--share",) if self.share else ()


def _diagnosis(words: Sequence[str], seconds: float, stdin: str, topics: Sequence[str]) -> CallToolResult:
    found = _or_error(lambda: document([*words, "--json"], seconds, stdin))
    told = _or_error(lambda: report.render(from_json(found), Style()))
    facts = {name: fact for name, fact in found.get("facts", {}).items() if name.partition(".")[0] in topics}
    return _result(_cut(told), {**found, "facts": facts})


def text_under(folders: Sequence[Path], name: str) -> str:
    """A file's text. Raises `UsageError` unless it is a regular file of bounded size under one of the folders.

    No link is followed inside a folder, and no ``..``: each part is opened in the one before, so that nothing can be
    exchanged in between.
    """
    path = Path(name)
    among = [(folder, path) for folder in folders if not path.is_absolute()]
    among += [(folder, path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)]
    if not among or ".." in path.parts or "\0" in name:
        named = ", ".join(map(str, folders)) or "none"
        raise UsageError(f"{name} is not in a folder that was named at the start ({named}): gpudoctor mcp --folder DIR")
    why = ""
    for folder, inside in among:
        try:
            return _regular(folder, inside.parts)
        except OSError as error:
            why = error.strerror or str(error)
    raise UsageError(f"{name} cannot be read: {why}; links are not followed")


def _regular(folder: Path, parts: Sequence[str]) -> str:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for part in parts:
        try:
            inside = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
        at = inside
    with os.fdopen(at, "rb") as file:
        if not stat.S_ISREG(os.fstat(at).st_mode):
            raise UsageError(f"{'/'.join(parts)} is no regular file")
        text = file.read(MOST_TEXT + 1)
    if len(text) > MOST_TEXT:
        raise UsageError(f"{'/'.join(parts)} is larger than {MOST_TEXT >> 20} MiB; paste the part that matters")
    return text.decode("utf-8", "replace")


def _result(told: str, structured: dict[str, Any]) -> CallToolResult:
    """The report for the model and the document for the program, both of a size that a conversation can hold."""
    if len(json.dumps(structured)) > MOST_DOCUMENT:
        structured = {**structured, "facts": {}}
    if len(json.dumps(structured)) > MOST_DOCUMENT:
        raise ToolError(f"the document is longer than {MOST_DOCUMENT:,} letters; ask for a part of it:\n{told}")
    return CallToolResult(content=[TextContent(type="text", text=told)], structured_content=structured)


def _cut(text: str) -> str:
    return (
        text if len(text) <= MOST_REPORT else f"{text[:MOST_REPORT]}\n... cut: {len(text) - MOST_REPORT:,} letters more"
    )


def _or_error(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except DoctorError as error:
        raise ToolError(str(error)) from error


def server(python: str = "", share: bool = True, folders: Sequence[Path] = ()) -> MCPServer[Mapping[str, Any]]:
    """A server with the tools, not running yet."""
    made: MCPServer[Mapping[str, Any]] = MCPServer(
        "gpudoctor", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR"
    )
    tools = Tools(python, share, tuple(folders))
    for tool in (tools.check, tools.read, tools.explain, tools.setup, *((tools.read_file,) if folders else ())):
        made.add_tool(tool, annotations=_LOOKS)
    return made


def serve(python: str = "", share: bool = True, folders: Sequence[Path] = ()) -> None:
    """Answer on standard input and output until the client closes them. Raises `UsageError` for what is no folder."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--folder {folder}: there is no such folder")
    server(python, share, [folder.resolve() for folder in folders]).run("stdio")


# ---- A command of the command line in a process of its own, as a tool asks it ----
# It may hang or crash, and keeps nothing.

_MOST = 64 << 20
"""Bytes that a command may print."""

MISUSE = 2


def said(words: Sequence[str], seconds: float, stdin: str = "") -> str:
    """What the command prints. Raises `DoctorError` with its own sentence where it refuses, or does not end in time."""
    quiet = {"GPUDOCTOR_HISTORY": "off", "GPUDOCTOR_LANG": "en", "NO_COLOR": "1", "COLUMNS": "100"}
    env = {**os.environ, **quiet, MARK: secrets.token_hex(8)}
    answer = run_child([*shipped.program(), *words], seconds, env, stdin, _MOST)
    if answer.status is None or answer.status < 0 or answer.status == MISUSE or not answer.out.strip():
        last = (answer.err.strip().splitlines() or [answer.how])[-1]
        raise DoctorError(last.removeprefix("gpudoctor: ") if answer.status == MISUSE else f"{answer.how}: {last}")
    return answer.out


def document(words: Sequence[str], seconds: float, stdin: str = "") -> dict[str, Any]:
    """The JSON object that it prints."""
    text = said(words, seconds, stdin)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DoctorError(f"gpudoctor printed no document: {text[:200]!r}") from error
    if not isinstance(found, dict):
        raise DoctorError("gpudoctor printed several documents where one was meant")
    return found

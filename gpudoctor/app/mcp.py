"""gpudoctor for assistants that speak the Model Context Protocol: read-only tools."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from gpudoctor.app.output import MISUSE
from gpudoctor.core import shipped
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import from_json
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.target.child import MARK, run_child
from gpudoctor.views import text as report
from gpudoctor.views._terminal import Style

INSTRUCTIONS = """\
gpudoctor finds out why a GPU machine does not work. `check` looks at the machine that this server runs on; `read`
takes what somebody pasted (collect_env, nvidia-smi, logs, tracebacks, requirements); `explain` tells all that is known
of a finding's id; `setup` works out which torch fits a machine. Nothing is ever changed. Findings come root cause
first, with commands for the user to run; what could not be judged is counted, and is not healthy.
"""
MOST_TEXT_CHARACTERS = 2 << 20
"""Letters of a text that is given to be read."""
MOST_DOCUMENT_CHARACTERS = 200_000
"""Letters of a document that is answered; one that is longer comes without its facts."""
MOST_REPORT_CHARACTERS = 40_000

_LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_SECONDS = {"quick": 60.0, "standard": 180.0}
_READ_SECONDS = 60.0

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
    """The tools of one server: the interpreter whose torch is meant, whether what is personal is hidden, and the
    folders whose files may be read.
    """

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
        arguments = [
            "check",
            "--level",
            level,
            *self._share_option,
            *([f"--python={self.python}"] if self.python else []),
        ]
        return _diagnosis_result(arguments, _SECONDS[level], "", facts)

    def read(
        self,
        text: Annotated[str, Field(max_length=MOST_TEXT_CHARACTERS, description="what was pasted, as it is")],
        machine: Annotated[str, Field(max_length=500, description="gpu=RTX 5090,driver=570: for requirements")] = "",
        facts: Topics = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Document]:
        """Diagnose a pasted report or log, a saved snapshot, or a manifest such as requirements.txt or a Dockerfile."""
        arguments = ["read", "-", *self._share_option, *([f"--for={machine}"] if machine else [])]
        return _diagnosis_result(arguments, _READ_SECONDS, text, facts)

    def read_file(
        self,
        path: Annotated[str, Field(max_length=1000, description="a file in one of the folders of this server")],
        machine: Annotated[str, Field(max_length=500, description="gpu=RTX 5090,driver=570: for requirements")] = "",
        facts: Topics = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Document]:
        """As `read`, of a file under a folder that was named when this server was started."""
        return self.read(_as_tool_error(lambda: text_under(self.folders, path)), machine, facts)

    def explain(
        self,
        id: Annotated[str, Field(max_length=100, description="driver.missing, driver.version, or a table: gpus")],  # noqa: A002
        key: Annotated[str, Field(max_length=100, description="what to look up in a table: RTX 5090")] = "",
    ) -> str:
        """Tell all that is known of a finding or a fact by its id, or what a table knows of a GPU or a CUDA release."""
        return _truncated(_as_tool_error(lambda: output_of(["explain", "--", id, *key.split()], _READ_SECONDS)))

    def setup(
        self,
        machine: Annotated[
            str, Field(max_length=500, description="gpu=RTX 5090,driver=570,python=3.12; else here")
        ] = "",
        want: Annotated[list[str], Field(max_length=20, description="requirements: torch>=2.6, flash-attn")] = [],  # noqa: B006
    ) -> Annotated[CallToolResult, Stack]:
        """Work out which torch stack fits a machine, why, and which commands would install it; installs nothing."""
        arguments = ["setup", "torch", "--offline", *self._share_option, *(f"--want={one}" for one in want)]
        arguments += [f"--for={machine}"] if machine else [f"--python={self.python}"] if self.python else []
        stack = _as_tool_error(lambda: document([*arguments, "--json"], _READ_SECONDS))
        return _tool_result(_truncated(_as_tool_error(lambda: output_of(arguments, _READ_SECONDS))), stack)

    @property
    def _share_option(self) -> Sequence[str]:
        """The command-line option that hides personal data, ``--share``, or an empty sequence."""
        return ("--share",) if self.share else ()


def _diagnosis_result(arguments: Sequence[str], seconds: float, stdin: str, topics: Sequence[str]) -> CallToolResult:
    """Run gpudoctor with these arguments; its text report and its document, with facts of these topics alone.

    Raises `ToolError` where gpudoctor refuses or takes longer than `seconds`.
    """
    diagnosis = _as_tool_error(lambda: document([*arguments, "--json"], seconds, stdin))
    text = _as_tool_error(lambda: report.render(from_json(diagnosis), Style()))
    facts = {name: fact for name, fact in diagnosis.get("facts", {}).items() if name.partition(".")[0] in topics}
    return _tool_result(_truncated(text), {**diagnosis, "facts": facts})


def text_under(folders: Sequence[Path], name: str) -> str:
    """Text of the file `name`, which must be a regular file under a folder, of at most `MOST_TEXT_CHARACTERS` bytes.

    Raises `UsageError` for any other. No link is followed inside a folder, and no ``..``: each part is opened in the
    one before, so that nothing can be exchanged in between.
    """
    path = Path(name)
    candidates = [(folder, path) for folder in folders if not path.is_absolute()]
    candidates += [(folder, path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)]
    if not candidates or ".." in path.parts or "\0" in name:
        named = ", ".join(map(str, folders)) or "none"
        raise UsageError(f"{name} is not in a folder that was named at the start ({named}): gpudoctor mcp --folder DIR")
    why = ""
    for folder, inside in candidates:
        try:
            return _text_of_regular_file(folder, inside.parts)
        except OSError as error:
            why = error.strerror or str(error)
    raise UsageError(f"{name} cannot be read: {why}; links are not followed")


def _text_of_regular_file(folder: Path, parts: Sequence[str]) -> str:
    """Text of a file below the folder, opened part by part without following links.

    Raises OSError where it cannot be opened, `UsageError` if it is no regular file or too large.
    """
    if sys.platform == "win32":
        raise UsageError("files cannot be opened without following links on Windows; paste the text")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for part in parts:
        try:
            inside = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
        at = inside
    if not stat.S_ISREG(os.fstat(at).st_mode):
        os.close(at)
        raise UsageError(f"{'/'.join(parts) or folder} is no regular file")
    with os.fdopen(at, "rb") as file:
        text = file.read(MOST_TEXT_CHARACTERS + 1)
    if len(text) > MOST_TEXT_CHARACTERS:
        raise UsageError(
            f"{'/'.join(parts)} is larger than {MOST_TEXT_CHARACTERS >> 20} MiB; paste the part that matters"
        )
    return text.decode("utf-8", "replace")


def _tool_result(text: str, structured: dict[str, Any]) -> CallToolResult:
    """The report as text and the document as structured content, without facts if too long.

    Raises `ToolError` if the document is longer than `MOST_DOCUMENT_CHARACTERS` even so.
    """
    if len(json.dumps(structured)) > MOST_DOCUMENT_CHARACTERS:
        structured = {**structured, "facts": {}}
    if len(json.dumps(structured)) > MOST_DOCUMENT_CHARACTERS:
        raise ToolError(
            f"the document is longer than {MOST_DOCUMENT_CHARACTERS:,} letters; ask for a part of it:\n{text}"
        )
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def _truncated(text: str) -> str:
    """The text, cut after `MOST_REPORT_CHARACTERS` characters with a note of how many are missing."""
    return (
        text
        if len(text) <= MOST_REPORT_CHARACTERS
        else f"{text[:MOST_REPORT_CHARACTERS]}\n... cut: {len(text) - MOST_REPORT_CHARACTERS:,} letters more"
    )


def _as_tool_error(act: Callable[[], Any]) -> Any:
    """The result of `act`, its `DoctorError` raised as a `ToolError`."""
    try:
        return act()
    except DoctorError as error:
        raise ToolError(str(error)) from error


def server(python: str = "", share: bool = True, folders: Sequence[Path] = ()) -> MCPServer[Mapping[str, Any]]:
    """An MCP server with the tools registered, not running yet; `read_file` only if folders are given."""
    made: MCPServer[Mapping[str, Any]] = MCPServer(
        "gpudoctor", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR"
    )
    tools = Tools(python, share, tuple(folders))
    for tool in (tools.check, tools.read, tools.explain, tools.setup, *((tools.read_file,) if folders else ())):
        made.add_tool(tool, annotations=_LOOKS)
    return made


def serve(python: str = "", share: bool = True, folders: Sequence[Path] = ()) -> None:
    """Serve MCP on standard input and output until the client closes them; raises `UsageError` for a missing folder."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--folder {folder}: there is no such folder")
    server(python, share, [folder.resolve() for folder in folders]).run("stdio")


# ---- A command of the command line in a process of its own, as a tool asks it ----
# It may hang or crash, and keeps nothing.

_MOST_OUTPUT_BYTES = 64 << 20
"""Bytes that a command may print."""


def output_of(arguments: Sequence[str], seconds: float, stdin: str = "") -> str:
    """Standard output of a gpudoctor command run in a child, `stdin` its input.

    Raises `DoctorError` with its own message where it refuses, and where it crashes, prints nothing or takes too long.
    """
    quiet = {"GPUDOCTOR_HISTORY": "off", "GPUDOCTOR_LANG": "en", "NO_COLOR": "1", "COLUMNS": "100"}
    env = {**os.environ, **quiet, MARK: secrets.token_hex(8)}
    answer = run_child([*shipped.own_command(), *arguments], seconds, env, stdin, _MOST_OUTPUT_BYTES)
    if answer.status is None or answer.status < 0 or answer.status == MISUSE or not answer.out.strip():
        last = answer.complaint or answer.how
        raise DoctorError(last.removeprefix("gpudoctor: ") if answer.status == MISUSE else f"{answer.how}: {last}")
    return answer.out


def document(arguments: Sequence[str], seconds: float, stdin: str = "") -> dict[str, Any]:
    """Run gpudoctor with these arguments and parse the one JSON object it prints; raises `DoctorError` without one."""
    text = output_of(arguments, seconds, stdin)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DoctorError(f"gpudoctor printed no document: {text[:200]!r}") from error
    if not isinstance(found, dict):
        raise DoctorError("gpudoctor printed several documents where one was meant")
    return found

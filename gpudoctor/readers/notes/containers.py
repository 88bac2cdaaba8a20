"""How a container was started: commands, compose files, pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases

EXACT = 3
_MOST_LINES = 500
"""Lines that are looked at for what a container asks for."""

FACTS = (fact("container.asks_gpus", "bool", "whether the command, compose file or pod that starts it asks for GPUs"),)

_RUN = Pattern(
    r"(?<![\w-])(?P<engine>nvidia-docker2?|docker|podman|nerdctl|apptainer|singularity)\s+(?:container\s+)?"
    r"(?P<verb>run|create|exec|shell|instance start)\b(?P<args>(?:[^:\n]|:(?!\s)){0,900})(?::\s+\S.*)?$"
)
_ASKS = Pattern(
    r"--gpus\b|--runtime[= ]\S*nvidia|nvidia\.com/gpu|--device[= ]/dev/nvidia|--nv(?:ccli)?\b"
    r"|NVIDIA_VISIBLE_DEVICES=(?!void|none)"
)
_UNCLEAR = Pattern(r"--(?:help|version)\b|(?:^|\s)\$[({]?(?!PWD|HOME|pwd)\w|\.\.\.(?:\s|$)")
"""Arguments that do not show all options: a variable or an ellipsis in their place."""
_REAL = Pattern(r"(?:^|\s)-{1,2}\w|\w/\w|\w:\w|\.(?:sif|simg)\b|\b(?:nvidia-smi|python\d?|bash|sh)\b")
"""What tells a command from a sentence about ``docker run``."""
_ARGUMENTS = Pattern(
    r"(?:docker|podman|container|run|docker run|podman run|apptainer|singularity)"
    r"(?: run| exec| create)? (?:args|arguments|flags|options|opts|parameters|switches)"
    r"|(?:run|launched|started|created|start) with"
)
"""Labels whose value is the options that a container is started with."""
_SPEC = Pattern(
    r"(?i)^\W*(?:nvidia\.com/gpu[\w.-]{0,60}\W{1,120}[1-9]|runtime: ?nvidia\b|runtimeClassName: ?nvidia"
    r"|driver: ?nvidia\b)"
)
_HOMES = frozenset(
    phrases(
        "runs in | running in | run in | runs inside | running inside | runs on | running on | where | environment"
        " | platform | deployment | deployed in | started in | executed in | setup | installation | installed in"
    )
)
_HOME = Pattern(
    r"(?i)^(?:(?:inside|in|a|an|the|official|own|rootless|training \w+|\w+ (?:in|inside)) ){0,6}"
    r"(?P<engine>docker|podman|lxc|apptainer|singularity|kubernetes|k8s)\b"
    r"(?![^\n]*\b(?:not|no longer|instead|works|host)\b)"
    r"[^,;\n]{0,20}?\b(?:container|pod|image|compose)\b"
)
"""Where something runs: ``runs in: Docker container with the nvidia runtime``."""
_KINDS = {"k8s": "kubernetes", "singularity": "apptainer"}

_WORTH = (
    *("docker", "podman", "nerdctl", "apptainer", "singularity", "container", "compose"),
    *("nvidia-smi", "nvidia smi", "nvidia.com/gpu", "runtimeclass", " pod"),
)
"""Words without which the text says nothing of these."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """host.container and container.asks_gpus from commands, compose files and pods in the text."""
    if any(word in paste.lower for word in _WORTH):
        yield from _container_of_label(paste)
        yield from _gpu_request_of_commands(paste)
        yield from _gpu_request_of_manifest(paste)


def _container_of_label(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.container from a label such as ``runs in: Docker container``."""
    for label in paste.labels:
        if label.name in _HOMES and (match := _HOME.match(label.value)):
            engine = match["engine"].lower()
            yield "host.container", Known(_KINDS.get(engine, engine), f"line {paste.numbers[label.index]}")
            return


def _gpu_request_of_commands(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """container.asks_gpus by the commands that start a container; nothing where some ask for GPUs and some do not."""
    sources_by_answer: dict[bool, str] = {}
    for index in range(len(paste.bare)):
        match = (
            _RUN.search(_joined_command(paste.bare, index))
            if any(word in paste.bare[index] for word in _ENGINES)
            else None
        )
        if not match or (match["verb"] == "exec" and match["engine"] not in _BOXES):
            continue
        if _UNCLEAR.search(match["args"]) or not _REAL.search(match["args"]):
            continue
        source = f"line {paste.numbers[index]}"
        asks_gpus = match["engine"].startswith("nvidia-docker") or bool(_ASKS.search(_engine_options(match["args"])))
        sources_by_answer.setdefault(asks_gpus, source)
    for label in paste.labels:
        if _ARGUMENTS.fullmatch(label.name) and label.value.startswith("-"):
            sources_by_answer.setdefault(bool(_ASKS.search(label.value)), f"line {paste.numbers[label.index]}")
    if len(sources_by_answer) == 1:
        for asks_gpus, source in sources_by_answer.items():
            yield "container.asks_gpus", Known(asks_gpus, source)


def _engine_options(arguments: str) -> str:
    """The arguments of a container's run command; empty where they begin with an image, not with options."""
    return "" if arguments.strip()[:1] not in "-\"'" else arguments


def _joined_command(lines: Sequence[str], index: int) -> str:
    """The command in that line joined with its continuation lines, at most 2000 characters."""
    line = lines[index][:1200]
    for next_line in lines[index + 1 : index + 30]:
        if not line.endswith("\\"):
            break
        line = f"{line[:-1]} {next_line.strip()}"[:2000]
    return line


_ENGINES = ("docker", "podman", "nerdctl", "apptainer", "singularity")
_BOXES = ("apptainer", "singularity")


_GPU_WORDS = ("gpu", "runtime", "device", "--nv", "driver:", "reservation", "deploy")


def _gpu_request_of_manifest(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """container.asks_gpus is true where a compose file or pod in the text asks for GPUs."""
    for index, _ in islice(paste.having(*_GPU_WORDS), _MOST_LINES):
        if len(paste.bare[index]) <= 400 and _SPEC.match(paste.bare[index]):
            yield "container.asks_gpus", Known(True, f"line {paste.numbers[index]}")
            return

"""How a container was started: commands, compose files, pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._lists import phrases
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 3
_MOST = 500
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
    r"^\W*(?:nvidia\.com/gpu[\w.-]{0,60}\W{1,120}[1-9]|runtime: ?nvidia\b|runtimeClassName: ?nvidia|driver: ?nvidia\b)",
    2,
)
_HOMES = frozenset(
    phrases(
        "runs in | running in | run in | runs inside | running inside | runs on | running on | where | environment"
        " | platform | deployment | deployed in | started in | executed in | setup | installation | installed in"
    )
)
_HOME = Pattern(
    r"^(?:(?:inside|in|a|an|the|official|own|rootless|training \w+|\w+ (?:in|inside)) ){0,6}"
    r"(?P<engine>docker|podman|lxc|apptainer|singularity|kubernetes|k8s)\b"
    r"(?![^\n]*\b(?:not|no longer|instead|works|host)\b)"
    r"[^,;\n]{0,20}?\b(?:container|pod|image|compose)\b",
    2,
)
"""Where something runs: ``runs in: Docker container with the nvidia runtime``."""
_KINDS = {"k8s": "kubernetes", "singularity": "apptainer"}

_WORTH = (
    *("docker", "podman", "nerdctl", "apptainer", "singularity", "container", "compose"),
    *("nvidia-smi", "nvidia smi", "nvidia.com/gpu", "runtimeclass", " pod"),
)
"""Words without which the text says nothing of these."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """What the report shows of the container from outside."""
    if any(word in paste.lower for word in _WORTH):
        yield from _homes(paste)
        yield from _commands(paste)
        yield from _specified(paste)


def _homes(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for label in paste.labels:
        if label.name in _HOMES and (home := _HOME.match(label.value)):
            engine = home["engine"].lower()
            yield "host.container", Known(_KINDS.get(engine, engine), f"line {paste.numbers[label.index]}")
            return


def _commands(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Commands that start a container; where some ask for GPUs and some do not, nobody knows which is meant."""
    asked: dict[bool, str] = {}
    for index in range(len(paste.bare)):
        match = _RUN.search(_whole(paste.bare, index)) if any(word in paste.bare[index] for word in _ENGINES) else None
        if not match or (match["verb"] == "exec" and match["engine"] not in _BOXES):
            continue
        if _UNCLEAR.search(match["args"]) or not _REAL.search(match["args"]):
            continue
        source = f"line {paste.numbers[index]}"
        asks = match["engine"].startswith("nvidia-docker") or bool(_ASKS.search(_options(match["args"])))
        asked.setdefault(asks, source)
    for label in paste.labels:
        if _ARGUMENTS.fullmatch(label.name) and label.value.startswith("-"):
            asked.setdefault(bool(_ASKS.search(label.value)), f"line {paste.numbers[label.index]}")
    if len(asked) == 1:
        for asks, source in asked.items():
            yield "container.asks_gpus", Known(asks, source)


def _options(arguments: str) -> str:
    """The arguments as far as the engine reads them: what stands behind the image is the program's."""
    return "" if arguments.strip()[:1] not in "-\"'" else arguments


def _whole(lines: Sequence[str], index: int) -> str:
    """The command in that line with the lines that a backslash joins to it."""
    line = lines[index][:1200]
    for after in lines[index + 1 : index + 30]:
        if not line.endswith("\\"):
            break
        line = f"{line[:-1]} {after.strip()}"[:2000]
    return line


_ENGINES = ("docker", "podman", "nerdctl", "apptainer", "singularity")
_BOXES = ("apptainer", "singularity")


_GPU_WORDS = ("gpu", "runtime", "device", "--nv", "driver:", "reservation", "deploy")


def _specified(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """What a compose file or a pod asks for."""
    for index, _ in islice(paste.having(*_GPU_WORDS), _MOST):
        if len(paste.bare[index]) <= 400 and _SPEC.match(paste.bare[index]):
            yield "container.asks_gpus", Known(True, f"line {paste.numbers[index]}")
            return

"""How a container was started, and what works outside of it: commands, compose files, pods, and people's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._lists import phrases
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.people._outcome import outcome
from gpudoctor.readers.people._outside import MOST, worked

EXACT = 3

FACTS = (
    fact("container.asks_gpus", "bool", "whether the command, compose file or pod that starts it asks for GPUs"),
    fact("container.host_smi", "bool", "whether nvidia-smi works on the host, outside the container"),
    fact("container.inside_smi", "bool", "whether nvidia-smi works inside the container"),
    fact("container.host_cuda", "version", "newest CUDA of the driver as nvidia-smi shows it on the host"),
    fact("container.inside_cuda", "version", "newest CUDA of the driver as nvidia-smi shows it inside the container"),
    fact("container.others_work", "bool", "whether another container of this host, started with GPUs, has them"),
    fact("container.restart_cures", "bool", "whether a container has its GPUs back once it is started again"),
)

_RUN = Pattern(
    r"(?<![\w-])(?P<engine>nvidia-docker2?|docker|podman|nerdctl|apptainer|singularity)\s+(?:container\s+)?"
    r"(?P<verb>run|create|exec|shell|instance start)\b(?P<args>(?:[^:\n]|:(?!\s)){0,900})(?::\s+(?P<result>\S.*))?$"
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
_THING = (
    r"(?:nvidia\.com/gpu\S*|runtimeClass(?:Name)?|deploy\.resources\S*|reservations?\.devices|--gpus(?: all)?|--nv\b"
    r"|(?:gpu|device|nvidia)s? (?:reservations?|requests?|limits?|resource\w*|sections?|runtime|flags?|options?)"
    r"|deploy(?:/devices)? (?:part|section|block|entry|key)|devices? (?:part|section|block)|resourceRequirements"
    r"|runtime: ?nvidia|device[_ ]requests?|DeviceRequests|gpus? ?[=:] ?[\"']?all)"
)
_WHERE = (
    r"(?:\b(?:field|flag|option|section|key|line|entry|on|in|of|the|pod|container|service|spec|compose|file)\b\W{0,2})"
)
_LACKS = Pattern(
    r"\b(?:no|without(?: an?y?)?|lacks?|lacked|missing|forgot(?:ten)?|omitted|omits|(?:did|do|does)(?:n[’']t| not)"
    r" (?:have|set|request|ask for|specify|include|contain|use|pass))\s+(?:an? |any |the )*[`'\"]?"
    rf"{_THING}|{_THING}[`'\"]?\W{{0,3}}{_WHERE}{{0,4}}(?:is |are |was |were )?"
    r"(?:not (?:set|given|present|requested|defined|specified|used|there|passed|included)"
    r"|missing|unset|absent|none|null|omitted|empty|commented out|\[\])(?!\w)",
    2,
)
_ENGINE = Pattern(r"daemon\.?\s?json|docker info|config\.toml|\bruntimes\b|containerd config", 2)
"""The engine's own configuration: what is lacking there is the toolkit's."""
_SPEC = Pattern(
    r"^\W*(?:nvidia\.com/gpu[\w.-]{0,60}\W{1,120}[1-9]|runtime: ?nvidia\b|runtimeClassName: ?nvidia|driver: ?nvidia\b)",
    2,
)
_FIXED = Pattern(r"\b(?:after|fix(?:ed|es)?|solv\w+|solution|once|when I add\w*|adding|added|works|worked)\b", 2)

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
    """What the report shows and says of the container from outside."""
    if any(word in paste.lower for word in _WORTH):
        yield from _homes(paste)
        yield from _commands(paste)
        yield from _specified(paste)
        yield from worked(paste)


def _homes(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for label in paste.labels:
        if label.name in _HOMES and (home := _HOME.match(label.value)):
            engine = home["engine"].lower()
            yield "host.container", Known(_KINDS.get(engine, engine), f"line {paste.numbers[label.index]}")
            return


def _commands(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Commands that start a container; one whose result stands behind it is a trial, unless it failed."""
    asked: dict[bool, str] = {}
    for index in range(len(paste.bare)):
        match = _RUN.search(_whole(paste.bare, index)) if any(word in paste.bare[index] for word in _ENGINES) else None
        if not match or (match["verb"] == "exec" and match["engine"] not in _BOXES):
            continue
        if _UNCLEAR.search(match["args"]) or not _REAL.search(match["args"]):
            continue
        source = f"line {paste.numbers[index]}"
        asks = match["engine"].startswith("nvidia-docker") or bool(_ASKS.search(_options(match["args"])))
        if match["result"] and outcome(match["result"]) is True:
            if asks:
                yield "container.others_work", Known(True, source)
        else:
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
    """What a compose file or a pod asks for, as shown or told. That something is lacking counts for more."""
    shown = ""
    for index, _ in islice(paste.having(*_GPU_WORDS), MOST):
        line = paste.bare[index]
        if len(line) > 400:
            continue
        if (
            (match := _LACKS.search(line))
            and not _ENGINE.search(line)
            and not _FIXED.search(line[: match.start()] + line[match.end() :])
        ):
            yield "container.asks_gpus", Known(False, f"line {paste.numbers[index]}")
            yield "host.container", Known("container", f"line {paste.numbers[index]}")
            return
        if _SPEC.match(line):
            shown = shown or f"line {paste.numbers[index]}"
    if shown:
        yield "container.asks_gpus", Known(True, shown)

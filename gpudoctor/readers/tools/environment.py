"""Environment variables: ``env`` and ``export -p`` dumps, assignments before a command, docker -e, os.environ."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._software import is_gpu_variable, variable_facts

EXACT = 6

_ASSIGNED = Pattern(
    r"(?:^|[\s;(]|-e\s?|--env[ =]|-x\s)(?:export\s+|declare -x\s+|setenv\s+|set\s+|ENV\s+|\$env:)?"
    r"([A-Z][A-Z0-9_]{2,60})\s?=\s?(?!=\s)(\"[^\"]*\"|'[^']*'|[^\s;\"']*)"
)
_WHOLE = Pattern(
    r"\s*(?:[-*]\s+)?(?:export\s+|declare -x\s+|set\s+|ENV\s+|\$env:|Environment=)?"
    r"\"?([A-Z][A-Z0-9_]{1,60})\s?=\s?(.*)$"
)
_PYTHON = Pattern(r"environ(?:\.setdefault)?[\[(]\s*['\"]([A-Z][A-Z0-9_]+)['\"]\s*[\],]\s*=?\s*['\"]([^'\"]*)['\"]")
_UNSET = Pattern(r"\s*unset\s+([A-Z][A-Z0-9_ ]+)$")
_NCCL_SET = Pattern(r"(NCCL_[A-Z0-9_]{1,80}) set by environment to ([^\s.]\S*?)\.?$")
_EXPORTS = Pattern(r"[\w./ -]{2,40}: (?:export|ENV) [A-Z][A-Z0-9_]+=\S+$")
"""``.bashrc: export NCCL_P2P_DISABLE=1``"""
_ECHO = Pattern(r"echo\s+\"?\$\{?([A-Z][A-Z0-9_]+)\}?\"?\s*$")
_GO_PAIR = Pattern(r"(?:^|\s)([A-Z][A-Z0-9_]{2,60}):([^\s\[\]]+)")
_STATED_EMPTY = Pattern(
    r"(?i)\bCUDA_VISIBLE_DEVICES\b[^\n=]{0,60}\b(?:is|was|prints?|returns?|gives?|being|becomes?|shows?|to)\b"
    r" (?:set to )?(?:an? )?(?:set (?:but|and) )?(?:empty\b(?! list)|''|\"\")"
)
_SETS = Pattern(
    r"(?i)script|code|source|command|cmd|launch|contains|sets?\b|setting|train|main\b|\.py\b|\.sh\b|\.ya?ml|\benv|job|sbatch"
    r"|config|notebook|dockerfile|compose|bashrc|profile|variable|exports?\b|manifest|\bran\b|\brun|start"
)
"""Labels behind which a setting stands as it is: ``run script contains: export CUDA_VISIBLE_DEVICES=1``."""
_TRIAL = Pattern(
    r"(?i)\b(?:works?|worked|working|fix\w*|solv\w*|solution|workaround|with|without|after|if|when|unset|tr(?:y|ied|ying)"
    r"|instead|chang\w+|should|expected|suggest\w*|recommend\w*|docs?|readme|examples?|other|another|ok|helps?)\b"
)
"""Labels of what somebody tried, or should."""
_COMMAND = (
    "python",
    "torchrun",
    "mpirun",
    "srun",
    "accelerate",
    "deepspeed",
    "docker",
    "podman",
    "bash",
    "sh ",
    "nvidia-smi",
)
_COMMAND_LABELS = frozenset(
    ("env", "environment", "launch", "launcher", "command", "cmd", "run", "docker args", "docker command", "args")
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """``env.NAME`` for every variable of GPU software that the text shows set, or unset (absent), and what follows."""
    values: dict[str, Fact] = {}
    if "=" in paste.text or "echo" in paste.text or "unset" in paste.text or "set by environment" in paste.text:
        for index, line in enumerate(paste.bare):
            if "=" in line and line[:1] != "|":
                _read_assignments(paste, index, line, values)
            elif "NCCL_" in line and (nccl_setting := _NCCL_SET.search(line)):
                values.setdefault(nccl_setting.group(1), Known(nccl_setting.group(2), paste.use(index)))
            elif "unset " in line and (unset_names := _UNSET.match(line)):
                for name in unset_names.group(1).split():
                    values.setdefault(name, Absent(f"unset ({paste.use(index)})"))
        _read_echoes(paste, values)
    for index, line in paste.having("visible_devices"):
        if _STATED_EMPTY.search(line):
            _set_once(values, "CUDA_VISIBLE_DEVICES", "", paste.use(index))
    _read_kubernetes_variables(paste, values)
    if "map[" in paste.text:
        _read_go_maps(paste, values)
    yield from variable_facts({name: value for name, value in values.items() if is_gpu_variable(name)})


def _read_assignments(paste: Paste, index: int, line: str, values: dict[str, Fact]) -> None:
    """Add the assignments in one line to `values`, where it is a command, an env dump or a setting in a script.

    A variable given two values in one line is left out.
    """
    line_assignment = _WHOLE.match(line)
    first, *rest = line.split() or [""]
    precedes_command = (first.partition("=")[0].isupper() or first in ("export", "env")) and any(
        word.startswith((*_COMMAND, "./")) or ("=" in word and word.partition("=")[0].isupper()) for word in rest
    )
    if line_assignment and is_gpu_variable(line_assignment.group(1)) and not precedes_command:
        name, value = line_assignment.groups()
        if not (line.lstrip().startswith("set ") and " " in value.strip()):
            _set_once(values, name, value.strip().strip("\"'"), paste.use(index))
        return
    label = line.partition(":")[0].strip().lower()
    is_setting_label = ": " in line and bool(_SETS.search(label)) and not _TRIAL.search(label)
    if not (
        index in paste.commands
        or precedes_command
        or is_setting_label
        or label in _COMMAND_LABELS
        or "environ" in line
        or line.startswith(_COMMAND)
        or (_EXPORTS.match(line) and not _TRIAL.search(label))
    ):
        return
    values_by_name: dict[str, set[str]] = {}
    for match in _ASSIGNED.finditer(line[:2000]):
        if is_gpu_variable(match.group(1)):
            values_by_name.setdefault(match.group(1), set()).add(match.group(2).strip("\"'"))
    for match in _PYTHON.finditer(line[:2000]) if "environ" in line else ():
        if is_gpu_variable(match.group(1)):
            values_by_name.setdefault(match.group(1), set()).add(match.group(2))
    for name, options in values_by_name.items():
        if options == {""} and precedes_command and first != "export":
            continue  # one command, kept from the GPUs on purpose
        if len(options) == 1:
            _set_once(values, name, options.pop(), paste.use(index))


def _read_kubernetes_variables(paste: Paste, values: dict[str, Fact]) -> None:
    """Add variables written ``- name: NCCL_DEBUG`` above ``value: INFO`` to `values`."""
    name = ""
    for label in paste.labels:
        if name and label.name == "value":
            _set_once(values, name, label.value, paste.use(label.index))
        name = label.value if label.name == "name" and is_gpu_variable(label.value) else ""


def _read_go_maps(paste: Paste, values: dict[str, Fact]) -> None:
    """Add the variables of ollama's ``map[CUDA_VISIBLE_DEVICES:-1 ...]`` to `values`, but for those without a value."""
    for index, line in paste.having("map["):
        inside = line[:8000].partition("map[")[2].partition(']"')[0]
        for name, value in _GO_PAIR.compiled.findall(inside):
            if is_gpu_variable(name):
                _set_once(values, name, value, paste.use(index))


def _set_once(values: dict[str, Fact], name: str, value: str, source: str) -> None:
    """Set the variable in `values`, without a trailing backslash, unless it is there already."""
    values.setdefault(name, Known(value.rstrip("\\").rstrip(), source))


def _read_echoes(paste: Paste, values: dict[str, Fact]) -> None:
    """Add the answer to ``echo $NAME``, the line below it, to `values`."""
    for index, command in paste.commands_starting("echo"):
        if (echo := _ECHO.match(command)) and index + 1 < len(paste.lines) and index + 1 not in paste.commands:
            _set_once(values, echo.group(1), paste.lines[index + 1].strip(), paste.use(index, index + 1))

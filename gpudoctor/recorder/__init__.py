"""A machine as a file that answers for it: what the probes asked and were told, hidden where it is personal."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor import doctor
from gpudoctor.hiding import Hider
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.document import brief
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.measurement import vars_of
from gpudoctor.model.secrets import variable_shown, without_secrets
from gpudoctor.model.snapshot import Progress, Snapshot
from gpudoctor.probes._changes import logs
from gpudoctor.target import Answer
from gpudoctor.target._transcripts import question
from gpudoctor.target._watched import Parts
from gpudoctor.target.protocol import answers
from gpudoctor.target.record import Command, Record, Sparse
from gpudoctor.target.record_json import from_json, to_json
from gpudoctor.target.recording import Recording, Seen

_EXITS = {"sound": 0, "impaired": 0, "broken": 1, "unknown": 3}


def record(level: str, python: str | None, progress: Progress) -> str:
    """This machine as the text of a record; raises `DoctorError` for an interpreter that is none."""
    target = Recording(level, python)
    diagnosis = doctor.check(level, progress=progress, target=target)
    _keep_stuck(target, diagnosis.snapshot)
    return json.dumps(to_json(recorded(target, diagnosis)), ensure_ascii=True, indent=1)


def recorded(target: Recording, diagnosis: Diagnosis) -> Record:
    """The record of a machine that `target` watched; its replay must give `diagnosis` again."""
    seen = target.seen
    variables = _variables(target, diagnosis.snapshot)
    hider = Hider(target.name, [_user()])
    for text in (*seen.files, *seen.folders, *seen.links, *seen.links.values(), *_named(variables)):
        hider.learn(text)
    sections = Sections()
    commands = tuple(command for answer in seen.answers if (command := sections.take(answer)))
    files, sparse, left_out = files_of(seen)
    whole = Record(
        title=_title(diagnosis.snapshot),
        level=target.level,
        files={path: hider.raw(data) for path, data in files.items()},
        sparse={
            path: replace(kept, parts=tuple((at, hider.raw(data)) for at, data in kept.parts))
            for path, kept in sparse.items()
        },
        left_out=tuple(left_out),
        links=seen.links,
        folders=tuple(path for path in seen.folders if path != "/"),
        devices={path: word for path, word in seen.devices.items() if path not in seen.files},
        denied=tuple(sorted(seen.denied)),
        space=seen.space,
        times=seen.times,
        environ=variables,
        python=target.python,
        name="record",
        commands=commands,
        nvml=sections.nvml,
        cuda=sections.cuda,
        torch_child=sections.torch,
        kernels=_kernels(sections, diagnosis.snapshot),
        expect={
            "ids": [one.id for one in diagnosis.findings if one.severity != "info"],
            "exit": _EXITS[diagnosis.verdict],
        },
    )
    return _hidden(whole, hider)


def _hidden(whole: Record, hider: Hider) -> Record:
    """It without what is personal; in what is no text only paths have been looked at."""
    raw = to_json(whole)
    host = raw["host"]
    binary = {key: host.pop(key) for key in ("bytes", "sparse") if key in host}
    hidden = hider.json(raw)
    hidden["host"].update(
        {key: {hider.text(path): kept for path, kept in part.items()} for key, part in binary.items()}
    )
    return from_json(hidden)


def _kernels(sections: Sections, snapshot: Snapshot) -> dict[str, Any] | None:
    """What the children of a ladder said, and NVML meanwhile."""
    if not sections.children:
        return None
    from gpudoctor.kernels import recall

    found = recall.measurements(snapshot)
    seen = [
        {"kernel": run.kernel, "gpu": run.gpu, **brief(vars_of(run.meanwhile))}
        for run in (found.runs if found else ())
        if run.meanwhile
    ]
    return {"children": sections.children, **({"meanwhile": seen} if seen else {})}


def _keep_stuck(target: Recording, snapshot: Snapshot) -> None:
    """Processes are looked at past the target, as there are thousands; those that hang are kept."""
    for row in listed(snapshot.rows("stuck")):
        pid = row.get("pid")
        with suppress(OSError):
            target.read(f"/proc/{pid.value if isinstance(pid, Known) else ''}/stat")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _title(snapshot: Snapshot) -> str:
    """GPUs, driver and system, in a line."""
    rows = snapshot.rows("gpu")
    names = (
        [str(state.value) for row in rows if isinstance(state := row.get("name"), Known)]
        if isinstance(rows, tuple)
        else []
    )
    parts = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    for name, words in (("driver.version", "driver {}"), ("host.os", "{}"), ("torch.version", "torch {}")):
        fact = snapshot.get(name)
        if isinstance(fact, Known):
            parts.append(words.format(fact.value))
    return ", ".join(parts)


def _variables(target: Recording, snapshot: Snapshot) -> dict[str, str]:
    """The variables that were asked for, secrets hidden. PWD is the working folder, whatever its name smells of."""
    wanted = {name.removeprefix("env.") for name in snapshot.facts if name.startswith("env.")} | target.seen.variables
    given = {name: value for name, value in target.environ.items() if name in wanted}
    return {name: value if name == "PWD" else variable_shown(name, value) for name, value in given.items()}


def _named(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


# ---- What the children of probes and ladders told, as the sections of a record that answer for them ----

_MOST_OF_STDERR = 4000
_UNKNOWN_ERROR = 999
_LIBRARIES = {"ask_nvml.py": "nvml", "ask_cuda.py": "cuda"}


@dataclass
class Sections:
    """What our children told, put back into the sections of a record; everything else is a command."""

    nvml: dict[str, Any] | None = None
    cuda: dict[str, Any] | None = None
    torch: dict[str, Any] | None = None
    children: list[dict[str, Any]] = field(default_factory=list)
    """Of a ladder."""

    def take(self, answer: Answer) -> Command | None:
        """The command, or None where it was one of our children."""
        name = next((word.rpartition("/")[2] for word in answer.argv if word.endswith(".py")), "")
        if name == "ask_torch.py":
            self.torch = {"out": list(answers(answer.out)), "err": answer.err, "status": answer.status}
        elif name == "__main__.py" and (ask := question(answer.argv)):
            err = answer.err[-_MOST_OF_STDERR:]
            said = {"ask": ask, "out": list(answers(answer.out)), "err": err, "status": answer.status}
            self.children.append(said)
        elif name in ("ask_names.py", "ask_nccl.py"):
            return None  # they say nothing but addresses
        elif name in _LIBRARIES:
            section = _LIBRARIES[name]
            setattr(self, section, _told(answer, getattr(self, section)))
        else:
            hangs = answer.status is None
            return Command(answer.argv, answer.status or 0, answer.out, answer.err, hangs)
        return None


def _told(answer: Answer, before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A section of a native library from its child's lines; a later child adds to what an earlier one told."""
    section: dict[str, Any] = {"system": {}, "gpus": [], "faults": [], **(before or {})}
    asked: Mapping[str, Any] | None = None
    loaded = False
    for entry in answers(answer.out):
        call, gpu = entry.get("call"), entry.get("gpu")
        if "ask" in entry:
            asked = entry
            continue
        if not isinstance(call, str) or not isinstance(gpu, (int, type(None))):
            continue
        if call == "library":
            loaded = loaded or "is" in entry
            section.update({"library": entry["is"]} if "is" in entry else {})
            continue
        said = entry["is"] if "is" in entry else {key: entry[key] for key in ("code", "text") if key in entry}
        asked = None
        if call == "nvmlInit":
            failed = said if isinstance(said, dict) else {"code": 0}
            section.update({"init": failed["code"], "init_text": str(failed.get("text", ""))})
        elif answer.argv[-1] == "unmasked":  # the same calls, once more without CUDA_VISIBLE_DEVICES
            section["unmasked"] = {**section.get("unmasked", {}), call: said}
        else:
            _calls(section, gpu)[call] = said
    if not loaded and not before:
        return None
    if asked and (answer.status is None or answer.status < 0):
        call, gpu = str(asked["ask"]), asked.get("gpu")
        fault = {"call": call.partition("(")[0], "gpu": gpu, "do": "crash" if answer.status else "hang"}
        _calls(section, gpu).setdefault(call, {"code": _UNKNOWN_ERROR})  # the place where it fails
        section["faults"] = [*section["faults"], {key: value for key, value in fault.items() if value is not None}]
    return section


def _calls(section: dict[str, Any], gpu: int | None) -> dict[str, Any]:
    if gpu is None:
        return section["system"]  # type: ignore[no-any-return]
    section["gpus"] += [{} for _ in range(gpu + 1 - len(section["gpus"]))]
    return section["gpus"][gpu]  # type: ignore[no-any-return]


# ---- The files of a record ----
# Whole, in parts or left out, and without what no diagnosis needs.

_MOST_OF_A_FILE = 8 << 20
_MOST_IN_ALL = 20 << 20
_WHOLE = 1 << 16
"""Bytes of the largest binary file that is kept whole, as bytes; larger ones are kept compressed."""

_LOG = "/dev/kmsg"
_DRIVERS_OWN = re.compile(r"nvidia|fabricmanager|nvlsm|imex")
"""Logs that hold nothing but what a record is for."""

_ROTATED = re.compile(r"/var/log/.*\.gz")
"""Old logs: nobody's name can be hidden in them as they are."""

_ADDRESSES = re.compile(r"/proc/(?:self/|\d+/)?net/|/etc/hosts$")
"""Files left out of a record: they hold the network addresses of this machine and its neighbours, in many spellings."""

_LOG_LINES = re.compile(
    r"Linux version|Command line|nvidia|nvrm|\bxid\b|nouveau|nova|NVLRM|nvlink|nvswitch|\bpci|\baer\b|iommu|dmar|\bsmmu"
    r"|vfio|oom|out of memory|killed process|mce|machine check|hardware error|edac|secure ?boot|lockdown|taint|module"
    r"|signature|mlx|infiniband|rdma|hypervisor|blocked for more|hung|bug:|oops|call trace|thermal|memory cgroup",
    re.IGNORECASE,
)
"""Lines of the kernel's log that a record keeps: those about hardware, drivers, modules and memory."""


def files_of(seen: Seen) -> tuple[dict[str, bytes], dict[str, Sparse], list[str]]:
    """Whole files, large or partly read ones, and those that would make the record too large."""
    files: dict[str, bytes] = {}
    sparse: dict[str, Sparse] = {}
    left_out: list[str] = []
    room = _MOST_IN_ALL
    kept = ((path, parts) for path, parts in seen.files.items() if not _ADDRESSES.match(path))
    for path, parts in sorted(kept, key=lambda entry: sum(len(data) for _, data in entry[1].read)):
        joined = parts.joined()
        size = sum(len(data) for _, data in joined)
        room -= size
        if logs.PACKAGES.fullmatch(path) and joined:
            files[path] = logs.screened(joined[-1][1].decode("utf-8", "replace")).encode()
        elif size > _MOST_OF_A_FILE or room < 0 or _ROTATED.fullmatch(path):
            left_out.append(path)
        elif _is_whole(parts, joined) and (size <= _WHOLE or _is_text(joined[0][1])):
            files[path] = _screened(path, joined[0][1] if joined else b"")
        else:
            size = max(parts.size, *(at + len(data) for at, data in joined or [(0, b"")]))
            sparse[path] = Sparse(size, tuple((at, _masked(data)) for at, data in joined))
    return files, sparse, left_out


def _is_whole(parts: Parts, joined: Sequence[tuple[int, bytes]]) -> bool:
    if len(joined) > 1 or (joined and joined[0][0]):
        return False
    return sum(len(data) for _, data in joined) >= parts.size


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _masked(data: bytes) -> bytes:
    """A part of a text without secrets and as long as it was, so that the next part stays in its place."""
    if not _is_text(data):
        return data
    text = data.decode()
    masked = without_secrets(text, lambda value: "*" * len(value.encode()))
    return (
        masked.encode()
        if len(masked.encode()) == len(data)
        else without_secrets(text).encode().ljust(len(data))[: len(data)]
    )


def _screened(path: str, data: bytes) -> bytes:
    """The file without what no diagnosis needs: other programs' variables and arguments, the log's other lines."""
    if path.startswith("/proc/") and path.endswith("/environ"):
        return b"\0".join(entry for entry in data.split(b"\0") if entry.startswith(b"container="))
    if path.startswith("/proc/") and path.count("/") > 2 and path.endswith("/cmdline"):
        return data.partition(b"\0")[0]
    if path == _LOG or (path.startswith("/var/log/") and not _DRIVERS_OWN.search(path)):
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(line for line in lines if _LOG_LINES.search(line)).encode()
    return data

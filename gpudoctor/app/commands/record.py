"""``record``: a machine as a file that answers for it, with what the probes asked, hidden where it is personal."""

from __future__ import annotations

import argparse
import getpass
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor.app import output, pipeline
from gpudoctor.app.output import SOUND, exit_code
from gpudoctor.app.redaction.name_patterns import ACCOUNTS, Ledger
from gpudoctor.app.redaction.numbers import Addresses, Numbers
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.document import object_to_json
from gpudoctor.core.fact import listed, text_of
from gpudoctor.core.secrets import variable_shown, without_secrets
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.texts import texts
from gpudoctor.kernels.ladder import measurements
from gpudoctor.probes._packages import LOG_PATHS, screened_log
from gpudoctor.target import Answer
from gpudoctor.target.protocol import answers
from gpudoctor.target.record import Command, Record, Sparse, from_json, to_json
from gpudoctor.target.recorded import ladder_request
from gpudoctor.target.recording import Observations, Parts, Recording
from gpudoctor.views.progress import progress_on


def record(options: argparse.Namespace) -> int:
    """``gpudoctor record``: write all answers of this machine, for a replay; exit code 0."""
    output.check(options.out)
    with progress_on(sys.stderr) as progress:
        target = Recording(options.level, options.python)
        diagnosis = pipeline.check(options.level, progress=progress, target=target)
        for row in listed(diagnosis.snapshot.rows("stuck")):
            with suppress(OSError):
                target.read(f"/proc/{text_of(row.get('pid'))}/stat")
        text = json.dumps(to_json(recorded(target, diagnosis)), ensure_ascii=True, indent=1)
    output.put(text, options.out)
    return SOUND


def recorded(target: Recording, diagnosis: Diagnosis) -> Record:
    """The record of what `target` was asked and answered; replaying it must give `diagnosis` again.

    User and host names, addresses, serial numbers, UUIDs and secrets in it are replaced; it holds the findings and exit
    code that are expected.
    """
    seen = target.seen
    variables = _variables(target, diagnosis.snapshot)
    hider = Hider(target.name, [_current_user()])
    settings = (f"{name}={value}" for name, value in variables.items())
    for text in (*seen.files, *seen.folders, *seen.links, *seen.links.values(), *settings):
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
        inodes=seen.inodes,
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
            "ids": [finding.id for finding in diagnosis.findings if finding.severity != "info"],
            "exit": exit_code(diagnosis),
        },
    )
    raw = to_json(whole)
    host = raw["host"]
    binary = {key: host.pop(key) for key in ("bytes", "sparse") if key in host}
    hidden = hider.json(raw)
    hidden["host"].update(
        {key: {hider.text(path): kept for path, kept in part.items()} for key, part in binary.items()}
    )
    return from_json(hidden)


def _kernels(sections: Sections, snapshot: Snapshot) -> dict[str, Any] | None:
    """The record's section of kernels: output of their children, and NVML samples meanwhile; None if none ran."""
    if not sections.children:
        return None
    measured = measurements(snapshot)
    meanwhile = [
        {"kernel": run.kernel, "gpu": run.gpu, **object_to_json(run.meanwhile, sparse=True)}
        for run in (measured.runs if measured else ())
        if run.meanwhile
    ]
    return {"children": sections.children, **({"meanwhile": meanwhile} if meanwhile else {})}


def _current_user() -> str:
    """Login name of the current user, empty if it is unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _title(snapshot: Snapshot) -> str:
    """Title of the record: GPUs, driver, system and torch in one line."""
    names = [name for row in listed(snapshot.rows("gpu")) if (name := text_of(row.get("name")))]
    parts = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    for name, words in (("driver.version", "driver {}"), ("host.os", "{}"), ("torch.version", "torch {}")):
        if value := snapshot.text(name):
            parts.append(words.format(value))
    return ", ".join(parts)


def _variables(target: Recording, snapshot: Snapshot) -> dict[str, str]:
    """The environment variables that were asked for, by name, with secrets hidden; PWD is kept as it is."""
    wanted = {name.removeprefix("env.") for name in snapshot.facts if name.startswith("env.")} | target.seen.variables
    given = {name: value for name, value in target.environ.items() if name in wanted}
    return {name: value if name == "PWD" else variable_shown(name, value) for name, value in given.items()}


# ---- What the children of probes and ladders told, as the sections of a record that answer for them ----

_MOST_STDERR_BYTES = 4000
_UNKNOWN_ERROR = 999
_LIBRARIES = {"ask_nvml.py": "nvml", "ask_cuda.py": "cuda"}


@dataclass
class Sections:
    """Sections of a record made from the output of our own child processes."""

    nvml: dict[str, Any] | None = None
    cuda: dict[str, Any] | None = None
    torch: dict[str, Any] | None = None
    children: list[dict[str, Any]] = field(default_factory=list)
    """Of a ladder."""

    def take(self, answer: Answer) -> Command | None:
        """The answer as a recorded command; None for one of our own children's, which fills a section or is dropped."""
        name = next((word.rpartition("/")[2] for word in answer.argv if word.endswith(".py")), "")
        if name == "ask_torch.py":
            self.torch = {"out": list(answers(answer.out)), "err": answer.err, "status": answer.status}
        elif name == "__main__.py" and (ask := ladder_request(answer.argv)):
            err = answer.err[-_MOST_STDERR_BYTES:]
            command = {"ask": ask, "out": list(answers(answer.out)), "err": err, "status": answer.status}
            self.children.append(command)
        elif name in ("ask_names.py", "ask_nccl.py"):
            return None  # they say nothing but addresses
        elif name in _LIBRARIES:
            section = _LIBRARIES[name]
            setattr(self, section, _library_section(answer, getattr(self, section)))
        else:
            hangs = answer.status is None
            return Command(answer.argv, answer.status or 0, answer.out, answer.err, hangs)
        return None


def _library_section(answer: Answer, earlier: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Section of a native library (NVML, CUDA) from its child's lines, added to the section of an `earlier` child.

    None if the library could not be loaded and there is no `earlier`. The call that crashed or hung is listed under
    ``faults``.
    """
    section: dict[str, Any] = {"system": {}, "gpus": [], "faults": [], **(earlier or {})}
    pending: Mapping[str, Any] | None = None
    loaded = False
    for entry in answers(answer.out):
        call, gpu = entry.get("call"), entry.get("gpu")
        if "ask" in entry:
            pending = entry
            continue
        if not isinstance(call, str) or not isinstance(gpu, (int, type(None))):
            continue
        if call == "library":
            loaded = loaded or "is" in entry
            section.update({"library": entry["is"]} if "is" in entry else {})
            continue
        reply = entry["is"] if "is" in entry else {key: entry[key] for key in ("code", "text") if key in entry}
        pending = None
        if call == "nvmlInit":
            failed = reply if isinstance(reply, dict) else {"code": 0}
            section.update({"init": failed["code"], "init_text": str(failed.get("text", ""))})
        elif answer.argv[-1] == "unmasked":  # the same calls, once more without CUDA_VISIBLE_DEVICES
            section["unmasked"] = {**section.get("unmasked", {}), call: reply}
        else:
            _answers_of(section, gpu)[call] = reply
    if not loaded and not earlier:
        return None
    if pending and (answer.status is None or answer.status < 0):
        call, gpu = str(pending["ask"]), pending.get("gpu")
        fault = {"call": call.partition("(")[0], "gpu": gpu, "do": "crash" if answer.status else "hang"}
        _answers_of(section, gpu).setdefault(call, {"code": _UNKNOWN_ERROR})  # the place where it fails
        section["faults"] = [*section["faults"], {key: value for key, value in fault.items() if value is not None}]
    return section


def _answers_of(section: dict[str, Any], gpu: int | None) -> dict[str, Any]:
    """The section's dictionary, to be filled, of a GPU's answers by call, added if missing; the system's for None."""
    if gpu is None:
        return section["system"]  # type: ignore[no-any-return]
    section["gpus"] += [{} for _ in range(gpu + 1 - len(section["gpus"]))]
    return section["gpus"][gpu]  # type: ignore[no-any-return]


# ---- The files of a record ----
# Whole, in parts or left out, and without what no diagnosis needs.

_MOST_FILE_BYTES = 8 << 20
_MOST_RECORD_BYTES = 20 << 20
_MOST_PLAIN_BYTES = 1 << 16
"""Bytes of the largest binary file that is kept whole, as bytes; larger ones are kept compressed."""

_LOG = "/dev/kmsg"
_DRIVER_LOGS = re.compile(r"nvidia|fabricmanager|nvlsm|imex")
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


def files_of(seen: Observations) -> tuple[dict[str, bytes], dict[str, Sparse], list[str]]:
    """Files kept whole, by path; large or partly read ones in parts; and the paths of those left out, for their size or
    as rotated logs (``.gz``).

    Secrets are masked, logs reduced to what a diagnosis needs, and files of network addresses left out and not listed.
    """
    files: dict[str, bytes] = {}
    sparse: dict[str, Sparse] = {}
    left_out: list[str] = []
    room = _MOST_RECORD_BYTES
    kept = ((path, parts) for path, parts in seen.files.items() if not _ADDRESSES.match(path))
    for path, parts in sorted(kept, key=lambda entry: sum(len(data) for _, data in entry[1].read)):
        joined = parts.joined()
        size = sum(len(data) for _, data in joined)
        room -= size
        if LOG_PATHS.fullmatch(path) and joined:
            files[path] = screened_log(joined[-1][1].decode("utf-8", "replace")).encode()
        elif size > _MOST_FILE_BYTES or room < 0 or _ROTATED.fullmatch(path):
            left_out.append(path)
        elif _is_whole(parts, joined) and (size <= _MOST_PLAIN_BYTES or _is_text(joined[0][1])):
            files[path] = _relevant_content(path, joined[0][1] if joined else b"")
        else:
            size = max(parts.size, *(at + len(data) for at, data in joined or [(0, b"")]))
            sparse[path] = Sparse(size, tuple((at, _without_secrets_same_length(data)) for at, data in joined))
    return files, sparse, left_out


def _is_whole(parts: Parts, joined: Sequence[tuple[int, bytes]]) -> bool:
    """True if the parts that were read are the whole file."""
    if len(joined) > 1 or (joined and joined[0][0]):
        return False
    return sum(len(data) for _, data in joined) >= parts.size


def _is_text(data: bytes) -> bool:
    """True if the bytes are UTF-8 without a NUL."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _without_secrets_same_length(data: bytes) -> bytes:
    """A part of a file with its secrets masked, in the same number of bytes; unchanged if it is not text."""
    if not _is_text(data):
        return data
    text = data.decode()
    masked = without_secrets(text, lambda value: "*" * len(value.encode()))
    return (
        masked.encode()
        if len(masked.encode()) == len(data)
        else without_secrets(text).encode().ljust(len(data))[: len(data)]
    )


def _relevant_content(path: str, data: bytes) -> bytes:
    """The file without what no diagnosis needs: other variables, program arguments, unrelated log lines."""
    if path.startswith("/proc/") and path.endswith("/environ"):
        return b"\0".join(entry for entry in data.split(b"\0") if entry.startswith(b"container="))
    if path.startswith("/proc/") and path.count("/") > 2 and path.endswith("/cmdline"):
        return data.partition(b"\0")[0]
    if path == _LOG or (path.startswith("/var/log/") and not _DRIVER_LOGS.search(path)):
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(line for line in lines if _LOG_LINES.search(line)).encode()
    return data


# ---- What is personal in a record, replaced so that its replay still gives the same diagnosis ----
# Which numbers, addresses and accounts are whose, and the words for them, are those of sharing. A record asks for
# more care with the rest: nothing is undone or made plain, names are hidden only where they stand alone, and a user's
# name is replaced by one of the same length, so that paths inside binary files can be replaced too.

_HOME = re.compile(r"(?<![\w.-])(/(?:[\w.-]+/)*?(?:home|homes|Users|people))/([A-Za-z_][\w.-]*)")
_SERIAL_KEYS = ("nvmlDeviceGetSerial", "nvmlDeviceGetBoardSerial")
_UUID_KEYS = ("cuDeviceGetUuid", "clusterUuid", "nvmlDeviceGetUUID")
_SHORTEST_NAME = 4


class Hider:
    """Replaces names, addresses and numbers that it learnt, and what looks like a personal number or secret."""

    def __init__(self, host: str, users: Iterable[str]) -> None:
        self._ledger = Ledger()
        self._numbers = Numbers(self._ledger)
        self._addresses = Addresses(self._ledger)
        self._hosts = [name for name in dict.fromkeys((host, host.partition(".")[0])) if _is_identifying(name)]
        self._users: dict[str, str] = {}
        for user in users:
            self.user(user)

    def user(self, name: str) -> str:
        """The replacement of a user's name in a record, as long as that; the name itself if it identifies nobody. From
        then on it is replaced in every text.
        """
        if name not in self._users:
            if not _is_identifying(name):
                return name
            self._users[name] = self._ledger.word("user", name, lambda number: f"u{number}".ljust(len(name), "x"))
        return self._users[name]

    def learn(self, text: str) -> None:
        """Learn users of home folders and network addresses in this text, to be replaced everywhere."""
        for match in _HOME.finditer(text):
            self.user(match[2])
        self._addresses.learn(text)

    def text(self, text: str) -> str:
        """The text with secrets, device numbers, and the users, hosts and addresses that were learnt replaced."""
        text = self._numbers.hide(without_secrets(text))
        if self._users or self._hosts or self._addresses.known:
            text = self._name_pattern().sub(self._replacement, text)
        return text

    def raw(self, data: bytes) -> bytes:
        """The bytes of a file with the users that were learnt replaced in paths, by as many bytes."""
        for name, word in self._users.items():
            if len(name) == len(word):
                data = data.replace(f"/{name}/".encode(), f"/{word}/".encode())
        return data

    def json(self, value: Any) -> Any:
        """Parsed JSON with every text in it replaced; keys of serial numbers and UUIDs decide how."""
        for text, _ in texts(value):
            self._numbers.learn(text)
        return self._json(value, "")

    def _json(self, value: Any, key: str) -> Any:
        """The value with every text replaced; `key` is the name it stands under."""
        if isinstance(value, dict):
            return {self.text(str(name)): self._json(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._json(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in _SERIAL_KEYS:
            return self._numbers.serial(value)
        return self._numbers.whole(value) if key in _UUID_KEYS else self.text(value)

    def _name_pattern(self) -> re.Pattern[str]:
        """Pattern of all users, hosts and addresses that were learnt, the longest first, where they stand alone."""
        names = sorted({*self._users, *self._hosts, *self._addresses.known}, key=len, reverse=True)
        return re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-]|\.\d)")

    def _replacement(self, match: re.Match[str]) -> str:
        """The replacement of a user, host (``host1``) or address that `_name_pattern` matched."""
        name = match[0]
        if name in self._users:
            return self._users[name]
        return "host1" if name in self._hosts else self._addresses.word(name)


def _is_identifying(name: str) -> bool:
    """True if a name is long enough, and no account that every system has."""
    return len(name) >= _SHORTEST_NAME and name.lower() not in ACCOUNTS

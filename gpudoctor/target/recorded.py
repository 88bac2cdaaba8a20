"""A machine that is not here: its record, laid out as a tree, answers as the machine did."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.core import system
from gpudoctor.core.errors import DocumentError
from gpudoctor.target import Answer, Watch, error_words
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import MARK
from gpudoctor.target.record import Command, Record

_BIN = "/usr/bin"


class Recorded(Local):
    """A recorded machine as target: files from a temporary tree, programs' answers from the record.

    Anything that was not recorded raises `OSError` (ENODATA). Use as a context manager: the tree is removed when it
    ends. Raises `DocumentError` where the tree cannot be written.
    """

    def __init__(self, record: Record, level: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gpudoctor-record-")
        self._record = record
        root = system.long_path(self._folder.name)
        try:
            lay_out(record, Path(root))
        except (OSError, ValueError) as error:
            self._folder.cleanup()
            why = getattr(error, "strerror", None) or error
            raise DocumentError(f"the record's files cannot be laid out: {why}") from error
        super().__init__(level or record.level, root=root, environ=record.environ)
        self.name = record.name
        self._programs = {command.argv[0].rpartition("/")[2] for command in record.commands}

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def python(self) -> str | None:
        """The interpreter that was diagnosed when the record was made, by its path there; None where there was none."""
        return self._record.python

    def meanwhile(self, kernel: str, gpu: int) -> Mapping[str, Any] | None:
        """What NVML reported of that GPU while that kernel ran there; None where it was not recorded."""
        entries = (self._record.kernels or {}).get("meanwhile") or ()
        return next((entry for entry in entries if (entry.get("kernel"), entry.get("gpu")) == (kernel, gpu)), None)

    def path(self, path: str) -> Path:
        """The path in the temporary tree, which need not exist.

        Raises `PermissionError` where the machine refused it or a folder above it, `OSError` (ENODATA) where its
        content was left out of the record.
        """
        tree_path = super().path(path)
        aliases = {path, self._original_path(tree_path)}
        if any(
            alias == denied or alias.startswith(f"{denied}/") for denied in self._record.denied for alias in aliases
        ):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not aliases.isdisjoint(self._record.left_out):
            raise OSError(errno.ENODATA, "left out of the record", path)
        return tree_path

    def exists(self, path: str) -> bool:
        """Whether the machine had that path, links followed, also where its content was left out of the record."""
        return self._original_path(super().path(path)) in self._record.left_out or super().exists(path)

    def _original_path(self, tree_path: Path) -> str:
        """The path on the recorded machine of a path in the temporary tree."""
        return f"/{system.original_name(tree_path.relative_to(self._root).as_posix())}".removesuffix("/.")

    def _as_recorded(self, word: str) -> str:
        """The word of a command line, a path in the temporary tree replaced by that path on the recorded machine."""
        root = str(self._root)
        return system.original_name(word[len(root) :].replace(os.sep, "/")) if word.startswith(root) else word

    def _entry(self, folder: Sequence[str], name: str) -> tuple[str, str]:
        """The name of a folder's entry in the temporary tree, and its target if recorded as a link, else empty."""
        if system.HAS_LINKS:
            return super()._entry(folder, name)
        original = "/".join(["", *map(system.original_name, folder), name])
        return system.file_name(name), self._record.links.get(original, "")

    def listing(self, path: str) -> list[str]:
        """The recorded names in a folder, sorted, links among them; empty where the folder does not exist."""
        names = super().listing(path)
        if system.HAS_LINKS:
            return names
        folder = self._original_path(super().path(path)).rstrip("/")
        links = {link.rpartition("/")[2] for link in self._record.links if link.rpartition("/")[0] == folder}
        return sorted({*map(system.original_name, names), *links})

    def link(self, path: str) -> str:
        """The path with all symbolic links resolved, as on the recorded machine."""
        return self._original_path(self._inside(path))

    def space(self, path: str) -> tuple[int, int]:
        """Total and free bytes as recorded; raises `OSError` where not recorded."""
        if path in self._record.space:
            return self._record.space[path]
        raise OSError(errno.ENODATA, "its size was not recorded", path)

    def inodes(self, path: str) -> tuple[int, int]:
        """Total and free inodes as recorded; raises `OSError` where not recorded."""
        if path in self._record.inodes:
            return self._record.inodes[path]
        raise OSError(errno.ENODATA, "its inodes were not recorded", path)

    def modified(self, path: str) -> float:
        """Modification time as recorded, in seconds since 1970; raises `OSError` where not recorded."""
        if path in self._record.times:
            return self._record.times[path]
        raise OSError(errno.ENODATA, "when it was written was not recorded", path)

    def which(self, program: str) -> str | None:
        """Full path of the program in the first folder of the recorded PATH that has it; None where none has."""
        folders = self.environ.get("PATH", os.defpath).split(":")
        return next((f"{folder}/{program}" for folder in folders if self.exists(f"{folder}/{program}")), None)

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,  # noqa: ARG002 - a record knows one answer
        stdin: str = "",  # noqa: ARG002
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        """The recorded answer to `argv`, without running anything; raises `OSError` where none was recorded.

        A command that hung answers with the seconds it would have been waited for and no status. `watch` gets every
        line of output at once; what it returns is ignored, as are `env` and `stdin`.
        """
        argv = [self._as_recorded(word) for word in argv]
        recorded = transcript(self._record, argv)
        if recorded is None:
            recorded = next(
                (command for command in self._record.commands if _is_same_command(command.argv, argv)), None
            )
        if recorded is None:
            raise OSError(errno.ENODATA, f"what {argv[0]} answers was not recorded")
        patience = timeout if silence is None or not recorded.out else min(timeout, silence)
        seconds = patience if recorded.hangs else 0.0
        if watch:
            for line in recorded.out[:limit].split("\n"):
                watch(line)
        return Answer(
            tuple(argv),
            None if recorded.hangs else recorded.status,
            recorded.out[:limit],
            recorded.err[:limit],
            seconds,
        )


def _is_same_command(recorded: Sequence[str], requested: Sequence[str]) -> bool:
    """Whether both commands have the same arguments and program name; the program's folder does not matter."""
    return recorded[0].rpartition("/")[2] == requested[0].rpartition("/")[2] and tuple(recorded[1:]) == tuple(
        requested[1:]
    )


def lay_out(record: Record, root: Path) -> None:
    """Write the record's files, folders, links and device nodes (as plain files with their mode) under `root`.

    A recorded command's program is an empty file, so that ``which`` finds it. Raises `OSError`.
    """
    created_folders: set[Path] = set()

    def place_of(path: str) -> Path:
        """Where `path` of the machine lies under `root`; the folder that holds it is created."""
        file_path = root.joinpath(*map(system.file_name, path.split("/")[1:]))
        if file_path.parent not in created_folders:
            file_path.parent.mkdir(parents=True, exist_ok=True)
            created_folders.add(file_path.parent)
        return file_path

    for path, content in _files_to_write(record):
        file_path = place_of(path)
        file_path.write_bytes(content)
        if path.startswith(f"{_BIN}/"):
            file_path.chmod(0o755)
    for path, sparse in record.sparse.items():
        with place_of(path).open("wb") as file:
            file.truncate(sparse.size)
            for offset, data in sparse.parts:
                file.seek(offset)
                file.write(data)
    for path in record.left_out:
        place_of(path).touch()
    for path in record.folders:
        root.joinpath(*map(system.file_name, path.split("/")[1:])).mkdir(parents=True, exist_ok=True)
    for path, word in record.devices.items():
        file_path = place_of(path)
        file_path.touch()
        file_path.chmod(int(word.rpartition(" ")[2], 8))
    for path, goal in record.links.items() if system.HAS_LINKS else ():  # last: nothing may be written through them
        place_of(path).symlink_to(goal)


def _files_to_write(record: Record) -> Iterator[tuple[str, bytes]]:
    """Path and content of the recorded files, then of each recorded command's program that is not among them."""
    yield from record.files.items()
    existing = {*record.files, *record.sparse, *record.left_out, *record.links}
    for name in sorted({_program_path(command) for command in record.commands} - existing):
        yield name, b""


def _program_path(command: Command) -> str:
    """The path of a recorded command's program: as recorded, or in /usr/bin where only a name was recorded."""
    return command.argv[0] if command.argv[0].startswith("/") else f"{_BIN}/{command.argv[0]}"


# ---- What our own child programs would have printed there ----

_NOT_SUPPORTED = 3


def transcript(record: Record, argv: Sequence[str]) -> Command | None:
    """The `Command` with what the gpudoctor child started by `argv` printed; None if that is none of our children."""
    name = next((os.path.basename(word) for word in argv if word.endswith(".py")), "")  # noqa: PTH119 - a text
    if name == "ask_torch.py":
        return _torch_child_answer(record, argv)
    if name == "ask_nvml.py":
        return _library_child_answer(record.nvml, argv, "nvmlInit", "libnvidia-ml.so.1")
    if name == "__main__.py" and (ask := ladder_request(argv)):
        return _kernel_child_answer(record, argv, ask)
    if name == "ask_cuda.py":
        return _library_child_answer(record.cuda, argv, "cuInit", "libcuda.so.1")
    return None


def _torch_child_answer(record: Record, argv: Sequence[str]) -> Command:
    """What the child ``ask_torch.py`` printed; where nothing was recorded, its answer that torch is not installed."""
    recorded = record.torch_child
    if recorded is None:
        return Command(tuple(argv), out=_protocol_line({"step": "start"}) + _protocol_line({"missing": True}))
    out = "".join(_protocol_line(entry) for entry in recorded.get("out", ()))
    status = recorded.get("status", 0)
    return Command(tuple(argv), status or 0, out, str(recorded.get("err", "")), status is None)


def ladder_request(argv: Sequence[str]) -> Mapping[str, Any] | None:
    """The JSON request in the last argument of a kernel child; None where it is another program."""
    try:
        request = json.loads(argv[-1])
    except ValueError:
        return None
    return request if isinstance(request, dict) and "family" in request else None


_REQUEST_KEYS = ("family", "device", "kernels")


def _kernel_child_answer(record: Record, argv: Sequence[str], request: Mapping[str, Any]) -> Command:
    """What the kernel child with the same request printed; where none is recorded, a line that it closed.

    Requests are the same by family, device and kernels.
    """
    for child in (record.kernels or {}).get("children") or ():
        recorded_request = child.get("ask") or {}
        if all(recorded_request.get(key) == request.get(key) for key in _REQUEST_KEYS):
            out = "".join(_protocol_line(entry) for entry in child.get("out") or () if isinstance(entry, dict))
            status = child.get("status")
            return Command(tuple(argv), status or 0, out, str(child.get("err", "")), status is None)
    return Command(tuple(argv), out=_protocol_line({"closed": "the record has no answer to this", "failed": False}))


def _library_child_answer(section: Mapping[str, Any] | None, argv: Sequence[str], init: str, library: str) -> Command:
    """What the child that asks NVML or libcuda printed, rebuilt from the recorded calls, with faults applied.

    `init` is the name of the library's first call. A library that was not recorded cannot be opened.
    """
    lines: list[str] = [_protocol_line({"ask": "library", "gpu": None})]
    if section is None:
        text = f"{library}: cannot open shared object file: No such file or directory"
        lines.append(_protocol_line({"gpu": None, "call": "library", "text": text, "code": None}))
        return Command(tuple(argv), out="".join(lines))
    lines.append(_protocol_line({"gpu": None, "call": "library", "is": section.get("library", library)}))
    faults = [fault for fault in section.get("faults") or () if not str(fault["do"]).startswith("sleep")]
    left_out = _skipped_calls(argv[-1])
    if argv[-1] == "unmasked" and "unmasked" in section:
        section = {**section, "system": section["unmasked"], "gpus": ()}
    for gpu, call, recorded in _library_calls(section, init):
        if not left_out.isdisjoint({(gpu, call), (gpu, "*"), (None, call.partition("(")[0])}):
            continue
        fault = _fault_of_call(faults, gpu, call)
        if isinstance(fault, str):
            lines.append(_protocol_line({"ask": call, "gpu": gpu}))
            return Command(tuple(argv), -11, "".join(lines), hangs=fault != "crash")
        answer = recorded if fault is None else {"code": fault}
        if isinstance(answer, Mapping) and "code" in answer and answer.keys() <= {"code", "text"}:
            if answer["code"] != _NOT_SUPPORTED:
                error_name = error_words.NVML.get(answer["code"]) if init == "nvmlInit" else None
                words = answer.get("text", error_name or f"code {answer['code']}")
                lines.append(_protocol_line({"gpu": gpu, "call": call, "code": answer["code"], "text": words}))
            if call == init and answer["code"]:
                lines += [_protocol_line({"done": True})] if init == "cuInit" else []  # NVML's child just ends
                return Command(tuple(argv), out="".join(lines))
        else:
            lines.append(_protocol_line({"gpu": gpu, "call": call, "is": answer}))
    lines.append(_protocol_line({"done": True}))
    return Command(tuple(argv), out="".join(lines))


def _library_calls(section: Mapping[str, Any], init: str) -> Iterator[tuple[int | None, str, Any]]:
    """(GPU index or None for the system, call, answer) of every recorded call, the `init` call first.

    Calls recorded for every GPU are given for each; those of a GPU without an answer are left out.
    """
    code = section.get("init", 0)
    words = {"text": section["init_text"]} if section.get("init_text") else {}
    system, every = section.get("system") or {}, section.get("every") or {}  # null is as good as nothing
    if init not in system:
        yield None, init, {"code": code, **words} if code else None
    for call, answer in system.items():
        yield None, call, answer
    for index, gpu_calls in enumerate(section.get("gpus") or ()):
        for call, answer in {**every, **gpu_calls}.items():
            if answer is not None:
                yield index, call, answer


def _skipped_calls(word: str) -> set[tuple[int | None, str]]:
    """(GPU index, call) pairs that the child's JSON option ``left_out`` forbids; empty where the word is no object.

    The index None stands for the system's calls and for the call on every GPU.
    """
    try:
        options = json.loads(word)
    except ValueError:
        return set()
    return {(gpu, call) for gpu, call in options.get("left_out", ())} if isinstance(options, dict) else set()


def _fault_of_call(faults: Sequence[Mapping[str, Any]], gpu: int | None, call: str) -> str | int | None:
    """What the first matching fault does to a call: an error code, or a word (``crash``, ``hang``); None without one.

    Faults that begin only with a later call of that name do not match.
    """
    bare = call.partition("(")[0]
    for fault in faults:
        if fault.get("gpu") in (None, gpu) and fault["call"] in ("*", bare) and fault.get("from", 1) == 1:
            do = fault["do"]
            return do if isinstance(do, (int, str)) else None
    return None


def _protocol_line(entry: Mapping[str, Any]) -> str:
    """A line of the child protocol: `MARK`, the entry as JSON, a newline."""
    return f"{MARK}{json.dumps(entry)}\n"

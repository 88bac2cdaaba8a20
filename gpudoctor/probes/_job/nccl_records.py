"""What NCCL and torch record of a job while it runs: NCCL's RAS by its socket, torch's flight recorder by its files.

RAS's reports are those of ncclras; a dump is a document as torch writes it. The readers of `gpudoctor.readers.tools`
understand both.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from gpudoctor.core.fact import Reason, Unread
from gpudoctor.target.local import Local

RAS_ADDRESS = ("localhost", 28028)
"""Where NCCL's RAS listens unless NCCL_RAS_ADDR says otherwise (NCCL src/ras: NCCL_RAS_CLIENT_PORT, read 2026-11)."""
_GREETING = b"CLIENT PROTOCOL 2\n"
_RAS_SECONDS = 8.0
"""Seconds for a report: RAS itself waits 5 s for processes that do not answer it."""
_MOST_RAS_BYTES = 8 << 20
_MOST_DUMP_BYTES = 16 << 20
_DUMP_SECONDS = 3.0
_DEEPEST = 12
_MOST_VALUES = 4_000_000
_DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Variables that begin the names of dumps; the rank's number follows."""
_RECORDS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def ras_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """(host, port) at which NCCL's RAS of a rank with that environment listens: NCCL_RAS_ADDR's, else `RAS_ADDRESS`."""
    host, mark, port = environ.get("NCCL_RAS_ADDR", "").strip().rpartition(":")
    if mark and port.isascii() and port.isdecimal() and int(port) < 1 << 16:
        return host.strip("[]") or RAS_ADDRESS[0], int(port)
    return RAS_ADDRESS


def ras_report(address: tuple[str, int], seconds: float = _RAS_SECONDS) -> str | Unread:
    """The verbose report of NCCL's RAS at that address, as ncclras prints it.

    Unread if nothing listens there, or it does not answer as RAS does within `seconds`. The client greets with its
    protocol and gets the server's, asks for a time limit, and for the status; the server closes the connection at its
    end (NCCL src/ras/client.cc, read 2026-11). A server of another version answers, too.
    """
    deadline = time.monotonic() + seconds
    try:
        with socket.create_connection(address, min(2.0, seconds)) as line:
            _send(line, _GREETING, deadline)
            if not _receive_line(line, deadline).upper().startswith(b"SERVER PROTOCOL "):
                return Unread(f"{_host_and_port(address)} does not speak NCCL's RAS", reason=Reason.MALFORMED)
            _send(line, b"TIMEOUT %d\n" % max(1, int(seconds) - 3), deadline)
            if _receive_line(line, deadline).strip().upper() != b"OK":
                return Unread(f"NCCL's RAS at {_host_and_port(address)} refuses a time limit", reason=Reason.MALFORMED)
            _send(line, b"VERBOSE STATUS\n", deadline)
            return _receive(line, deadline, lambda _: False, _MOST_RAS_BYTES).decode("utf-8", "replace")
    except TimeoutError:
        return Unread(
            f"NCCL's RAS at {_host_and_port(address)} gave no answer within {seconds:g} s", reason=Reason.TIMED_OUT
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Unread(f"NCCL's RAS at {_host_and_port(address)}: {why}", reason=Reason.MISSING)


def flight_record(
    target: Local, rank: int, environ: Mapping[str, str], root: str = "", since: float = 0.0
) -> tuple[str, Mapping[str, Any]] | Unread:
    """The path of the rank's dump of torch's flight recorder, and the document in it.

    Unread if there is none to be read, or it was written before `since` (when the rank was started, in seconds of the
    Unix clock). `root` is put before the path to open it, and is no part of the path returned.

    Read in a child with a deadline, for its file system may hang. A dump is JSON, or a pickle of plain values: of any
    other pickle nothing is made.
    """
    named = next((environ[name] for name in _DUMP_VARIABLES if environ.get(name)), "")
    stems = [named] if named else [f"{_cache_folder(environ)}/torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_"]
    why = Unread(f"{stems[0]}{rank}: no dump was written", reason=Reason.MISSING)
    for stem in stems:
        if stem.startswith("/"):
            found = _read_dump(target, f"{stem}{rank}", root, since)
            if isinstance(found, dict):
                return f"{stem}{rank}", found
            why = found if found.reason is not Reason.MISSING or named else why
    if not named and any(environ.get(name) == "0" for name in _RECORDS):
        return Unread("torch's flight recorder is off in the job", reason=Reason.NOT_STATED)
    return why


def _cache_folder(environ: Mapping[str, str]) -> str:
    """The user's cache folder by a job's environment, below which torch writes dumps if no variable names a place."""
    return environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or '/tmp'}/.cache"


def _read_dump(target: Local, path: str, root: str, since: float) -> dict[str, Any] | Unread:
    """The document in the dump at `root` and `path`; unread if missing, written before `since`, or malformed."""
    try:
        written = target.run(["stat", "-c", "%Y", "--", f"{root}{path}"], _DUMP_SECONDS).out.strip()
        if written.isdecimal() and int(written) < since:
            return Unread(f"{path} is of an earlier run", reason=Reason.MISSING)
        answer = target.run(["base64", "-w", "0", "--", f"{root}{path}"], _DUMP_SECONDS, limit=_MOST_DUMP_BYTES)
    except OSError as error:
        return Unread(f"{path}: {error.strerror or error}", reason=Reason.FAILED)
    if answer.cut or not answer.ok:
        missing = "No such file" in answer.complaint
        why = "no dump was written" if missing else answer.complaint or answer.how
        return Unread(f"{path}: {why}", reason=Reason.MISSING if missing else Reason.FAILED)
    try:
        document = plain_document(base64.b64decode(answer.out))
    except (binascii.Error, ValueError) as error:
        return Unread(f"{path}: {error}", reason=Reason.MALFORMED)
    return document if isinstance(document, dict) else Unread(f"{path}: it is no dump", reason=Reason.MALFORMED)


def plain_document(data: bytes) -> Any:
    """The JSON document, or the plain values of a pickle; raises `ValueError` for anything else."""
    if data[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("it nests too deep") from None
    try:
        return _plain(_PlainUnpickler(io.BytesIO(data)).load())
    except ValueError:
        raise
    except Exception as error:  # a pickle can fail in any way
        raise ValueError(f"neither JSON nor a pickle of plain values ({type(error).__name__})") from None


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler for containers, texts and numbers only; refuses every class and function."""

    def find_class(self, module: str, name: str) -> Any:
        """Raise `ValueError`: a class or function named in a pickle would run code."""
        raise ValueError(f"its pickle names {module}.{name}"[:120])

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002
        """Raise `ValueError`: persistent ids are not supported."""
        raise ValueError("its pickle refers to something outside")


def _plain(value: object, depth: int = 0, left: list[int] | None = None) -> Any:
    """The value with lists for tuples and texts of at most 200 characters for keys.

    Raises `ValueError` for what is not plain, deep or endless. A pickle may hold the same list a million times: what
    comes out is counted.
    """
    left = [_MOST_VALUES] if left is None else left
    left[0] -= 1
    if depth > _DEEPEST or left[0] < 0:
        raise ValueError("it nests too deep, or holds too much")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1, left) for item in value]
    if isinstance(value, dict):
        return {str(key)[:200]: _plain(item, depth + 1, left) for key, item in value.items()}
    raise ValueError(f"it holds a {type(value).__name__}")


def _send(line: socket.socket, data: bytes, deadline: float) -> None:
    """Send all data; raises `TimeoutError` at `deadline` (monotonic seconds)."""
    line.settimeout(max(0.01, deadline - time.monotonic()))
    line.sendall(data)


def _receive_line(line: socket.socket, deadline: float) -> bytes:
    """One line from the server, or what it sent before it closed the connection; raises as `_receive` does, and
    `ValueError` beyond 4096 bytes.
    """
    return _receive(line, deadline, lambda data: data.endswith(b"\n"), 4096)


def _receive(line: socket.socket, deadline: float, ends: Callable[[bytes], bool], most: int) -> bytes:
    """Bytes received until `ends` is true of them or the connection closes.

    Raises `TimeoutError` at `deadline` (monotonic seconds), `ValueError` beyond `most` bytes.
    """
    data = b""
    while not ends(data):
        line.settimeout(max(0.01, deadline - time.monotonic()))
        piece = line.recv(1 << 16)
        if not piece:
            return data
        data += piece
        if len(data) > most:
            raise ValueError("it answers without end")
    return data


def _host_and_port(address: tuple[str, int]) -> str:
    """The address as text: ``localhost:28028``."""
    return f"{address[0]}:{address[1]}"

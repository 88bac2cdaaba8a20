"""The CUDA driver library, asked in a child process as a CUDA program of this session would load it.

At level quick the child only loads it and asks its version. `cuInit` belongs to level standard: it may load kernel
modules and make device files, and it takes seconds where GPUs sleep. No context is made at any level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, known, text_of, value_of
from gpudoctor.core.frozen import field, mutable
from gpudoctor.probes._loader import libcuda_kind
from gpudoctor.probes._nvml.values import COMPUTE_MODES, dashed_uuid, pci_address
from gpudoctor.probes.children import script
from gpudoctor.target import Answer, Target, Watch, error_words
from gpudoctor.target.protocol import WAKE_SECONDS, answers, patience, printable, seconds_to_wake

WAITS = True
FACTS = (
    fact(
        "cuda_driver.state",
        "text",
        "ok, or how far CUDA's driver library comes: library not found, library unusable, loaded (not yet initialised),"
        " failed, crashed, not finished (given up), hung (its process cannot be ended)",
    ),
    fact("cuda_driver.message", "text", "the loader's or the driver's words for it; absent where it is ok or loaded"),
    fact("cuda_driver.library", "text", "the file that a program asking for libcuda.so.1 really gets"),
    fact("cuda_driver.kind", "text", "what that file is: driver, stub, compat or wsl"),
    fact("cuda_driver.version", "version", "newest CUDA that this library serves, by its own word, such as 13.0"),
    fact("cuda_driver.init_code", "int", "what cuInit answers; 0 is success"),
    fact(
        "cuda_driver.init_name",
        "text",
        "the name of that code, such as CUDA_ERROR_SYSTEM_NOT_READY; absent for success",
    ),
    fact("cuda_driver.init_error", "text", "the driver's sentence for it, such as system not yet initialized"),
    fact("cuda_driver.count", "int", "devices that CUDA lists in this session, CUDA_VISIBLE_DEVICES obeyed"),
    fact(
        "cuda_driver.masked",
        "bool",
        "whether CUDA_VISIBLE_DEVICES alone keeps CUDA from every device; absent where it is not set",
    ),
    column("cuda_device.index", "int", "CUDA's number of the device in this session"),
    column("cuda_device.name", "text", "product name; of a MIG device with its profile"),
    column("cuda_device.uuid", "text", "GPU-... or MIG-..."),
    column("cuda_device.address", "text", "PCI address of its GPU, 0000:3b:00.0"),
    column("cuda_device.compute_capability", "version", "compute capability, such as 12.0"),
    column("cuda_device.memory_mib", "int", "total memory", "MiB"),
    column("cuda_device.sms", "int", "streaming multiprocessors"),
    column("cuda_device.clock_mhz", "int", "highest SM clock", "MHz"),
    column("cuda_device.memory_clock_mhz", "int", "highest memory clock", "MHz"),
    column("cuda_device.memory_bus_bits", "int", "width of the memory bus", "bit"),
    column("cuda_device.l2_kib", "int", "size of the L2 cache", "KiB"),
    column("cuda_device.shared_memory_kib", "int", "most shared memory that one block may ask for", "KiB"),
    column("cuda_device.integrated", "bool", "whether it shares the machine's memory"),
    column("cuda_device.ecc", "bool", "whether ECC is on"),
    column("cuda_device.compute_mode", "text", "Default, Exclusive_Process, Exclusive_Thread or Prohibited"),
    column("cuda_device.unified_addressing", "bool", "whether it shares one address space with the host"),
    column("cuda_device.managed_memory", "bool", "whether it can use managed memory"),
    column("cuda_device.concurrent_managed_access", "bool", "whether CPU and GPU may use managed memory at once"),
    column("cuda_device.pageable_memory_access", "bool", "whether it reads ordinary host memory (HMM or ATS)"),
    column("cuda_device.memory_pools", "bool", "whether cudaMallocAsync works"),
    column("cuda_device.gpudirect_rdma", "bool", "whether the driver offers GPUDirect RDMA (nvidia-peermem)"),
    column("cuda_device.dma_buf", "bool", "whether its memory can be handed to other devices as DMA-BUF"),
    column("cuda_device.fabric_handles", "bool", "whether memory can be shared over an NVLink fabric (IMEX)"),
    column("cuda_device.multicast", "bool", "whether NVLink SHARP multicast is supported"),
    column("cuda_device.mps", "bool", "whether contexts go through MPS"),
    column("cuda_device.peers", "list", "numbers of the devices whose memory it can reach directly, such as 1, 2"),
    column("cuda_device.error", "text", "why it does not answer; absent where it does"),
)

SECONDS = patience("GPUDOCTOR_CUDA_TIMEOUT", WAKE_SECONDS)
"""Seconds for each GPU on the bus: the library needs milliseconds where the driver stays loaded, seconds for each GPU
that it must wake.
"""

_TELL_SECONDS = 4.0
"""Seconds after which people are told what it is that takes so long."""
_MASK = "CUDA_VISIBLE_DEVICES"


def deadline(target: Target) -> float:
    """Time limit of the libcuda probe in seconds: to wake each GPU on the bus, and 8 to end a slow child."""
    return seconds_to_wake(target, SECONDS) + 8.0


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``cuda_driver`` facts and the group ``cuda_device``, by a child that calls the CUDA driver library.

    The message of a failed cuInit is also yielded, as a row of ``text``. Where CUDA lists no device under
    CUDA_VISIBLE_DEVICES, a second child asks whether it lists some without it.
    """
    started = time.monotonic()
    seconds = seconds_to_wake(target, SECONDS)
    replies = _run_child(target, "version" if target.level == "quick" else "devices", seconds)
    if isinstance(replies, Unread):
        yield from ((spec.name, replies) for spec in FACTS if not spec.group)
        yield "cuda_device", replies
        return
    yield from replies.facts.items()
    yield "cuda_device", replies.rows
    if replies.init_failure:
        yield "text", ({"line": Known(replies.init_failure, replies.source)},)
    yield "cuda_driver.masked", _masked(target, replies, seconds - (time.monotonic() - started))


def _masked(target: Target, replies: Replies, seconds: float) -> Fact:
    """Whether CUDA_VISIBLE_DEVICES alone hides every device: if CUDA lists none, a child asks again without it.

    Absent if the variable is not set, unread if a count is unread or no time (`seconds`) is left.
    """
    if _MASK not in target.environ:
        return Absent(f"{_MASK} is not set")
    count = replies.facts["cuda_driver.count"]
    if isinstance(count, (Absent, Unread)):
        return count
    if count.value != 0:
        return Known(False, count.source)
    if seconds < 0.5:
        return Unread("no time was left to ask again")
    second = _run_child(target, "unmasked", seconds)
    if isinstance(second, Unread):
        return second
    found = second.facts["cuda_driver.count"]
    return Known(found.value != 0, f"{found.source}, without {_MASK}") if isinstance(found, Known) else found


def _run_child(target: Target, depth: str, seconds: float) -> Replies | Unread:
    """Run ask_cuda.py in the target's interpreter, or in our own where that does not start it.

    Its answers as `Replies`. `depth`: ``version`` loads the library and asks its version, ``devices`` also runs cuInit,
    ``unmasked`` does so without CUDA_VISIBLE_DEVICES. Unread if neither interpreter started it.
    """
    started = time.monotonic()
    why, reason = "", Reason.UNSPECIFIED
    for python in dict.fromkeys(name for name in (target.python, sys.executable) if name):
        argv = [python, "-I", "-S", *script("ask_cuda.py"), depth]
        try:
            left = max(0.1, seconds - (time.monotonic() - started))
            answer = target.run(argv, timeout=left, watch=_progress_watch(target))
        except OSError as error:
            why = why or f"the child that asks libcuda could not be started: {error.strerror or error}"
            continue
        if next(answers(answer.out), None):
            return _parse_replies(answer, depth)
        ended = printable(f"{answer.how} {answer.complaint}".strip())
        why, reason = why or f"the child that asks libcuda did not start: {ended}", answer.reason
        if answer.status is None:
            break
    return Unread(why, reason=reason)


def _progress_watch(target: Target) -> Watch:
    """A `Watch` that reports to the target's listener the call a child is in once it has run 4 s; never ends it."""
    call, began = "the start of CUDA's driver library", time.monotonic()

    def watch(line: str | None) -> bool:
        """Note the call that `line` names; for None (no output for a while) report it after 4 s. Always True."""
        nonlocal call
        for entry in answers(line) if line else ():
            call = str(entry.get("ask", call))
        if line is None and time.monotonic() - began > _TELL_SECONDS:
            target.listener("libcuda", f"{call} has not returned yet, {time.monotonic() - began:.0f} s")
        return True

    return watch


# ---- What the child said, and how it ended, as facts ----


@mutable
class Replies:
    """The child's answers as facts and rows. `init_failure`: the message of a failed cuInit, empty if there is none."""

    source: str
    facts: dict[str, Fact] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: Unread("not asked"))
    init_failure: str = ""


def _parse_replies(answer: Answer, depth: str) -> Replies:
    """The child's output and end as `Replies`: all ``cuda_driver`` facts but ``masked``, and the devices' rows."""
    entries = list(answers(answer.out))
    by_call = {str(entry["call"]): entry for entry in entries if "call" in entry and entry.get("gpu") is None}
    library = by_call.get("library", {})
    path = str(library.get("is", ""))
    replies = Replies(f"libcuda ({printable(path)})" if "/" in path else "libcuda")
    if "is" not in library:
        _set_not_loaded(replies, library, answer, printable(library.get("text") or _describe_ending(answer, entries)))
        return replies
    why = "" if any("done" in entry for entry in entries) else printable(_describe_ending(answer, entries))
    _set_library_facts(replies, library, by_call)
    replies.facts["cuda_driver.version"] = _version_fact(by_call.get("cuDriverGetVersion"), why, replies.source)
    replies.facts.update(_init_facts(replies, by_call.get("cuInit"), why, depth))
    replies.facts.update(_state_facts(replies, answer, why, depth))
    replies.facts["cuda_driver.count"] = _count_fact(replies, by_call.get("cuDeviceGetCount"), why)
    replies.rows = _device_rows(replies.facts["cuda_driver.count"], entries, why, replies.source)
    return replies


def _set_not_loaded(replies: Replies, library: Entry, answer: Answer, message: str) -> None:
    """Set facts and rows where libcuda was not loaded: state library not found, library unusable, or how it ended.

    Other facts are absent if there is no library, else unread with `message`.
    """
    names = ("library", "kind", "version", "init_code", "init_name", "init_error", "count")
    refused = "text" in library
    named = next((name for name in ("libcuda.so.1", "nvcuda.dll") if name in message), "")
    missing = refused and named and "No such file" in message
    rest: Absent | Unread = Absent(f"the loader finds no {named}") if missing else Unread(message)
    replies.facts = {f"cuda_driver.{name}": rest for name in names}
    state = ("library not found" if missing else "library unusable") if refused else _state_of_ending(answer)
    replies.facts["cuda_driver.state"] = Known(state, "the loader") if state else Unread(message)
    replies.facts["cuda_driver.message"] = Known(message, "the loader") if state else Unread(message)
    replies.rows = rest


def _state_of_ending(answer: Answer) -> str:
    """State for a child that did not finish: crashed, hung or not finished; empty if it failed by itself.

    That it took long says nothing of the driver: only a process that even SIGKILL does not end is called hung.
    """
    if answer.status is None:
        return "" if answer.cut else "hung" if answer.stuck is not None else "not finished"
    return "crashed" if answer.status < 0 else ""


def _set_library_facts(replies: Replies, library: Entry, by_call: Mapping[str, Entry]) -> None:
    """Set the facts of the library's path and kind (driver, stub, compat or wsl); unread if the loader names no file.

    A library whose calls answer with the stub's error code is a stub.
    """
    path, real = printable(library["is"]), printable(library.get("real", library["is"]))
    kind = libcuda_kind(path, real)
    if _STUB in (by_call.get("cuDriverGetVersion", {}).get("code"), _code_of(by_call.get("cuInit", {}))):
        kind = "stub"
    placed = "/" in path
    unknown = Unread("the loader did not say which file it took")
    replies.facts["cuda_driver.library"] = Known(path, replies.source) if placed else unknown
    replies.facts["cuda_driver.kind"] = Known(kind, real) if placed or kind == "stub" else unknown


def _version_fact(entry: Entry | None, why: str, source: str) -> Fact:
    """The CUDA version that the driver gives, 13000 as 13.0; unread if the call failed or was not made.

    `why`: how the child ended, empty if it finished.
    """
    if entry is None:
        return Unread(why or "this library has no cuDriverGetVersion")
    number = entry.get("is")
    if not isinstance(number, int):
        return Unread(_describe_failure(entry))
    return Known(f"{number // 1000}.{number % 1000 // 10}", source)


def _init_facts(replies: Replies, entry: Entry | None, why: str, depth: str) -> dict[str, Fact]:
    """Facts init_code, init_name and init_error of cuInit; unread if it was not called (`entry` is None).

    Name and error are absent on success. A failure other than CUDA_ERROR_NO_DEVICE also sets `replies.init_failure`.
    """
    names = ("init_code", "init_name", "init_error")
    if entry is None:
        reason = why or ("cuInit is asked from level standard on" if depth == "version" else "cuInit was not reached")
        return {f"cuda_driver.{name}": Unread(reason) for name in names}
    code = _code_of(entry)
    if not code:
        good = Absent("cuInit succeeds")
        return {
            "cuda_driver.init_code": Known(0, replies.source),
            "cuda_driver.init_name": good,
            "cuda_driver.init_error": good,
        }
    name, sentence = _name_of(entry), _message_of(entry)
    if code != _NO_DEVICE:  # without a GPU that is no failure; where there is one, the facts tell
        replies.init_failure = f"cuInit: {_describe_failure(entry)}"
    return {
        "cuda_driver.init_code": Known(code, replies.source),
        "cuda_driver.init_name": Known(name, replies.source),
        "cuda_driver.init_error": Known(sentence, replies.source) if sentence else Absent("the library has no words"),
    }


def _state_facts(replies: Replies, answer: Answer, why: str, depth: str) -> dict[str, Fact]:
    """Facts state and message: ok, loaded (cuInit not asked), failed (cuInit), crashed, hung or not finished.

    Both unread if the child itself failed; `why`: how the child ended, empty if it finished.
    """
    code = replies.facts["cuda_driver.init_code"]
    if why:
        state, message = _state_of_ending(answer), why
        if not state:
            return {"cuda_driver.state": Unread(why), "cuda_driver.message": Unread(why)}
    elif value_of(code):
        facts = (known(replies.facts[f"cuda_driver.init_{name}"]) for name in ("error", "name", "code"))
        state, message = "failed", text_of(next(fact for fact in facts if fact))
    else:
        state = "loaded" if depth == "version" and not known(code) else "ok"
        return {"cuda_driver.state": Known(state, replies.source), "cuda_driver.message": Absent("nothing went wrong")}
    return {"cuda_driver.state": Known(state, replies.source), "cuda_driver.message": Known(message, replies.source)}


def _describe_ending(answer: Answer, entries: Sequence[Entry]) -> str:
    """Text for people: which call a child was in when it ended unfinished, and how (time limit, crash, exit)."""
    last = next((entry for entry in reversed(entries) if "ask" in entry), {"ask": "its start", "gpu": None})
    where = "the load of libcuda.so.1" if last["ask"] == "library" else str(last["ask"])
    where += f" of device {last['gpu']}" if last.get("gpu") is not None else ""
    if answer.status is None and not answer.cut:
        left = f" (pid {answer.stuck} cannot be stopped and is left behind)" if answer.stuck else ""
        return f"{where} did not return within {answer.seconds:.0f} s{left}"
    if answer.status is not None and answer.status < 0:
        return f"{where} crashed: {answer.how}"
    return f"the child that asks libcuda ended at {where}: {answer.how} {answer.complaint}".strip()


def _count_fact(replies: Replies, entry: Entry | None, why: str) -> Fact:
    """The number of devices that CUDA counts: 0 if cuInit found none, unread if cuInit failed."""
    code = replies.facts["cuda_driver.init_code"]
    if value_of(code) == _NO_DEVICE:
        return Known(0, replies.source)
    if value_of(code):
        return Unread(replies.init_failure)
    if isinstance(code, Unread):
        return code
    if entry is None:
        return Unread(why or "CUDA did not say how many devices there are")
    return Known(entry["is"], replies.source) if isinstance(entry.get("is"), int) else Unread(_describe_failure(entry))


# ---- What the child that asks libcuda said of each device, as rows ----


_ATTRIBUTES: Mapping[int, tuple[str, Callable[[int], Any]]] = {
    13: ("clock_mhz", lambda khz: khz // 1000),
    16: ("sms", int),
    18: ("integrated", bool),
    20: ("compute_mode", lambda mode: COMPUTE_MODES.get(mode, str(mode))),
    32: ("ecc", bool),
    36: ("memory_clock_mhz", lambda khz: khz // 1000),
    37: ("memory_bus_bits", int),
    38: ("l2_kib", lambda size: size >> 10),
    41: ("unified_addressing", bool),
    83: ("managed_memory", bool),
    88: ("pageable_memory_access", bool),
    89: ("concurrent_managed_access", bool),
    97: ("shared_memory_kib", lambda size: size >> 10),
    115: ("memory_pools", bool),
    116: ("gpudirect_rdma", bool),
    124: ("dma_buf", bool),
    128: ("fabric_handles", bool),
    132: ("multicast", bool),
    133: ("mps", bool),
}
"""Column and meaning of each number of CUdevice_attribute (cuda.h of CUDA 13.0); 75 and 76 go together."""

_CALLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "cuDeviceGetName": ("name", printable),
    "cuDeviceGetPCIBusId": ("address", pci_address),
    "cuDeviceTotalMem": ("memory_mib", lambda size: size >> 20),
    **{f"cuDeviceGetAttribute({number})": convert for number, convert in _ATTRIBUTES.items()},
}
_CAPABILITY = ("cuDeviceGetAttribute(75)", "cuDeviceGetAttribute(76)")
_PEER = "cuDeviceCanAccessPeer("
_COLUMNS = ("uuid", "compute_capability", "peers", *(name for name, _ in _CALLS.values()))


_MOST_DEVICES = 1024
"""Rows made at most, whatever number a damaged driver gives."""


def _device_rows(count: Fact, entries: Sequence[Entry], why: str, source: str) -> Rows:
    """One row per device that CUDA counts, 1024 at most; absent if it counts none, absent or unread as `count` is.

    `why`: how the child ended, empty if it finished; then columns without an answer are unread.
    """
    if isinstance(count, (Absent, Unread)):
        return count
    if not isinstance(count.value, int) or count.value <= 0:
        return Absent("CUDA lists no device")
    devices: dict[int, dict[str, Entry]] = {}
    for entry in entries:
        if "call" in entry and isinstance(entry.get("gpu"), int):
            devices.setdefault(entry["gpu"], {})[str(entry["call"])] = entry
    listed = min(count.value, max(devices, default=-1) + 1 if not why else count.value, _MOST_DEVICES)
    return tuple(_device_row(source, index, devices.get(index, {}), why) for index in range(listed))


def _device_row(source: str, index: int, by_call: Mapping[str, Entry], why: str) -> Row:
    """The row of one device: each column known, unread if its call failed or the child ended early, else absent."""
    missing: Absent | Unread = Unread(why) if why else Absent("this driver does not tell it")
    lost = next((entry for call, entry in by_call.items() if call == "cuDeviceGet" and "code" in entry), None)
    row: dict[str, Fact] = {
        "index": Known(index, source),
        "error": Known(_describe_failure(lost), source)
        if lost
        else Absent("it answers")
        if by_call or not why
        else missing,
    }
    row.update(dict.fromkeys(_COLUMNS, Unread(_describe_failure(lost)) if lost else missing))
    for call, entry in by_call.items():
        column, convert = _CALLS.get(call, ("", int))
        if column:
            row[column] = _converted_fact(entry, convert, source)
    major, minor = (by_call.get(call, {}) for call in _CAPABILITY)
    if "is" in major and "is" in minor:
        row["compute_capability"] = Known(f"{major['is']}.{minor['is']}", source)
    identity = by_call.get("cuDeviceGetUuid")
    if identity is not None:
        name = str(by_call.get("cuDeviceGetName", {}).get("is", ""))
        row["uuid"] = _converted_fact(
            identity, lambda raw: f"{'MIG' if ' MIG ' in name else 'GPU'}-{dashed_uuid(raw)}", source
        )
    row["peers"] = _peers(source, by_call, missing)
    return row


def _converted_fact(entry: Entry, convert: Callable[[Any], Any], source: str) -> Fact:
    """The entry's answer through `convert`; unread if the call failed or the answer is malformed."""
    if "is" not in entry:
        return Unread(_describe_failure(entry))
    try:
        return Known(convert(entry["is"]), source)
    except (TypeError, ValueError):
        return Unread(f"the driver said {printable(entry['is'], 60)!r}")


def _peers(source: str, by_call: Mapping[str, Entry], missing: Absent | Unread) -> Fact:
    """Indexes of devices whose memory this one can reach directly; unread if a call failed or the child ended."""
    pairs = [(int(call[len(_PEER) : -1]), entry) for call, entry in by_call.items() if call.startswith(_PEER)]
    broken = next((entry for _, entry in pairs if "is" not in entry), None)
    if isinstance(missing, Unread) or broken:
        return Unread(_describe_failure(broken)) if broken else missing
    return Known(tuple(number for number, entry in pairs if entry["is"]), source)


# ---- CUDA's return codes, as the child that asks libcuda tells them ----

Entry = Mapping[str, Any]
"""One line of the child about a call: with ``is``, or with ``code``, ``name`` and ``text``."""

_STUB, _NO_DEVICE = 34, 100


def _code_of(entry: Entry) -> int:
    """The entry's CUDA return code; 0 for success. A recording may hold cuInit's code as its answer."""
    replies = entry.get("code", entry.get("is"))
    return replies if isinstance(replies, int) else 0


def _name_of(entry: Entry) -> str:
    """The name of the entry's return code: the driver's, else the table's (for a stub, or a recording of numbers)."""
    known, _ = error_words.CUDA.get(_code_of(entry), ("", ""))
    return printable(entry.get("name") or known or f"CUDA error {_code_of(entry)}")


def _message_of(entry: Entry) -> str:
    """The message for the entry's return code: the driver's, else the table's; empty if neither has one."""
    _, known = error_words.CUDA.get(_code_of(entry), ("", ""))
    return printable(entry.get("text") or known)


def _describe_failure(entry: Entry) -> str:
    """A failed call as text: ``NAME (code): message``."""
    sentence = _message_of(entry)
    return f"{_name_of(entry)} ({_code_of(entry)})" + (f": {sentence}" if sentence else "")

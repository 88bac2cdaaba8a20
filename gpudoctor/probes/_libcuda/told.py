"""What the child that asks libcuda said, and how it ended, as facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.model.frozen import field, mutable
from gpudoctor.probes._libraries.copies import kind_of
from gpudoctor.probes._nvml import smi
from gpudoctor.target import Answer, error_words
from gpudoctor.target.protocol import answers, printable


@mutable
class Told:
    """What the child told. `words` is the driver's sentence for a failed cuInit, empty where there is none."""

    source: str
    facts: dict[str, Fact] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: Unread("not asked"))
    words: str = ""


def understood(answer: Answer, depth: str) -> Told:
    """What the child's lines and its end say; `depth` is what it was asked for."""
    entries = list(answers(answer.out))
    said = {str(entry["call"]): entry for entry in entries if "call" in entry and entry.get("gpu") is None}
    library = said.get("library", {})
    path = str(library.get("is", ""))
    told = Told(f"libcuda ({printable(path)})" if "/" in path else "libcuda")
    if "is" not in library:
        _not_loaded(told, library, answer, printable(library.get("text") or _ending(answer, entries)))
        return told
    why = "" if any("done" in entry for entry in entries) else printable(_ending(answer, entries))
    _library(told, library, said)
    told.facts["cuda_driver.version"] = _version(said.get("cuDriverGetVersion"), why, told.source)
    told.facts.update(_init(told, said.get("cuInit"), why, depth))
    told.facts.update(_state(told, answer, why, depth))
    told.facts["cuda_driver.count"] = _count(told, said.get("cuDeviceGetCount"), why)
    told.rows = rows_of(told.facts["cuda_driver.count"], entries, why, told.source)
    return told


def _not_loaded(told: Told, library: Entry, answer: Answer, words: str) -> None:
    """No library to ask: it is not there, the loader cannot use it, or its load did not come to an end."""
    names = ("library", "kind", "version", "init_code", "init_name", "init_error", "count")
    refused = "text" in library
    missing = refused and "libcuda.so.1" in words and "No such file" in words
    rest: Absent | Unread = Absent("the loader finds no libcuda.so.1") if missing else Unread(words)
    told.facts = {f"cuda_driver.{name}": rest for name in names}
    state = ("library not found" if missing else "library unusable") if refused else _broken(answer)
    told.facts["cuda_driver.state"] = Known(state, "the loader") if state else Unread(words)
    told.facts["cuda_driver.message"] = Known(words, "the loader") if state else Unread(words)
    told.rows = rest


def _broken(answer: Answer) -> str:
    """How far a child came that did not come to its end; empty where it broke by itself.

    That it took long says nothing of the driver: only a process that even SIGKILL does not end is called hung.
    """
    if answer.status is None:
        return "" if answer.cut else "hung" if answer.stuck is not None else "not finished"
    return "crashed" if answer.status < 0 else ""


def _library(told: Told, library: Entry, said: Mapping[str, Entry]) -> None:
    path, real = printable(library["is"]), printable(library.get("real", library["is"]))
    kind = kind_of(path, real)
    if STUB in (said.get("cuDriverGetVersion", {}).get("code"), code_of(said.get("cuInit", {}))):
        kind = "stub"
    placed = "/" in path
    unknown = Unread("the loader did not say which file it took")
    told.facts["cuda_driver.library"] = Known(path, told.source) if placed else unknown
    told.facts["cuda_driver.kind"] = Known(kind, real) if placed or kind == "stub" else unknown


def _version(entry: Entry | None, why: str, source: str) -> Fact:
    if entry is None:
        return Unread(why or "this library has no cuDriverGetVersion")
    number = entry.get("is")
    if not isinstance(number, int):
        return Unread(failure(entry))
    return Known(f"{number // 1000}.{number % 1000 // 10}", source)


def _init(told: Told, entry: Entry | None, why: str, depth: str) -> dict[str, Fact]:
    names = ("init_code", "init_name", "init_error")
    if entry is None:
        reason = why or ("cuInit is asked from level standard on" if depth == "version" else "cuInit was not reached")
        return {f"cuda_driver.{name}": Unread(reason) for name in names}
    code = code_of(entry)
    if not code:
        good = Absent("cuInit succeeds")
        return {
            "cuda_driver.init_code": Known(0, told.source),
            "cuda_driver.init_name": good,
            "cuda_driver.init_error": good,
        }
    name, sentence = name_of(entry), sentence_of(entry)
    if code != NO_DEVICE:  # without a GPU that is no failure; where there is one, the facts tell
        told.words = f"cuInit: {failure(entry)}"
    return {
        "cuda_driver.init_code": Known(code, told.source),
        "cuda_driver.init_name": Known(name, told.source),
        "cuda_driver.init_error": Known(sentence, told.source) if sentence else Absent("the library has no words"),
    }


def _state(told: Told, answer: Answer, why: str, depth: str) -> dict[str, Fact]:
    """How far it came; a child that broke by itself says nothing of the driver."""
    code = told.facts["cuda_driver.init_code"]
    if why:
        state, message = _broken(answer), why
        if not state:
            return {"cuda_driver.state": Unread(why), "cuda_driver.message": Unread(why)}
    elif isinstance(code, Known) and code.value:
        words = told.facts["cuda_driver.init_error"]
        name = told.facts["cuda_driver.init_name"]
        state, message = "failed", str(getattr(words, "value", getattr(name, "value", code.value)))
    else:
        state = "loaded" if depth == "version" and not isinstance(code, Known) else "ok"
        return {
            "cuda_driver.state": Known(state, told.source),
            "cuda_driver.message": Absent("nothing went wrong"),
        }
    return {"cuda_driver.state": Known(state, told.source), "cuda_driver.message": Known(message, told.source)}


def _ending(answer: Answer, entries: Sequence[Entry]) -> str:
    """Where and how a child ended that did not say ``done``."""
    last = next((entry for entry in reversed(entries) if "ask" in entry), {"ask": "its start", "gpu": None})
    where = "the load of libcuda.so.1" if last["ask"] == "library" else str(last["ask"])
    where += f" of device {last['gpu']}" if last.get("gpu") is not None else ""
    if answer.status is None and not answer.cut:
        left = f" (pid {answer.stuck} cannot be stopped and is left behind)" if answer.stuck else ""
        return f"{where} did not return within {answer.seconds:.0f} s{left}"
    if answer.status is not None and answer.status < 0:
        return f"{where} crashed: {answer.how}"
    words = (answer.err.strip().splitlines() or [""])[-1]
    return f"the child that asks libcuda ended at {where}: {answer.how} {words}".strip()


def _count(told: Told, entry: Entry | None, why: str) -> Fact:
    code = told.facts["cuda_driver.init_code"]
    if isinstance(code, Known) and code.value == NO_DEVICE:
        return Known(0, told.source)
    if isinstance(code, Known) and code.value:
        return Unread(told.words)
    if isinstance(code, Unread):
        return code
    if entry is None:
        return Unread(why or "CUDA did not say how many devices there are")
    return Known(entry["is"], told.source) if isinstance(entry.get("is"), int) else Unread(failure(entry))


# ---- What the child that asks libcuda said of each device, as rows ----


def _yes(raw: int) -> bool:
    return raw != 0


_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_ATTRIBUTES: Mapping[int, tuple[str, Callable[[int], Any]]] = {
    13: ("clock_mhz", lambda khz: khz // 1000),
    16: ("sms", int),
    18: ("integrated", _yes),
    20: ("compute_mode", lambda mode: _MODES.get(mode, str(mode))),
    32: ("ecc", _yes),
    36: ("memory_clock_mhz", lambda khz: khz // 1000),
    37: ("memory_bus_bits", int),
    38: ("l2_kib", lambda size: size >> 10),
    41: ("unified_addressing", _yes),
    83: ("managed_memory", _yes),
    88: ("pageable_memory_access", _yes),
    89: ("concurrent_managed_access", _yes),
    97: ("shared_memory_kib", lambda size: size >> 10),
    115: ("memory_pools", _yes),
    116: ("gpudirect_rdma", _yes),
    124: ("dma_buf", _yes),
    128: ("fabric_handles", _yes),
    132: ("multicast", _yes),
    133: ("mps", _yes),
}
"""Column and meaning of each number of CUdevice_attribute (cuda.h of CUDA 13.0); 75 and 76 go together."""

_CALLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "cuDeviceGetName": ("name", printable),
    "cuDeviceGetPCIBusId": ("address", lambda raw: printable(smi.address(raw))),
    "cuDeviceTotalMem": ("memory_mib", lambda size: size >> 20),
    **{f"cuDeviceGetAttribute({number})": meaning for number, meaning in _ATTRIBUTES.items()},
}
_CAPABILITY = ("cuDeviceGetAttribute(75)", "cuDeviceGetAttribute(76)")
_PEER = "cuDeviceCanAccessPeer("
_COLUMNS = ("uuid", "compute_capability", "peers", *(name for name, _ in _CALLS.values()))


MOST_DEVICES = 1024
"""Rows made at most, whatever number a damaged driver gives."""


def rows_of(count: Fact, entries: Sequence[Entry], why: str, source: str) -> Rows:
    """A row for each of `count` devices; `why` says how the child ended, empty where it came to its end."""
    if isinstance(count, (Absent, Unread)):
        return count
    if not isinstance(count.value, int) or count.value <= 0:
        return Absent("CUDA lists no device")
    devices: dict[int, dict[str, Entry]] = {}
    for entry in entries:
        if "call" in entry and isinstance(entry.get("gpu"), int):
            devices.setdefault(entry["gpu"], {})[str(entry["call"])] = entry
    listed = min(count.value, max(devices, default=-1) + 1 if not why else count.value, MOST_DEVICES)
    return tuple(_row(source, index, devices.get(index, {}), why) for index in range(listed))


def _row(source: str, index: int, said: Mapping[str, Entry], why: str) -> Row:
    """One device: each column known, unread with its own reason, or absent where this driver does not tell."""
    silent: Absent | Unread = Unread(why) if why else Absent("this driver does not tell it")
    lost = next((entry for call, entry in said.items() if call == "cuDeviceGet" and "code" in entry), None)
    row: dict[str, Fact] = {
        "index": Known(index, source),
        "error": Known(failure(lost), source) if lost else Absent("it answers") if said or not why else silent,
    }
    row.update(dict.fromkeys(_COLUMNS, Unread(failure(lost)) if lost else silent))
    for call, entry in said.items():
        column, meaning = _CALLS.get(call, ("", int))
        if column:
            row[column] = _meant(entry, meaning, source)
    major, minor = (said.get(call, {}) for call in _CAPABILITY)
    if "is" in major and "is" in minor:
        row["compute_capability"] = Known(f"{major['is']}.{minor['is']}", source)
    identity = said.get("cuDeviceGetUuid")
    if identity is not None:
        name = str(said.get("cuDeviceGetName", {}).get("is", ""))
        row["uuid"] = _meant(identity, lambda raw: _uuid(raw, name), source)
    row["peers"] = _peers(source, said, silent)
    return row


def _meant(entry: Entry, meaning: Callable[[Any], Any], source: str) -> Fact:
    if "is" not in entry:
        return Unread(failure(entry))
    try:
        return Known(meaning(entry["is"]), source)
    except (TypeError, ValueError):
        return Unread(f"the driver said {printable(entry['is'], 60)!r}")


def _peers(source: str, said: Mapping[str, Entry], silent: Absent | Unread) -> Fact:
    pairs = [(int(call[len(_PEER) : -1]), entry) for call, entry in said.items() if call.startswith(_PEER)]
    broken = next((entry for _, entry in pairs if "is" not in entry), None)
    if isinstance(silent, Unread) or broken:
        return Unread(failure(broken)) if broken else silent
    return Known(tuple(number for number, entry in pairs if entry["is"]), source)


def _uuid(raw: object, name: str) -> str:
    """``GPU-`` and the 16 bytes as NVML writes them; the driver's name of a MIG device holds the word."""
    digits = printable(raw)
    parts = (digits[0:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"{'MIG' if ' MIG ' in name else 'GPU'}-{'-'.join(parts)}"


# ---- CUDA's return codes, as the child that asks libcuda tells them ----

Entry = Mapping[str, Any]
"""One line of the child about a call: with ``is``, or with ``code``, ``name`` and ``text``."""

STUB, NO_DEVICE = 34, 100


def code_of(entry: Entry) -> int:
    """A record may hold cuInit's code as its answer."""
    told = entry.get("code", entry.get("is"))
    return told if isinstance(told, int) else 0


def name_of(entry: Entry) -> str:
    """The driver's own name; from the table where it has none: a stub, or a record of numbers."""
    known, _ = error_words.CUDA.get(code_of(entry), ("", ""))
    return printable(entry.get("name") or known or f"CUDA error {code_of(entry)}")


def sentence_of(entry: Entry) -> str:
    _, known = error_words.CUDA.get(code_of(entry), ("", ""))
    return printable(entry.get("text") or known)


def failure(entry: Entry) -> str:
    """A failed call in words."""
    sentence = sentence_of(entry)
    return f"{name_of(entry)} ({code_of(entry)})" + (f": {sentence}" if sentence else "")

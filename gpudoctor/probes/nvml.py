"""The GPUs as NVML sees them, asked in a child process."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, listed
from gpudoctor.probes._nvml import groups, links, smi, talk, words
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.probes._nvml.told import HANDLE, Told
from gpudoctor.probes._reading import line, names, there
from gpudoctor.target import Target
from gpudoctor.target.protocol import printable

FACTS = (
    fact(
        "nvml.state",
        "text",
        "ok, or how NVML failed: library not found, driver not loaded, version mismatch, no permission, gpu is lost,"
        " unknown error, crashed, hung (and the kernel does not end the process that asks), library unusable; for other"
        " codes NVML's own words in small letters",
    ),
    fact("nvml.unanswered", "text", "what did not answer in time, with the time it was given; absent where all did"),
    fact("nvml.code", "int", "NVML's return code from initialisation; 0 is success"),
    fact("nvml.message", "text", "NVML's own words for it, the call that crashed, or what nvidia-smi printed"),
    fact("nvml.library_version", "version", "version of the NVML library"),
    fact("gpu.count", "int", "GPUs that the driver lists"),
    *(column.spec for column in COLUMNS),
    *groups.FACTS,
    *links.FACTS,
)

WAITS = True
_SMI_SECONDS = 4.0
_KILL_SECONDS = 6.0
"""Seconds for a child that was killed to disappear, on a busy machine."""
_MOST_GPUS = 64
_LISTED = "/proc/driver/nvidia/gpus"
ASLEEP = "the kernel has suspended the GPU; level quick does not wake it, --level standard does"

_MACHINE = (
    ("driver.version", "nvmlSystemGetDriverVersion", words.version),
    ("driver.cuda_version", "nvmlSystemGetCudaDriverVersion", words.cuda),
    ("nvml.library_version", "nvmlSystemGetNVMLVersion", words.version),
    ("gpu.count", "nvmlDeviceGetCount", words.whole),
)
_STATES = {
    4: "no permission",
    9: "driver not loaded",
    12: "library not found",
    15: "gpu is lost",
    18: "version mismatch",
    999: "unknown error",
}
_WORDLESS = frozenset({"", "library not found", "crashed"})
"""States in which NVML had no words of its own."""


def deadline(target: Target) -> float:
    """Seconds for all that the probe does on this machine."""
    return talk.limits(target, len(_listed(target))).whole + _SMI_SECONDS + _KILL_SECONDS


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """NVML's answers; where it fails, crashes or is not found, also what nvidia-smi says.

    Not where it hangs: nvidia-smi asks the same library, and would leave one more process in the driver. Level quick
    asks neither where they would load a kernel module, make a device file or wake a GPU that the kernel has suspended.
    """
    quick = target.level == "quick"
    if quick and (unasked := _unasked(target)):
        yield from _nobody(Unread(unasked.why))
        yield "gpu", Unread(unasked.why)
        yield from ((spec.name, unasked) for spec in FACTS if spec.name.startswith("nvml."))
        return
    places = _listed(target)
    asleep = {index: ASLEEP for index, place in enumerate(places) if quick and _suspended(target, place)}
    if asleep and len(asleep) == len(places):
        unread = Unread(ASLEEP)
        yield from _nobody(unread)
        yield "gpu.count", Known(len(places), _LISTED)
        every = {column.name: unread for column in COLUMNS}
        yield "gpu", tuple({**every, "address": Known(place, _LISTED)} for place in places)
        return
    awake = [(index, place) for index, place in enumerate(places) if index not in asleep] if asleep else None
    told = talk.ask(target, talk.Order(talk.limits(target, len(places)), awake, asleep, unprivileged=quick))
    if path := told.answered(None, "library"):
        told.source = f"NVML ({printable(path)})" if "/" in str(path) else "NVML"
    own = _facts(told)
    yield from own.items()
    rows = _rows(told, own["gpu.count"])
    state = _state(told)
    witness = smi.Witness()
    if not quick and not told.late and not (told.done and _healthy(rows)):
        program = target.which("nvidia-smi")
        witness = smi.ask(target, program, _SMI_SECONDS) if program else smi.Witness("nvidia-smi is not on PATH")
    yield from _outcome(told, state, witness).items()
    yield from ((name, state) for name, state in witness.facts.items() if not isinstance(own.get(name), Known))
    yield "gpu", _merged(rows, witness)
    yield from _groups(told, own["gpu.count"])
    if witness.text:
        yield "text", witness.text


def _nobody(why: Unread) -> Iterator[tuple[str, Fact | Rows]]:
    """Every fact but those of the GPUs, where NVML is not asked at all."""
    yield from (
        (name, why) for name in {*(spec.name for spec in FACTS if not spec.group), *(row[0] for row in _MACHINE)}
    )
    lists = {spec.name.rpartition(".")[0] for spec in FACTS if spec.group}
    yield from ((group, why) for group in sorted(lists - {"gpu"}))


def _listed(target: Target) -> list[str]:
    """PCI addresses of the GPUs that the kernel's driver has, in the order in which NVML counts them."""
    found = names(target, _LISTED)
    return found if isinstance(found, list) else []


def _suspended(target: Target, place: str) -> bool:
    """Whether the kernel has put that GPU to sleep: laptops do, and opening it would wake it."""
    return line(target, f"/sys/bus/pci/devices/{place}/power/runtime_status") == Known(
        "suspended", f"/sys/bus/pci/devices/{place}/power/runtime_status"
    )


def _unasked(target: Target) -> Absent | Unread | None:
    """Why level quick leaves NVML alone; None where asking changes nothing on the machine."""
    if there(target, "/dev/dxg") is True:
        return None  # WSL: the driver is Windows' own
    loaded = any(there(target, path) is True for path in ("/sys/module/nvidia", "/proc/driver/nvidia/version"))
    shown = any(there(target, path) is True for path in ("/sys/module", "/proc/modules"))  # a sandbox may show neither
    if not loaded and shown:
        return Absent("no NVIDIA kernel module is loaded; asking NVML would load it, and level quick changes nothing")
    if there(target, "/dev/nvidiactl") is not True:
        return Unread("/dev/nvidiactl is not there; asking NVML would make it, and level quick changes nothing")
    return None


def _facts(told: Told) -> dict[str, Fact]:
    if not told.started:
        return {name: Unread(told.ending) for name, _, _ in _MACHINE}
    return {name: told.fact(None, call, read) for name, call, read in _MACHINE}


def _state(told: Told) -> str:
    """NVML's state in a word; empty where it did not start in time, or our own child broke."""
    failed = {} if told.started else told.failures.get(None, {})
    if library := failed.get("library"):
        return "library not found" if "No such file" in library.text else "library unusable"
    if init := failed.get("nvmlInit") or told.lost:
        return _STATES.get(init.code or 0, smi.state_of(init.text))
    if any(fault.state == "crashed" for fault in told.faults):
        return "crashed"
    if told.stuck is not None:
        return "hung"
    return "ok" if told.done or (told.late and told.started) else ""


def _outcome(told: Told, state: str, witness: smi.Witness) -> dict[str, Fact]:
    """NVML's state by our own child, or by nvidia-smi's sentence where our child found no library to ask."""
    failed = {} if told.started else told.failures.get(None, {})
    known: Fact = Known(state, told.source) if state else Unread(told.ending)
    code: Fact = Known(0, told.source) if told.started else Unread(told.ending)
    message: Fact = Absent("NVML answered") if state == "ok" else Known(told.ending, told.source)
    if library := failed.get("library"):
        code = Absent("there is no library to initialise")
        message = Known(library.text, "the loader")
    elif init := failed.get("nvmlInit") or told.lost:
        code = Unread(init.text) if init.code is None else Known(init.code, told.source)
        message = Known(init.text, told.source)
    elif not state:
        message = Unread("; ".join(filter(None, (told.ending, witness.trouble))))
    if witness.message and state in _WORDLESS:
        message = Known(witness.message, smi.SOURCE)
        if state in {"", "library not found"} and witness.state != "ok":
            known = Known(witness.state, smi.SOURCE)
    elif not state and witness.trouble:
        known = Unread(f"{told.ending}; {witness.trouble}")
    unanswered: Fact = Absent("every call returned") if told.done or told.started else Unread(told.ending)
    if told.unanswered:
        unanswered = Known(told.unanswered, told.source)
    return {"nvml.state": known, "nvml.message": message, "nvml.code": code, "nvml.unanswered": unanswered}


def _rows(told: Told, count: Fact) -> Rows:
    """One row for each GPU that NVML counts, every column in each."""
    if not isinstance(count, Known):
        return Unread(count.why)
    assert isinstance(count.value, int)
    if count.value <= 0:
        return Absent("NVML lists no GPU")
    return tuple(_row(told, gpu) for gpu in range(min(count.value, _MOST_GPUS)))


def _row(told: Told, gpu: int) -> Row:
    row: dict[str, Fact] = {"index": Known(gpu, told.source)}
    for column in COLUMNS:
        if column.calls:
            call = next((one for one in column.calls if told.answered(gpu, one) is not None), column.calls[0])
            row[column.name] = told.fact(gpu, call, column.read)
    row.update(groups.columns(told, gpu))
    if isinstance(virtual := row["virtual"], Known) and not virtual.value:
        row["license"] = Absent("only a vGPU needs a licence")
    row["error"] = _error(told, gpu)
    row["error_code"] = _error_code(told, gpu, row["error"])
    return row


def _error(told: Told, gpu: int) -> Fact:
    crash = next((fault.why for fault in told.faults if fault.gpu == gpu and fault.state == "crashed"), "")
    opened = told.failures.get(gpu, {}).get(HANDLE)
    shut = f"{HANDLE}: {opened.text} (code {opened.code})" if opened and opened.code is not None else told.error(gpu)
    if why := crash or shut:
        return Known(why, told.source)
    if late := told.silent(gpu):
        return Unread(late)
    return Absent("it answers") if told.done or told.answers.get(gpu) else Unread(told.ending)


def _error_code(told: Told, gpu: int, error: Fact) -> Fact:
    failure = told.failure(gpu)
    if failure and failure.code is not None:
        return Known(failure.code, told.source)
    return Absent("NVML returned no code") if isinstance(error, Known) else error


def _healthy(rows: Rows) -> bool:
    """Whether NVML answered for every GPU that it lists."""
    return not isinstance(rows, tuple) or not any(isinstance(row["error"], Known) for row in rows)


def _merged(rows: Rows, witness: smi.Witness) -> Rows:
    """Rows by NVML, and what nvidia-smi adds to a GPU that NVML could not finish."""
    if isinstance(rows, Unread) and witness.rows is None:
        if "gpu.count" in witness.facts:
            return Absent(f"{smi.SOURCE}: {witness.message}")
        return Unread(f"{rows.why}; {witness.trouble}") if witness.trouble else rows
    if isinstance(rows, Absent):
        return rows
    own = _by_index(listed(rows))
    told = _by_index(witness.rows or ())
    untold = rows.why if isinstance(rows, Unread) else "NVML does not list this GPU"
    merged: list[Row] = []
    for index in sorted({*own, *told}):
        row = dict(own.get(index) or {column.name: Unread(untold) for column in COLUMNS})
        for name, state in told.get(index, {}).items():
            row[name] = row[name] if isinstance(row[name], Known) else state
        merged.append(row)
    return tuple(merged)


def _by_index(rows: tuple[Row, ...]) -> dict[int, Row]:
    """nvidia-smi leaves out a GPU that it cannot open: rows are told apart by their index, not by their place."""
    return {
        state.value: row for row in rows if isinstance(state := row["index"], Known) and isinstance(state.value, int)
    }


def _groups(told: Told, count: Fact) -> Iterator[tuple[str, Fact | Rows]]:
    """What is listed beside the GPUs; nothing is known of it where the GPUs are not."""
    if isinstance(count, Known) and isinstance(count.value, int):
        number = max(0, min(count.value, _MOST_GPUS))
        yield from groups.rows(told, number)
        yield from links.rows(told, number)
        return
    for name in ("gpu_ecc", "mig", "gpu_process", "nvlink", "p2p", "topology.pairs"):
        yield name, Unread(told.ending)

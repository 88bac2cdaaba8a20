"""The GPUs as NVML sees them, asked in a child process."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known, listed, text_of, value_of
from gpudoctor.core.frozen import field, mutable, replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.probes._nvml import groups, values
from gpudoctor.probes._nvml.client import HANDLE, NvmlRequest, Replies, ask_nvml, limits
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.probes._pci_bus import BUS
from gpudoctor.probes._reading import as_unread, line, names_in, path_exists
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import printable, text_rows

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
)

WAITS = True
_SMI_SECONDS = 4.0
_KILL_SECONDS = 6.0
"""Seconds for a child that was killed to disappear, on a busy machine."""
_MOST_GPUS = 64
_LISTED = "/proc/driver/nvidia/gpus"
"""PCI addresses of the GPUs that the kernel's driver has, in the order in which NVML counts them."""
ASLEEP = "the kernel has suspended the GPU; level quick does not wake it, --level standard does"

_MACHINE = (
    ("driver.version", "nvmlSystemGetDriverVersion", values.version),
    ("driver.cuda_version", "nvmlSystemGetCudaDriverVersion", values.cuda_version),
    ("nvml.library_version", "nvmlSystemGetNVMLVersion", values.version),
    ("gpu.count", "nvmlDeviceGetCount", values.as_int),
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
    """Time limit of the NVML probe in seconds: what NVML may take with this machine's GPUs, and nvidia-smi after it."""
    return limits(target, len(names_in(target, _LISTED))).whole + _SMI_SECONDS + _KILL_SECONDS


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields NVML's facts and groups; where it fails, crashes or is not found, also what nvidia-smi reports.

    Not where it hangs: nvidia-smi asks the same library, and would leave one more process in the driver.
    Level quick asks neither if that would load a kernel module, create a device file or wake a suspended GPU.
    """
    quick = target.level == "quick"
    if quick and (not_asked := _reason_not_to_ask(target)):
        yield from _all_but_gpus(as_unread(not_asked))
        yield "gpu", as_unread(not_asked)
        yield from ((spec.name, not_asked) for spec in FACTS if spec.name.startswith("nvml."))
        return
    places = names_in(target, _LISTED)
    asleep = {index: ASLEEP for index, place in enumerate(places) if quick and _suspended(target, place)}
    if asleep and len(asleep) == len(places):
        unread = Unread(ASLEEP)
        yield from _all_but_gpus(unread)
        yield "gpu.count", Known(len(places), _LISTED)
        every = {column.name: unread for column in COLUMNS}
        yield "gpu", tuple({**every, "address": Known(place, _LISTED)} for place in places)
        return
    awake = [(index, place) for index, place in enumerate(places) if index not in asleep] if asleep else None
    replies = ask_nvml(target, NvmlRequest(limits(target, len(places)), awake, asleep, unprivileged=quick))
    if path := replies.raw_answer(None, "library"):
        replies.source = f"NVML ({printable(path)})" if "/" in str(path) else "NVML"
    machine_facts = _machine_facts(replies)
    yield from machine_facts.items()
    rows = _gpu_rows(replies, machine_facts["gpu.count"])
    state = _state(replies)
    smi_answer = SmiAnswer()
    healthy = replies.done and not any(known(row["error"]) for row in listed(rows))
    if not quick and not replies.timed_out and not healthy:
        program = target.which("nvidia-smi")
        smi_answer = ask_smi(target, program, _SMI_SECONDS) if program else SmiAnswer("nvidia-smi is not on PATH")
    yield from _state_facts(replies, state, smi_answer).items()
    yield from ((name, state) for name, state in smi_answer.facts.items() if not known(machine_facts.get(name)))
    yield "gpu", _merge_rows(rows, smi_answer)
    yield from _group_rows(replies, machine_facts["gpu.count"])
    if smi_answer.text:
        yield "text", smi_answer.text


def _all_but_gpus(why: Unread) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields every fact and group of the NVML probe but the group ``gpu``, all unread for the same reason."""
    yield from (
        (name, why) for name in {*(spec.name for spec in FACTS if not spec.group), *(row[0] for row in _MACHINE)}
    )
    lists = {spec.name.rpartition(".")[0] for spec in FACTS if spec.group}
    yield from ((group, why) for group in sorted(lists - {"gpu"}))


def _suspended(target: Target, place: str) -> bool:
    """True if the kernel has suspended the GPU at that PCI address, by its runtime_status; opening it would wake it."""
    return text_of(line(target, f"{BUS}/{place}/power/runtime_status")) == "suspended"


def _reason_not_to_ask(target: Target) -> Absent | Unread | None:
    """Why level quick does not ask NVML; None if asking changes nothing on the machine (always on Windows and WSL).

    Absent if no NVIDIA module is loaded, unread if /dev/nvidiactl is missing: NVML would load or make it.
    """
    if target.system == "windows":
        return None  # Windows loads its drivers when it starts
    if path_exists(target, "/dev/dxg") is True:
        return None  # WSL: the driver is Windows' own
    loaded = any(path_exists(target, path) is True for path in ("/sys/module/nvidia", "/proc/driver/nvidia/version"))
    shown = any(path_exists(target, path) is True for path in ("/sys/module", "/proc/modules"))  # a sandbox: neither
    if not loaded and shown:
        return Absent("no NVIDIA kernel module is loaded; asking NVML would load it, and level quick changes nothing")
    if path_exists(target, "/dev/nvidiactl") is not True:
        return Unread("/dev/nvidiactl is not there; asking NVML would make it, and level quick changes nothing")
    return None


def _machine_facts(replies: Replies) -> dict[str, Fact]:
    """The facts driver.version, driver.cuda_version, nvml.library_version, gpu.count; unread if NVML did not start."""
    if not replies.started:
        return {name: replies.unread_rest for name, _, _ in _MACHINE}
    return {name: replies.fact(None, call, read) for name, call, read in _MACHINE}


def _state(replies: Replies) -> str:
    """The value of `nvml.state`; empty if NVML did not start in time or our own child failed."""
    failed = {} if replies.started else replies.failures.get(None, {})
    if library := failed.get("library"):
        return "library not found" if "No such file" in library.text else "library unusable"
    if init := failed.get("nvmlInit") or replies.driver_lost:
        return _STATES.get(init.code or 0, smi_state(init.text))
    if any(fault.state == "crashed" for fault in replies.faults):
        return "crashed"
    if replies.stuck is not None:
        return "hung"
    return "ok" if replies.done or (replies.timed_out and replies.started) else ""


def _state_facts(replies: Replies, state: str, smi_answer: SmiAnswer) -> dict[str, Fact]:
    """The facts nvml.state, message, code and unanswered; by nvidia-smi where our child found no library or no message.

    `state` as `_state` returns it; unread where neither our child nor nvidia-smi tells.
    """
    failed = {} if replies.started else replies.failures.get(None, {})
    ended = replies.unread_rest
    known: Fact = Known(state, replies.source) if state else ended
    code: Fact = Known(0, replies.source) if replies.started else ended
    message: Fact = Absent("NVML answered") if state == "ok" else Known(replies.ending, replies.source)
    if library := failed.get("library"):
        code = Absent("there is no library to initialise")
        message = Known(library.text, "the loader")
    elif init := failed.get("nvmlInit") or replies.driver_lost:
        code = Unread(init.text) if init.code is None else Known(init.code, replies.source)
        message = Known(init.text, replies.source)
    elif not state:
        message = Unread("; ".join(filter(None, (replies.ending, smi_answer.trouble))))
    if smi_answer.message and state in _WORDLESS:
        message = Known(smi_answer.message, SOURCE)
        if state in {"", "library not found"} and smi_answer.state != "ok":
            known = Known(smi_answer.state, SOURCE)
    elif not state and smi_answer.trouble:
        known = Unread(f"{replies.ending}; {smi_answer.trouble}")
    unanswered: Fact = Absent("every call returned") if replies.done or replies.started else ended
    if replies.unanswered:
        unanswered = Known(replies.unanswered, replies.source)
    return {"nvml.state": known, "nvml.message": message, "nvml.code": code, "nvml.unanswered": unanswered}


def _gpu_rows(replies: Replies, count: Fact) -> Rows:
    """One row per GPU that NVML counts, at most 64, every column; absent if it counts none, unread if not known."""
    if not isinstance(count, Known):
        return as_unread(count)
    assert isinstance(count.value, int)
    if count.value <= 0:
        return Absent("NVML lists no GPU")
    return tuple(_gpu_row(replies, gpu) for gpu in range(min(count.value, _MOST_GPUS)))


def _gpu_row(replies: Replies, gpu: int) -> Row:
    """The row of the group ``gpu`` for one GPU, with every column: known, absent or unread each."""
    row: dict[str, Fact] = {"index": Known(gpu, replies.source)}
    for column in COLUMNS:
        if column.calls:
            call = next((one for one in column.calls if replies.raw_answer(gpu, one) is not None), column.calls[0])
            row[column.name] = replies.fact(gpu, call, column.read)
    row.update(groups.columns(replies, gpu))
    if value_of(row["virtual"]) is False:
        row["license"] = Absent("only a vGPU needs a licence")
    row["error"] = _gpu_error(replies, gpu)
    row["error_code"] = _gpu_error_code(replies, gpu, row["error"])
    return row


def _gpu_error(replies: Replies, gpu: int) -> Fact:
    """Why this GPU does not answer; absent if it does, unread if it was not asked to the end."""
    crash = next((fault.why for fault in replies.faults if fault.gpu == gpu and fault.state == "crashed"), "")
    open_failure = replies.failures.get(gpu, {}).get(HANDLE)
    open_error = (
        f"{HANDLE}: {open_failure.text} (code {open_failure.code})"
        if open_failure and open_failure.code is not None
        else replies.error(gpu)
    )
    if why := crash or open_error:
        return Known(why, replies.source)
    if late := replies.why_silent(gpu):
        return Unread(late)
    if replies.done or replies.answers.get(gpu):
        return Absent("it answers")
    return replies.unread_rest


def _gpu_error_code(replies: Replies, gpu: int, error: Fact) -> Fact:
    """NVML's return code for a GPU that does not answer; absent if its error has none.

    Absent or unread as `error` is if that is not known.
    """
    failure = replies.failure(gpu)
    if failure and failure.code is not None:
        return Known(failure.code, replies.source)
    return Absent("NVML returned no code") if known(error) else error


def _merge_rows(rows: Rows, smi_answer: SmiAnswer) -> Rows:
    """NVML's rows and those that nvidia-smi has besides, with its values for columns that NVML left unknown.

    Where NVML could not be asked: nvidia-smi's rows, Absent where it counts no GPU, Unread where it did not answer.
    Absent where NVML counts no GPU.
    """
    if isinstance(rows, Unread) and smi_answer.rows is None:
        if "gpu.count" in smi_answer.facts:
            return Absent(f"{SOURCE}: {smi_answer.message}")
        return Unread(f"{rows.why}; {smi_answer.trouble}") if smi_answer.trouble else rows
    if isinstance(rows, Absent):
        return rows
    nvml_rows = _by_index(listed(rows))
    smi_rows = _by_index(smi_answer.rows or ())
    missing_reason = rows.why if isinstance(rows, Unread) else "NVML does not list this GPU"
    merged: list[Row] = []
    for index in sorted({*nvml_rows, *smi_rows}):
        row = dict(nvml_rows.get(index) or {column.name: Unread(missing_reason) for column in COLUMNS})
        for name, state in smi_rows.get(index, {}).items():
            row[name] = row[name] if known(row[name]) else state
        merged.append(row)
    return tuple(merged)


def _by_index(rows: tuple[Row, ...]) -> dict[int, Row]:
    """Rows by GPU index: nvidia-smi leaves out GPUs that it cannot open, so that positions do not match."""
    return {index: row for row in rows if isinstance(index := value_of(row["index"]), int)}


def _group_rows(replies: Replies, count: Fact) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups gpu_ecc, mig, gpu_process, nvlink and p2p and the fact topology.pairs, at most of 64 GPUs.

    All unread if the count of GPUs is not known.
    """
    if isinstance(gpus := value_of(count), int):
        number = max(0, min(gpus, _MOST_GPUS))
        yield from groups.rows(replies, number)
        return
    for name in ("gpu_ecc", "mig", "gpu_process", "nvlink", "p2p", "topology.pairs"):
        yield name, replies.unread_rest


# ---- nvidia-smi as the second witness, where NVML cannot be asked in our own child: read as a pasted one would be ----
# What it prints is believed only where it has the form of an answer; a script of that name that prints something else
# is no witness.

SOURCE = "nvidia-smi"

_WORDS = {
    "driver/library version mismatch": "version mismatch",
    "driver not loaded": "driver not loaded",
    "insufficient permissions": "no permission",
    "gpu is lost": "gpu is lost",
    "unknown error": "unknown error",
    "nvml shared library not found": "library not found",
}
_FIELDS = (
    "index,name,uuid,pci.bus_id,memory.total,memory.used,mig.mode.current,compute_mode,"
    "ecc.errors.uncorrected.volatile.total,temperature.gpu,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,utilization.gpu"
)
_BANNER = ("driver.version", "driver.cuda_version", "gpu.count")


@mutable
class SmiAnswer:
    """What nvidia-smi reported. `trouble`: why it gave no usable answer; `state`, `message`: its NVML error, if any."""

    trouble: str = ""
    state: str = ""
    message: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    rows: tuple[Row, ...] | None = None
    text: tuple[Row, ...] = ()


def smi_state(message: str) -> str:
    """The value of `nvml.state` for an NVML error message; another message in lower case, without its full stop."""
    plain = message.strip().rstrip(".").lower()
    return next((state for start, state in _WORDS.items() if plain.startswith(start)), plain)


def ask_smi(target: Target, program: str, seconds: float) -> SmiAnswer:
    """Run nvidia-smi for its table, parsed; again with ``--query-gpu`` if that named a driver and no error of NVML.

    `seconds` is for both. Raises nothing: `trouble` says why there is no usable answer.
    """
    try:
        answer = target.run([program], timeout=seconds)
    except OSError as error:
        return SmiAnswer(trouble=f"{program} could not be started: {error.strerror or error}")
    if answer.status is None and answer.seconds < seconds:
        return SmiAnswer(trouble=f"{program} printed without end, which is no answer of nvidia-smi")
    if answer.status is None:
        return SmiAnswer(trouble=f"{program} did not answer: {answer.how}")
    smi_answer = _parse_table_run(program, answer)
    if "driver.version" in smi_answer.facts and not smi_answer.state:
        smi_answer.rows = _query_gpus(target, program, seconds - answer.seconds) or smi_answer.rows
        if smi_answer.rows is not None:
            smi_answer.facts["gpu.count"] = Known(len(smi_answer.rows), SOURCE)
    return smi_answer


def _parse_table_run(program: str, answer: Answer) -> SmiAnswer:
    """Parses the output of nvidia-smi without arguments; `trouble` is set if it is no answer of nvidia-smi.

    Only where nvidia-smi printed an error of NVML are `state`, `message` and `text` (its lines) set.
    """
    output = f"{answer.out}\n{answer.err}"
    report = _parse_report(output)
    facts: dict[str, Fact] = {name: _with_own_source(fact) for name in _BANNER if (fact := report.known(name))}
    if not report.known("nvml.state"):
        return SmiAnswer(trouble=f"{program} printed something that is no answer of nvidia-smi ({answer.how})")
    smi_answer = SmiAnswer(facts=facts, rows=_listed_gpus(report))
    if message := report.known("nvml.message"):
        smi_answer.state = report.text("nvml.state")
        smi_answer.message = printable(message.value)
        smi_answer.text = text_rows(output, SOURCE)
    return smi_answer


def _query_gpus(target: Target, program: str, seconds: float) -> tuple[Row, ...] | None:
    """One row per GPU as ``nvidia-smi --query-gpu`` lists them; None if the run failed or a row lacks its UUID."""
    try:
        answer = target.run([program, f"--query-gpu={_FIELDS}", "--format=csv"], timeout=max(0.5, seconds))
    except OSError:
        return None
    rows = _listed_gpus(_parse_report(answer.out)) if answer.ok else None
    if not rows or not all(known(row.get("uuid")) for row in rows):
        return None
    return rows


def _parse_report(output: str) -> Snapshot:
    """The text read as a pasted report would be, with the source ``nvidia-smi``."""
    from gpudoctor.readers import read_text

    return read_text(output, SOURCE)


def _listed_gpus(report: Snapshot) -> tuple[Row, ...] | None:
    """The report's rows of group ``gpu`` that have an index, with the source ``nvidia-smi``; None without any."""
    rows = report.rows("gpu")
    indexed = [row for row in listed(rows) if known(row.get("index"))]
    return tuple(dict(_usable_columns(row)) for row in indexed) or None


def _usable_columns(row: Row) -> Iterator[tuple[str, Fact]]:
    """Yields all columns, known ones with the source ``nvidia-smi``; not a name cut short, ``GeForce RTX 3050 ...``."""
    for name, state in row.items():
        if not (name == "name" and text_of(state).endswith("...")):
            yield name, _with_own_source(state)


def _with_own_source(state: Fact) -> Fact:
    """The fact with the source ``nvidia-smi`` if it is known, else unchanged."""
    return replace(state, source=SOURCE) if isinstance(state, Known) else state

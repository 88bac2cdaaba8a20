"""nvidia-smi as the second witness, where NVML cannot be asked in our own child: read as a pasted one would be.

What it prints is believed only where it has the form of an answer; a script of that name that prints something else
is no witness.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, known, listed, text_of
from gpudoctor.core.frozen import field, mutable, replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import printable, text_rows

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


def state_of(message: str) -> str:
    """The value of `nvml.state` for an NVML error message; an unknown message in lower case, without its full stop."""
    plain = message.strip().rstrip(".").lower()
    return next((state for start, state in _WORDS.items() if plain.startswith(start)), plain)


def ask(target: Target, program: str, seconds: float) -> SmiAnswer:
    """Run nvidia-smi for its table, then with ``--query-gpu``, within `seconds` in all; a failure is in `trouble`."""
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
    """Parses a plain run of nvidia-smi; `trouble` is set if its output is no answer of nvidia-smi."""
    output = f"{answer.out}\n{answer.err}"
    report = _parse_report(output)
    facts: dict[str, Fact] = {name: _with_own_source(fact) for name in _BANNER if (fact := report.known(name))}
    if not report.known("nvml.state"):
        return SmiAnswer(trouble=f"{program} printed something that is no answer of nvidia-smi ({answer.how})")
    smi_answer = SmiAnswer(facts=facts, rows=_gpu_rows(report))
    if message := report.known("nvml.message"):
        smi_answer.state = report.text("nvml.state")
        smi_answer.message = printable(message.value)
        smi_answer.text = text_rows(output, SOURCE)
    return smi_answer


def _query_gpus(target: Target, program: str, seconds: float) -> tuple[Row, ...] | None:
    """One row per GPU as ``--query-gpu`` lists them; None if the run failed or a row lacks its UUID."""
    try:
        answer = target.run([program, f"--query-gpu={_FIELDS}", "--format=csv"], timeout=max(0.5, seconds))
    except OSError:
        return None
    rows = _gpu_rows(_parse_report(answer.out)) if answer.ok else None
    if not rows or not all(known(row.get("uuid")) for row in rows):
        return None
    return rows


def _parse_report(output: str) -> Snapshot:
    """The text read as a pasted report would be, with the source ``nvidia-smi``."""
    from gpudoctor.readers import read_text

    return read_text(output, SOURCE)


def _gpu_rows(report: Snapshot) -> tuple[Row, ...] | None:
    """The report's rows of the group ``gpu`` that have an index; None if there is none."""
    rows = report.rows("gpu")
    indexed = [row for row in listed(rows) if known(row.get("index"))]
    return tuple(dict(_usable_columns(row)) for row in indexed) or None


def _usable_columns(row: Row) -> Iterator[tuple[str, Fact]]:
    """Columns of one GPU with this source; a name that the table cut (``NVIDIA GeForce RTX 3050 ...``) is left out."""
    for name, state in row.items():
        if not (name == "name" and text_of(state).endswith("...")):
            yield name, _with_own_source(state)


def _with_own_source(state: Fact) -> Fact:
    """The fact with the source ``nvidia-smi`` if it is known, else unchanged."""
    return replace(state, source=SOURCE) if isinstance(state, Known) else state

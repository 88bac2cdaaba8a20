"""nvidia-smi as the second witness, where NVML cannot be asked in our own child: read as a pasted one would be.

What it prints is believed only where it has the form of an answer; a script of that name that prints something else
is no witness.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Row, listed
from gpudoctor.model.frozen import field, mutable, replace
from gpudoctor.model.snapshot import Snapshot
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
class Witness:
    """What nvidia-smi told. `trouble` says why it told nothing; `state` and `message` are of its error sentence."""

    trouble: str = ""
    state: str = ""
    message: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    rows: tuple[Row, ...] | None = None
    text: tuple[Row, ...] = ()


def state_of(words: str) -> str:
    """NVML's words for an error as `nvml.state` has them."""
    plain = words.strip().rstrip(".").lower()
    return next((state for start, state in _WORDS.items() if plain.startswith(start)), plain)


def ask(target: Target, program: str, seconds: float) -> Witness:
    """Ask nvidia-smi for its table, then for its GPUs one by one, within `seconds` in all."""
    try:
        answer = target.run([program], timeout=seconds)
    except OSError as error:
        return Witness(trouble=f"{program} could not be started: {error.strerror or error}")
    if answer.status is None and answer.seconds < seconds:
        return Witness(trouble=f"{program} printed without end, which is no answer of nvidia-smi")
    if answer.status is None:
        return Witness(trouble=f"{program} did not answer: {answer.how}")
    witness = _told(program, answer)
    if "driver.version" in witness.facts and not witness.state:
        witness.rows = _queried(target, program, seconds - answer.seconds) or witness.rows
        if witness.rows is not None:
            witness.facts["gpu.count"] = Known(len(witness.rows), SOURCE)
    return witness


def _told(program: str, answer: Answer) -> Witness:
    said = f"{answer.out}\n{answer.err}"
    report = _read(said)
    facts: dict[str, Fact] = {name: state for name in _BANNER if isinstance(state := _own(report.get(name)), Known)}
    state, message = report.get("nvml.state"), report.get("nvml.message")
    if not isinstance(state, Known):
        return Witness(trouble=f"{program} printed something that is no answer of nvidia-smi ({answer.how})")
    witness = Witness(facts=facts, rows=_rows(report))
    if isinstance(message, Known):
        witness.state = str(state.value)
        witness.message = printable(message.value)
        witness.text = text_rows(said, SOURCE)
    return witness


def _queried(target: Target, program: str, seconds: float) -> tuple[Row, ...] | None:
    """The GPUs as ``--query-gpu`` lists them, in full; None where that gave nothing of its form."""
    try:
        answer = target.run([program, f"--query-gpu={_FIELDS}", "--format=csv"], timeout=max(0.5, seconds))
    except OSError:
        return None
    rows = _rows(_read(answer.out)) if answer.ok else None
    if not rows or not all(isinstance(row.get("uuid"), Known) for row in rows):
        return None
    return rows


def _read(said: str) -> Snapshot:
    from gpudoctor.readers import read_text

    return read_text(said, SOURCE)


def _rows(report: Snapshot) -> tuple[Row, ...] | None:
    """The GPUs of the report; a name cut by the table (``NVIDIA GeForce RTX 3050 ...``) is left out."""
    rows = report.rows("gpu")
    counted = [row for row in listed(rows) if isinstance(row.get("index"), Known)]
    return tuple(dict(_columns(row)) for row in counted) or None


def _columns(row: Row) -> Iterator[tuple[str, Fact]]:
    for name, state in row.items():
        if not (name == "name" and isinstance(state, Known) and str(state.value).endswith("...")):
            yield name, _own(state)


def _own(state: Fact) -> Fact:
    return replace(state, source=SOURCE) if isinstance(state, Known) else state


def address(bus_id: str) -> str:
    """``00000000:3B:00.0`` as the kernel writes it: ``0000:3b:00.0``."""
    domain, colon, rest = bus_id.strip().lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}{colon}{rest}"

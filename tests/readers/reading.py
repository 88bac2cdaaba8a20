"""What a text or a manifest tells, as tests of the readers compare it."""

from functools import lru_cache
from pathlib import Path

from gpudoctor.app import reading
from gpudoctor.app.commands.reports import machine_of
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.fixes.solver.index import PYPI
from gpudoctor.fixes.solver.install_commands import BASE
from gpudoctor.readers import read_text


def values(said: str | Snapshot) -> dict[str, object]:
    """The facts by name: their values, and the types `Absent` and `Unread` for the others."""
    snapshot = read_text(said) if isinstance(said, str) else said
    return {name: fact.value if isinstance(fact, Known) else type(fact) for name, fact in snapshot.facts.items()}


def told(said: str | Snapshot, *names: str) -> dict[str, object]:
    """These facts; None for one of which nothing is said."""
    found = values(said)
    return {name: found.get(name) for name in names}


def rows(said: str | Snapshot, group: str = "gpu") -> list[dict[str, object]]:
    """The rows of a group with their known values; none where it is not told."""
    snapshot = read_text(said) if isinstance(said, str) else said
    known = listed(snapshot.groups.get(group, ()))
    return [{name: fact.value for name, fact in row.items() if isinstance(fact, Known)} for row in known]


def column(said: str | Snapshot, group: str, name: str) -> list[object]:
    """A column of a group, None where a row's value is not known."""
    return [row.get(name) for row in rows(said, group)]


FILES = Path(__file__).with_name("files")
LOCKED = (
    ("numpy", "2.3.5", PYPI),
    ("nvidia-cudnn-cu12", "9.10.2.21", PYPI),
    ("torch", "2.9.1+cu128", f"{BASE}/cu128"),
    ("torchvision", "0.24.1+cu128", f"{BASE}/cu128"),
)
"""What the example of a ``uv.lock`` holds: name, version and index."""
RTX_5090 = "gpu=RTX 5090,driver=570.124.06,python=3.12"
RTX_4090 = "gpu=RTX 4090,driver=550.90.07,python=3.12"
H100 = "gpu=H100,driver=580.95.05,python=3.12"
V100 = "gpu=V100,driver=535.183.01,python=3.12"
OLD = "gpu=RTX 3090,driver=470.256.02,python=3.10"


@lru_cache(maxsize=1)
def book() -> rulebook.Rulebook:
    """The rulebook that ships."""
    return rulebook.load()


def judged(text: str, name: str, machine: str = "") -> Diagnosis:
    """What is said of that text in a file of that name, for that machine."""
    return reading.diagnose_text(text, name, book(), machine_of(machine))


def examples() -> dict[str, str]:
    """The example files by their names: those of the folder, and a lock, which names indexes as a program writes it."""
    packages = (
        f'\n[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "{index}" }}\n'
        for name, version, index in LOCKED
    )
    lock = "".join(['version = 1\nrevision = 3\nrequires-python = ">=3.12"\n', *packages])
    return {**{path.name: path.read_text() for path in sorted(FILES.iterdir())}, "uv.lock": lock}


def of_file(name: str, machine: str = "") -> Diagnosis:
    """The same of an example."""
    return judged(examples()[name], name, machine)


def errors(diagnosis: Diagnosis) -> list[str]:
    """The ids of its errors, the first to act on first."""
    return [finding.id for finding in diagnosis.findings if finding.severity == "error"]


def value(diagnosis: Diagnosis, name: str) -> object:
    """A fact's value; none where it is not known."""
    fact = diagnosis.snapshot.get(name)
    return fact.value if isinstance(fact, Known) else None


def source(diagnosis: Diagnosis, name: str) -> str:
    """Where a fact was read."""
    fact = diagnosis.snapshot.get(name)
    return fact.source if isinstance(fact, Known) else ""

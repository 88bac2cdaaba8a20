"""Machines of tomorrow: the versions of a sound machine raised past the tables by one to five releases, GPUs unknown.

Each is made of a sound machine and says of itself what was raised. It is sound too: torch has code for its GPU, and
the driver serves that torch.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, cycle
from random import Random
from typing import NamedTuple

from gpudoctor.core.fact import Fact, Known, Row, Rows, Unread, Value, text_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.knowledge import complete
from tests.generated import tables
from tests.generated.sound import sound

Columns = Mapping[str, Value]
DRIVER = (
    "driver.version",
    "driver.module_version",
    "driver.module_disk_version",
    "driver.library_version",
    "driver.fabric_manager_version",
    "driver.gsp_firmware",
    "fabric.installed_version",
    "imex.version",
    "libs.libcuda_version",
)
"""Facts whose value is the driver's version."""
UNKNOWN = (
    ("NVIDIA GeForce RTX 6090", "13.0", "Noether"),
    ("NVIDIA GeForce RTX 7070 Laptop GPU", "14.1", "Gauss"),
    ("NVIDIA R300", "11.0", "Rubin"),
    ("NVIDIA RTX PRO 9000 Server Edition", "12.5", "Blackwell"),
    ("NVIDIA X1000 SXM8 512GB", "15.0", "Unheard"),
)


class Raised(NamedTuple):
    """A machine of tomorrow, the sound one it was made of, and what was raised."""

    before: Snapshot
    after: Snapshot
    what: str


def with_values(snapshot: Snapshot, facts: Columns, rows: Mapping[str, Columns]) -> Snapshot:
    """The machine with other values of what it knows, and `complete` again; what it does not know stays so."""

    def other(value: Value | None, fact: Fact) -> Fact:
        return Known(value, fact.source) if value is not None and isinstance(fact, Known) else fact

    def row(group: str, old: Row) -> Row:
        named = old.get("name")
        own = rows.get(f"{group} {named.value}" if isinstance(named, Known) else group) or rows.get(group, {})
        return {name: other(own.get(name), fact) for name, fact in old.items()}

    groups: dict[str, Rows] = {
        group: tuple(row(group, one) for one in found) if isinstance(found, tuple) else found
        for group, found in snapshot.groups.items()
    }
    known = {name: other(facts.get(name), fact) for name, fact in snapshot.facts.items()}
    return complete(replace(snapshot, facts=known, groups=groups))


def unasked(snapshot: Snapshot) -> Snapshot:
    """The same where CUDA and torch were not started: pages judge by versions alone."""
    why = Unread("asked from level standard on")
    facts = {name: why if name.startswith(("live.", "cuda_driver.")) else fact for name, fact in snapshot.facts.items()}
    groups: dict[str, Rows] = {
        name: why if name in ("live_gpu", "cuda_device") else rows for name, rows in snapshot.groups.items()
    }
    return replace(snapshot, facts=facts, groups=groups)


def machines(seed: int, profiles: Mapping[str, Snapshot]) -> Iterator[Raised]:
    """Machines of tomorrow without end: of the profiles and of generated ones in turn, the same for the same seed."""
    random = Random(f"beyond {seed}")
    recorded = cycle(profiles.items())
    generated = ((str(one.machine), one.snapshot) for one in sound(seed) if not one.circumstances)
    for name, asked in chain.from_iterable(zip(recorded, generated, strict=False)):
        before = asked if random.random() < 0.7 else unasked(asked)
        facts, rows, what = _raise(before, random)
        if facts or rows:
            yield Raised(before, with_values(before, facts, rows), f"{', '.join(what)} on {name}")


def _raise(machine: Snapshot, random: Random) -> tuple[dict[str, Value], dict[str, Columns], list[str]]:
    """Facts and columns in place of the machine's own, and what they raise."""
    facts: dict[str, Value] = {}
    rows: dict[str, Columns] = {}
    steps = random.randint(1, 5)
    chosen = {part for part in ("driver", "torch", "python", "toolkit", "system", "gpu") if random.random() < 0.4}
    served = _released(machine.text("driver.version"))[:1] >= (580,)
    modern = all(_capability(row) >= (7, 5) for row in _gpus(machine))
    if "gpu" in chosen:
        chosen |= {"driver", "torch"}  # which alone know a new GPU
    elif not modern:
        chosen -= {"driver", "torch"}  # newer ones have left it behind
    if "torch" in chosen and not served:
        chosen |= {"driver"}
    cuda = f"13.{_newest_cuda()[1] + steps}" if random.random() < 0.6 else f"14.{steps - 1}"
    if "driver" in chosen:
        version = f"{_newest_branch() + 5 * steps}.{random.randint(1, 99):02}.01"
        facts |= _driver(version, cuda)
        rows["lib libcuda"] = {"version": version}
    elif cuda.startswith("14"):
        cuda = f"13.{_newest_cuda()[1] + steps}"  # whose minor releases this driver serves
    capability = _capability(next(iter(_gpus(machine)), {}))
    if "gpu" in chosen:
        name, told, family = random.choice(UNKNOWN)
        unknown: Columns = {"name": name, "compute_capability": told, "architecture": family}
        rows |= dict.fromkeys(("gpu", "cuda_device", "live_gpu"), unknown)
        capability = _released(told)
        facts["driver.module_kind"] = "open"  # the only one for new GPUs
    if "torch" in chosen:
        own, packages = _torch(steps, cuda, capability, random)
        facts |= own
        rows |= packages
    if "python" in chosen:
        facts["python.version"] = f"3.{_newest_python() + steps}.{random.randint(0, 9)}"
    if "toolkit" in chosen:
        facts |= dict.fromkeys(("cuda.toolkit_version", "cuda.nvcc_version", "cuda.ptxas_version"), cuda)
        facts["cuda.host_compiler_version"] = f"{15 + steps}.1.0"
    if "system" in chosen:
        facts |= {"host.kernel": f"7.{steps}.0-12-generic", "host.glibc": f"2.{42 + steps}"}
        facts["host.distribution_version"] = f"{26 + steps}.04"
    known = {name: value for name, value in facts.items() if isinstance(machine.facts.get(name), Known)}
    return known, rows, sorted(f"{part} by {steps}" for part in chosen)


def _driver(version: str, cuda: str) -> dict[str, Value]:
    facts: dict[str, Value] = dict.fromkeys(DRIVER, version)
    facts |= {"driver.library_versions": (version,), "nvml.library_version": f"{cuda.split('.')[0]}.{version}"}
    return facts | {"driver.cuda_version": cuda, "cuda_driver.version": cuda}


def _torch(
    steps: int, cuda: str, capability: tuple[int, ...], random: Random
) -> tuple[dict[str, Value], dict[str, Columns]]:
    """A release of torch that is not out yet, for that CUDA and GPU, and the wheels that come with it."""
    version = f"2.{_newest_torch()[1] + steps}.{random.randint(0, 2)}+cu{cuda.replace('.', '')}"
    codes = {(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0), capability}
    archs = (*(f"sm_{major}{minor}" for major, minor in sorted(codes)), "compute_120")
    cudnn, nccl = f"{9 + steps // 3}.{20 + steps}.1.{random.randint(2, 90)}", f"2.{32 + steps}.{random.randint(1, 9)}"
    facts: dict[str, Value] = {"torch.version": version, "torch.cuda": cuda, "torch.archs": archs}
    facts |= {"torch.cudnn": cudnn, "torch.cudnn_built": cudnn, "torch.nccl": nccl, "live.arch_list": archs}
    facts |= {"live.cudnn": cudnn.rpartition(".")[0], "live.nccl": nccl}
    facts["torch.installs"] = (f"pip {version} in /opt/venv/lib/python3.12/site-packages",)
    named = {"torch": version, "triton": f"3.{9 + steps}.0", "torchvision": f"0.{30 + steps}.0"}
    named |= {f"nvidia-{name}-cu{major}": own for name, own in (("cudnn", cudnn), ("nccl", nccl)) for major in (12, 13)}
    facts |= {"triton.version": named["triton"], "triton.wanted": named["triton"]}
    return facts, {f"package {name}": {"version": own} for name, own in named.items()}


def _gpus(machine: Snapshot) -> tuple[Row, ...]:
    rows = machine.rows("gpu")
    return rows if isinstance(rows, tuple) else ()


def _capability(row: Row) -> tuple[int, ...]:
    told = row.get("compute_capability")
    return _released(str(told.value)) if isinstance(told, Known) else (9, 0)


def _released(version: str) -> tuple[int, ...]:
    parsed = parse(version)
    return parsed.release if parsed else ()


def _newest_branch() -> int:
    return max(int(row["branch"]) for row in tables.table("drivers")["branch"])


def _newest_cuda() -> tuple[int, ...]:
    return max(tables.numbers(row["cuda"]) for row in tables.table("drivers")["toolkit"] if "cuda" in row)


def _newest_torch() -> tuple[int, ...]:
    return max(tables.numbers(row["version"]) for row in tables.table("torch")["release"])


def _newest_python() -> int:
    tags = (tag for row in tables.table("torch")["release"] for tag in row["pythons"].split())
    return max(int(tag.removeprefix("cp3").removesuffix("t")) for tag in tags)


# ---- As a paste ----

_PASTE = """\
Collecting environment information...
PyTorch version: {torch.version}
Is debug build: False
CUDA used to build PyTorch: {torch.cuda}
ROCM used to build PyTorch: N/A

OS: {host.os}
GCC version: (Ubuntu) {cuda.host_compiler_version}
Libc version: glibc-{host.glibc}

Python version: {python.version} (main) (64-bit runtime)
Is CUDA available: True
CUDA runtime version: {cuda.nvcc_version}
GPU models and configuration: {gpus}
Nvidia driver version: {driver.version}
cuDNN version: {torch.cudnn}

Versions of relevant libraries:
[pip3] torch=={torch.version}

+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver.version}    Driver Version: {driver.version}    CUDA Version: {driver.cuda_version}      |
+-----------------------------------------------------------------------------------------+
"""


def as_text(machine: Snapshot) -> str:
    """What ``torch.utils.collect_env`` and the head of nvidia-smi's table print there, as one paste."""
    gpus = "\n".join(f"GPU {number}: {text_of(row.get('name'))}" for number, row in enumerate(_gpus(machine)))
    return re.sub(
        r"\{([\w.]+)\}",
        lambda hole: gpus if hole[1] == "gpus" else machine.text(hole[1]) or "Could not collect",
        _PASTE,
    )

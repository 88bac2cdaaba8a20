"""What kernels say of each GPU's answers: which were wrong on it alone, which everywhere, which layer fails first.

A kernel that is wrong on every GPU of the machine is the software's fault or the kernel's own; one that is wrong on
some and right on others accuses those. What is compiled on the machine (the rung ``triton``) accuses its compiler.
On one GPU, attention and convolution accuse the library that chooses their algorithm, where plain kernels are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.core.fact import (
    Absent,
    Fact,
    Known,
    Row,
    Rows,
    Unread,
    Value,
    known,
    known_facts,
    listed,
    text_of,
    value_of,
)
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.diagnosis.knowledge._tables import Facts, Groups, TableRow, fill, is_open, number
from gpudoctor.diagnosis.knowledge.builds import packages_of
from gpudoctor.diagnosis.knowledge.rates import Device, devices_by_index, identity_columns, operations

_SOURCE = "gpudoctor bench"
_RUNGS: tuple[str, ...] = ("driver", "torch", "triton", "nccl", "training")
_FEWEST_ALIKE = 3
"""GPUs of one name that give the same bits, beside which one that gives others is wrong."""
_CHOSEN_BY_LIBRARY = frozenset({"attention", "convolution"})
"""Kernels for which cuDNN and torch choose among algorithms, some of which were wrong on sound GPUs: see the page
torch.wrong-results."""
_MEMORY_FAULTS = ("stuck", "leaking", "disturbed", "once")
"""Kinds of faults that the march test tells apart, the surest first."""
_FASTER_BY_DESIGN = 2
"""How many times faster than fp32 the tensor cores must be for their absence to show in a measurement."""


class _Run(NamedTuple):
    """One kernel that ran on one GPU."""

    kernel: str
    gpu: int
    name: str
    rung: str
    right: bool | None
    words: str
    agrees: bool | None
    value: float


def imply_results(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills what measured kernels imply: which rung of each GPU fails first, and, where kernels were measured,
    ``live_gpu``, ``memory_fault``, ``live.wrong_everywhere``, ``live.peers_wrong`` and ``gpu.tf32_gain``.
    """
    known = devices_by_index(snapshot)
    if isinstance(rungs := groups.get("rung"), tuple):
        groups["rung"] = tuple(_mark_lowest_rung(rungs, known))
    rows = groups.get("measured")
    if not isinstance(rows, tuple):
        return
    runs = list(_runs(rows))
    suspect, everywhere = _wrong_results(runs, {index: device.sms for index, device in known.items()})
    facts["live.wrong_everywhere"] = Known(tuple(everywhere), _SOURCE)
    facts["live.peers_wrong"] = _peer_copy_fact(rows)
    if (faults := _memory_faults(rows, known)) is not None:
        groups["memory_fault"] = faults
    if live := tuple(_live_rows(groups.get("live_gpu"), rows, known, suspect)):
        groups["live_gpu"] = live
    _fill_tf32_gain(groups, runs, known)


def _runs(rows: Sequence[Row]) -> Iterator[_Run]:
    """The ``measured`` rows that ran on a GPU, as runs; those of the CPU and of all GPUs together are left out."""
    for row in rows:
        gpu, right = value_of(row.get("gpu")), value_of(row.get("right"))
        if (
            not isinstance(gpu, int)
            or gpu < 0
            or value_of(row.get("status")) != "ran"
            or value_of(row.get("device")) == "CPU"
        ):
            continue
        yield _Run(
            kernel=text_of(row.get("kernel")),
            gpu=gpu,
            name=text_of(row.get("device")),
            rung=text_of(row.get("rung")),
            right=right if isinstance(right, bool) else None,
            words=_difference(row),
            agrees=agrees if isinstance(agrees := value_of(row.get("agrees")), bool) else None,
            value=number(row, "value") or 0.0,
        )


def _difference(row: Row) -> str:
    """How a measured row's values differ: its own words, else ``3 of 67108864 values``; empty if unknown."""
    differ, compared, words = (value_of(row.get(column)) for column in ("differ", "compared", "words"))
    if words:
        return str(words)
    return f"{differ} of {compared} values" if differ and compared else ""


def _wrong_results(
    runs: Sequence[_Run], sms: Mapping[int, float | None]
) -> tuple[dict[int, dict[str, str]], list[str]]:
    """(by GPU its wrong kernels with words on the difference, kernels that are wrong everywhere: the software's fault).

    Everywhere: on all of two or more GPUs, or on one by a library's choice of algorithm. The former does not have
    those.
    """
    by_kernel: dict[str, list[_Run]] = {}
    for run in runs:
        if run.rung in ("driver", "torch"):
            by_kernel.setdefault(run.kernel, []).append(run)
    suspect: dict[int, dict[str, str]] = {}
    everywhere = []
    for kernel, tried in by_kernel.items():
        wrong = {run.gpu: run.words for run in tried if run.right is False} or _odd_gpu_out(tried, sms)
        if len(wrong) == len(tried) and (len(tried) > 1 or _is_library_fault(tried[0], runs)):
            everywhere.append(kernel)
            continue
        for gpu, words in wrong.items():
            suspect.setdefault(gpu, {})[kernel] = words
    return suspect, everywhere


def _is_library_fault(wrong: _Run, runs: Sequence[_Run]) -> bool:
    """Whether a library chose the run's algorithm, and all kernels without such a choice are right on that GPU."""
    plain = [run.right for run in runs if run.gpu == wrong.gpu and run.kernel not in _CHOSEN_BY_LIBRARY]
    return wrong.kernel in _CHOSEN_BY_LIBRARY and True in plain and False not in plain


def _peer_copy_fact(rows: Sequence[Row]) -> Fact:
    """The fact ``live.peers_wrong``: absent where copies between GPUs arrive unchanged, known (words) if not.

    Unread where they were not measured or not compared.
    """
    for row in rows:
        if value_of(row.get("kernel")) == "peer.copy":
            right = value_of(row.get("right"))
            if right is None:
                return Unread(text_of(row.get("because")) or "nothing was compared")
            return Absent("every word arrives") if right else Known(_difference(row) or "some words", _SOURCE)
    return Unread("copies between GPUs were not measured")


def _memory_faults(rows: Sequence[Row], known: Mapping[int, Device]) -> Rows | None:
    """Rows of ``memory_fault``, one per kind of fault that a march test found on a device; empty where it found none.

    Unread where every test gave up without a result, None where none was measured.
    """
    tested = [row for row in rows if value_of(row.get("kernel")) == "soak.memory"]
    if not tested:
        return None
    faults = tuple(fault for row in tested for fault in _faults_of_test(row, known))
    if faults or any(value_of(row.get("right")) is True for row in tested):
        return faults
    return Unread(text_of(tested[0].get("because")) or "its memory was not tested")


def _faults_of_test(row: Row, known: Mapping[int, Device]) -> Iterator[Row]:
    """A row of ``memory_fault`` for each kind of fault (stuck, leaking, disturbed, once) in one row of the march test.

    It has gpu, device, uuid, address, kind, places, first (place), count and words (how many words were wrong).
    """
    details = value_of(row.get("details"))
    if value_of(row.get("right")) is not False or not isinstance(details, Mapping):
        return
    device = known.get(int(gpu)) if (gpu := number(row, "gpu")) is not None else None
    for kind in _MEMORY_FAULTS:
        if not isinstance(places := details.get(kind), tuple) or not places:
            continue
        columns: dict[str, Value] = {
            "kind": kind,
            "places": places,
            "first": str(places[0]),
            "count": len(places),
            "words": words if isinstance(words := details.get("wrong_words"), int) else len(places),
        }
        yield {
            "gpu": row["gpu"],
            "device": row["device"],
            **identity_columns(device, _SOURCE),
            **known_facts(_SOURCE, **columns),
        }


def _odd_gpu_out(tried: Sequence[_Run], sms: Mapping[int, float | None]) -> dict[int, str]:
    """By index the only GPU whose results have other bits than its siblings', with words; empty if none or several.

    At least `_FEWEST_ALIKE` of its name and multiprocessors must agree: cards of one name may differ in these (RTX
    3080), and libraries sum in another order there.
    """
    odd = [run for run in tried if run.agrees is False]
    if len(odd) != 1:
        return {}
    twin = odd[0].name, sms.get(odd[0].gpu)
    alike = sum((run.name, sms.get(run.gpu)) == twin for run in tried if run.agrees)
    return {odd[0].gpu: f"other bits than its {alike} siblings gave"} if alike >= _FEWEST_ALIKE else {}


def _live_rows(
    before: Rows | None, rows: Sequence[Row], known: Mapping[int, Device], suspect: Mapping[int, Mapping[str, str]]
) -> Iterator[Row]:
    """A row of ``live_gpu`` for each GPU: torch's own look if there is one, completed where kernels were tried.

    `suspect` has the wrong kernels of each GPU, with words.
    """
    live_rows = listed(before)
    states: dict[int, dict[str, str]] = {}
    tried: set[int] = set()
    for row in reversed(rows):
        gpu, status = value_of(row.get("gpu")), text_of(row.get("status"))
        if not isinstance(gpu, int) or gpu < 0 or value_of(row.get("device")) == "CPU":
            continue
        if status != "not-run":
            tried.add(gpu)
        if value_of(row.get("rung")) == "torch":
            states.setdefault(gpu, {})[status] = text_of(row.get("because"))
    for index in sorted({*states, *suspect, *range(len(live_rows))}):
        outcomes = states.get(index, {})
        row = live_rows[index] if index < len(live_rows) else _row_without_look(known.get(index), outcomes)
        if index in tried:
            row = {
                **row,
                **dict(_result_columns(index, known.get(index), suspect.get(index, {}), outcomes.get("failed"))),
            }
        yield row


def _row_without_look(device: Device | None, outcomes: Mapping[str, str]) -> Row:
    """A row of ``live_gpu`` for a GPU that torch's own look did not cover: name, compute_capability, kernel, error.

    ``kernel`` is ok and ``error`` absent if one of torch's measured kernels ran on it, else both are unread.
    `outcomes`: the reason, by status of these kernels (``ran``, ``failed``, ``not-run``).
    """
    why = Unread(outcomes.get("not-run") or "torch ran nothing on it")
    return {
        "name": Known(device.name, _SOURCE) if device else Unread("CUDA does not list it"),
        "compute_capability": Known(device.capability, _SOURCE) if device and device.capability else Absent("not told"),
        "kernel": Known("ok", _SOURCE) if "ran" in outcomes else why,
        "error": Absent("its kernels ran") if "ran" in outcomes else why,
    }


def _result_columns(
    index: int, device: Device | None, wrong: Mapping[str, str], error: str | None
) -> Iterator[tuple[str, Fact]]:
    """Columns of ``live_gpu`` by its kernels' results: index, wrong (kernels), wrong_words, uuid, address.

    And kernel, in place of torch's own look: ``error`` where `error` says that one failed, else ``wrong`` if any is.
    """
    yield "index", Known(index, _SOURCE)
    yield "wrong", Known(tuple(wrong), _SOURCE)
    words = next(filter(None, wrong.values()), "")
    yield "wrong_words", Known(words, _SOURCE) if words else Absent("nothing is wrong, or nothing more is known of it")
    if error is not None:
        yield "kernel", Known("error", _SOURCE)
        yield "error", Known(error or "a kernel failed", _SOURCE)
    elif wrong:
        yield "kernel", Known("wrong", _SOURCE)
    yield from identity_columns(device, _SOURCE).items()


def _fill_tf32_gain(groups: Groups, runs: Sequence[_Run], known: Mapping[int, Device]) -> None:
    """Fills ``gpu.tf32_gain``, how many times faster TF32 matrix products ran than fp32 ones, by the GPU's UUID.

    Only on GPUs where TF32 is at least twice as fast by design, and both ran.
    """
    gpus = groups.get("gpu")
    if not isinstance(gpus, tuple):
        return
    values = {(run.gpu, run.kernel): run.value for run in runs}
    gains = {}
    for index, device in known.items():
        slow, fast = values.get((index, "matmul.fp32")), values.get((index, "matmul.tf32"))
        each, more = operations("fp32", device), operations("tf32", device)
        if device.uuid and slow and fast and each and more and more >= _FASTER_BY_DESIGN * each:
            gains[device.uuid] = Known(round(fast / slow, 2), f"{_SOURCE}: matmul.tf32 over matmul.fp32")
    groups["gpu"] = tuple(
        {**gpu, "tf32_gain": gains[uuid]} if (uuid := text_of(gpu.get("uuid"))) in gains else gpu for gpu in gpus
    )


def _mark_lowest_rung(rungs: Sequence[Row], by_number: Mapping[int, Device]) -> Iterator[Row]:
    """The rows of ``rung`` with ``lowest`` (whether it is the first failing one of its GPU), ``uuid`` and ``address``.

    ``lowest`` is unread where the rung was not tried, false once a lower one failed.
    """
    order = {name: at for at, name in enumerate(_RUNGS)}
    broken: set[object] = set()
    marks: dict[int, Fact] = {}
    for at, row in sorted(enumerate(rungs), key=lambda entry: order.get(text_of(entry[1].get("name")), len(order))):
        gpu, held = number(row, "gpu"), row.get("held")
        if known(held) or gpu in broken:
            marks[at] = Known(value_of(row.get("held")) is False and gpu not in broken, _SOURCE)
        else:
            marks[at] = held or Unread("not tried")
        if value_of(row.get("held")) is False:
            broken.add(gpu)
    for at, row in enumerate(rungs):
        device = by_number.get(int(whole)) if (whole := number(row, "gpu")) is not None else None
        yield {**row, "lowest": marks[at], **identity_columns(device, _SOURCE)}


# ---- What a torch's version, build and package list imply ----

_TORCH = ("torch", "pytorch")


def imply_torch(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills what torch's version, build and package list imply, where nobody looked: installer, flavor, CUDA or HIP,
    architectures, cuDNN, companions and pins.
    """
    if framework := _installed_by_conda(groups):
        fill(snapshot, facts, "python.installer", Known("conda", f"conda installed {framework}"))
    _imply_build(snapshot, facts, groups)
    _imply_archs(snapshot, facts, groups)
    _imply_cudnn(snapshot, facts)
    _imply_companions(snapshot, facts, groups)
    _imply_pins(snapshot, facts, groups)


def _imply_build(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.flavor, torch.cuda and torch.hip from the version's local part, the default build, or each other.

    All of them, and torch.archs, are absent where torch is.
    """
    torch = snapshot.get("torch.version")
    if isinstance(torch, Absent):
        for name in ("torch.flavor", "torch.cuda", "torch.hip", "torch.archs"):
            fill(snapshot, facts, name, torch)
        return
    version = snapshot.text("torch.version")
    if version:
        flavor = builds.flavor_of(version)
        source = f"local part of torch {version}"
        if flavor is None and is_open(snapshot, "torch.flavor") and is_open(snapshot, "torch.cuda"):
            flavor, source = _default_flavor(snapshot, groups, version)
        if flavor is not None:
            fill(snapshot, facts, "torch.flavor", Known(flavor.name, source))
            _imply_toolkit(snapshot, facts, flavor, source)
    _imply_flavor_by_toolkit(snapshot, facts)
    archs = snapshot.known("torch.archs")
    if archs and "sm_" in str(archs.value):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"it has GPU code: {archs.source}"))


def _imply_toolkit(snapshot: Snapshot, facts: Facts, flavor: builds.Flavor, source: str) -> None:
    """Fills torch.cuda or torch.hip with the flavor's toolkit; the other one, or for a CPU build both, are absent."""
    for name, name_of_flavor in (("torch.cuda", "cuda"), ("torch.hip", "rocm")):
        if flavor.name == name_of_flavor:
            fill(snapshot, facts, name, Known(flavor.toolkit, source))
        else:
            fill(snapshot, facts, name, Absent(f"a {flavor.name} build: {source}"))


def _imply_flavor_by_toolkit(snapshot: Snapshot, facts: Facts) -> None:
    """Fills torch.flavor: cuda or rocm by torch.cuda or torch.hip, cpu on Linux and Windows if both are absent."""
    cuda, hip = snapshot.get("torch.cuda"), snapshot.get("torch.hip")
    if known(cuda):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"torch.cuda is {text_of(cuda)}"))
    elif known(hip):
        fill(snapshot, facts, "torch.flavor", Known("rocm", f"torch.hip is {text_of(hip)}"))
    elif (
        isinstance(cuda, Absent) and isinstance(hip, Absent) and snapshot.text("host.platform") in ("linux", "windows")
    ):
        fill(snapshot, facts, "torch.flavor", Known("cpu", "neither CUDA nor HIP in this build"))


def _default_flavor(snapshot: Snapshot, groups: Groups, version: str) -> tuple[builds.Flavor | None, str]:
    """(build that PyPI serves for that version on the platform, source); (None, "") if unknown, conda or a Jetson."""
    platform = snapshot.text("host.platform") or _platform_by_processor(snapshot, groups)
    by_conda = _installed_by_conda(groups) in _TORCH
    if builds.base(version) is None or not platform or by_conda or snapshot.text("host.jetson"):
        return None, ""
    if platform == "macos":
        return builds.Flavor("mps", ""), f"table torch: the macOS wheel of {version}"
    if platform == "windows":
        return builds.Flavor("cpu", ""), f"table torch: the default Windows wheel of {version}"
    machine = snapshot.text("host.arch") or "x86_64"
    cuda = builds.default_cuda(version, machine)
    if machine == "aarch64" and not builds.releases()[builds.base(version) or ""]["aarch64"]:
        return None, ""
    source = f"table torch: the default Linux {machine} wheel of {version}"
    return builds.Flavor("cuda", cuda) if cuda else builds.Flavor("cpu", ""), source


def _platform_by_processor(snapshot: Snapshot, groups: Groups) -> str:
    """``linux`` where the processor is Arm and NVIDIA GPUs are listed; else empty."""
    return "linux" if snapshot.text("host.arch") == "aarch64" and isinstance(groups.get("gpu"), tuple) else ""


def _installed_by_conda(groups: Groups) -> str:
    """Name of the framework, torch before others, if conda installed it: its plain version then says nothing about the
    build. Empty where pip did, or there is none.
    """
    rows = {str(value_of(row.get("name"))): row for row in reversed(listed(groups.get("package")))}
    name = next((name for name in (*_TORCH, "jaxlib", "jax", "tensorflow") if name in rows), "")
    return name if name and value_of(rows[name].get("installer")) == "conda" else ""


def _build_row(snapshot: Snapshot) -> TableRow | None:
    """The table row of the installed torch, by release and CUDA; None where the table has none."""
    version, cuda = snapshot.text("torch.version"), snapshot.text("torch.cuda")
    try:
        return builds.build(version, cuda) if version and cuda else None
    except CannotJudge:
        return None


def _imply_archs(snapshot: Snapshot, facts: Facts, _: Groups) -> None:
    """Fills torch.archs, where nobody looked, with the architectures that the table has of this platform's wheel."""
    row = _build_row(snapshot) if is_open(snapshot, "torch.archs") else None
    platform, machine = snapshot.text("host.platform") or "linux", snapshot.text("host.arch") or "x86_64"
    column = {"windows": "windows", "linux": "aarch64" if machine == "aarch64" else "archs"}.get(platform, "")
    if row is None or column not in row:
        return
    system = "Windows" if column == "windows" else f"Linux {machine}"
    source = f"table torch: the {row['build']} {system} wheel of {row['torch']}"
    facts["torch.archs"] = Known(tuple(row[column].split()), source)


def _imply_cudnn(snapshot: Snapshot, facts: Facts) -> None:
    """Fills torch.cudnn_built: the cuDNN that the torch build pins by the table, which it was compiled against."""
    row = _build_row(snapshot)
    if row and "cudnn" in row:
        source = f"table torch: what the {row['build']} build of {row['torch']} pins"
        fill(snapshot, facts, "torch.cudnn_built", Known(row["cudnn"], source))


def _imply_companions(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.companions_unmet, how torchvision and torchaudio do not fit torch, where one of them is listed.

    Not where packages list a torch of another release. Empty if both fit.
    """
    version, rows = snapshot.text("torch.version"), groups.get("package")
    if not version or builds.base(version) is None or not isinstance(rows, tuple):
        return
    installed = list(packages_of(rows))
    if any(name in _TORCH and builds.base(other) != builds.base(version) for name, other in installed):
        return
    companions = [(name, other) for name, other in installed if name in ("torchvision", "torchaudio")]
    if companions:
        unmet = dict.fromkeys(filter(None, (builds.misfit(name, other, version) for name, other in companions)))
        fill(snapshot, facts, "torch.companions_unmet", Known(tuple(unmet), "table torch: the packages listed"))


def _imply_pins(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.pins_unmet and the rows of ``pin`` (name, wants, has) with listed wheels other than the release pins.

    Nothing where all fit or it cannot be told.
    """
    version, rows = snapshot.text("torch.version"), groups.get("package")
    if not version or not isinstance(rows, tuple) or not is_open(snapshot, "torch.pins_unmet"):
        return
    cuda = snapshot.text("torch.cuda") or _cuda_of_wheels(snapshot, version, rows)
    if not cuda:
        return
    try:
        found = list(builds.unmet_pins(version, cuda, packages_of(rows)))
    except CannotJudge:
        return
    if found:
        source = f"table torch: what {version} pins; the packages listed"
        facts["torch.pins_unmet"] = Known(
            tuple(f"{name} wants {want}, has {have}" for name, want, have in found), source
        )
        groups["pin"] = tuple(known_facts(source, name=name, wants=want, has=have) for name, want, have in found)


def _cuda_of_wheels(snapshot: Snapshot, version: str, rows: tuple[Row, ...]) -> str | None:
    """CUDA of the release's default wheel if nvidia wheels of that major are listed; None where not, or it is known."""
    if not is_open(snapshot, "torch.cuda") or builds.flavor_of(version):
        return None
    usual = builds.default_cuda(version, snapshot.text("host.arch") or "x86_64")
    major = (usual or "").partition(".")[0]
    beside = any(name.startswith("nvidia-") and name.endswith(f"-cu{major}") for name, _ in packages_of(rows))
    return usual if beside else None

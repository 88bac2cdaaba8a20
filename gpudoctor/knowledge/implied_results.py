"""What kernels say of each GPU's answers: which were wrong on it alone, which everywhere, which layer fails first.

A kernel that is wrong on every GPU of the machine is the software's fault or the kernel's own; one that is wrong on
some and right on others accuses those. What is compiled on the machine (the rung ``triton``) accuses its compiler.
On one GPU, attention and convolution accuse the library that chooses their algorithm, where plain kernels are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.knowledge._filling import Facts, Groups, given, number, text
from gpudoctor.knowledge.rates import Device, devices, operations
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, listed
from gpudoctor.model.snapshot import Snapshot

_SOURCE = "gpudoctor bench"
_RUNGS: tuple[str, ...] = ("driver", "torch", "triton", "nccl", "training")
_FEWEST_ALIKE = 3
"""GPUs of one name that give the same bits, beside which one that gives others is wrong."""
_CHOSEN_BY_LIBRARY = frozenset({"attention", "convolution"})
"""Kernels for which cuDNN and torch choose among algorithms, some of which were wrong on sound GPUs: see the page
torch.wrong-results."""
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
    """The group ``live_gpu``, ``live.wrong_everywhere``, ``gpu.tf32_gain``, and of ``rung`` which fails first."""
    known = devices(snapshot)
    if isinstance(rungs := groups.get("rung"), tuple):
        groups["rung"] = tuple(_lowest(rungs, known))
    rows = groups.get("measured")
    if not isinstance(rows, tuple):
        return
    runs = list(_runs(rows))
    suspect, everywhere = _wrong(runs, {index: device.sms for index, device in known.items()})
    facts["live.wrong_everywhere"] = Known(tuple(everywhere), _SOURCE)
    facts["live.peers_wrong"] = _peers(rows)
    if live := tuple(_live(groups.get("live_gpu"), rows, known, suspect)):
        groups["live_gpu"] = live
    _tf32(groups, runs, known)


def _runs(rows: Sequence[Row]) -> Iterator[_Run]:
    for row in rows:
        gpu, right = given(row, "gpu"), given(row, "right")
        if not isinstance(gpu, int) or gpu < 0 or given(row, "status") != "ran" or given(row, "device") == "CPU":
            continue
        yield _Run(
            kernel=text(row, "kernel"),
            gpu=gpu,
            name=text(row, "device"),
            rung=text(row, "rung"),
            right=right if isinstance(right, bool) else None,
            words=_said(row),
            agrees=agrees if isinstance(agrees := given(row, "agrees"), bool) else None,
            value=number(row, "value") or 0.0,
        )


def _said(row: Row) -> str:
    """``3 of 67108864 values``, and what else is known of them."""
    differ, compared, words = (given(row, column) for column in ("differ", "compared", "words"))
    if words:
        return str(words)
    return f"{differ} of {compared} values" if differ and compared else ""


def _wrong(runs: Sequence[_Run], sms: Mapping[int, float | None]) -> tuple[dict[int, dict[str, str]], list[str]]:
    """By GPU what is wrong on it and not on all; and what is wrong wherever it was tried and is the software's fault:
    any kernel on two GPUs or more, one that a library chooses on a single GPU whose plain kernels are right.
    """
    by_kernel: dict[str, list[_Run]] = {}
    for run in runs:
        if run.rung in ("driver", "torch"):
            by_kernel.setdefault(run.kernel, []).append(run)
    suspect: dict[int, dict[str, str]] = {}
    everywhere = []
    for kernel, tried in by_kernel.items():
        wrong = {run.gpu: run.words for run in tried if run.right is False} or _odd(tried, sms)
        if len(wrong) == len(tried) and (len(tried) > 1 or _by_library(tried[0], runs)):
            everywhere.append(kernel)
            continue
        for gpu, words in wrong.items():
            suspect.setdefault(gpu, {})[kernel] = words
    return suspect, everywhere


def _by_library(wrong: _Run, runs: Sequence[_Run]) -> bool:
    """Whether a library chose that run's algorithm, and every kernel without such a choice is right on its GPU."""
    plain = [run.right for run in runs if run.gpu == wrong.gpu and run.kernel not in _CHOSEN_BY_LIBRARY]
    return wrong.kernel in _CHOSEN_BY_LIBRARY and True in plain and False not in plain


def _peers(rows: Sequence[Row]) -> Fact:
    """What is known of words that arrive changed on another GPU."""
    for row in rows:
        if given(row, "kernel") == "peer.copy":
            right = given(row, "right")
            if right is None:
                return Unread(text(row, "because") or "nothing was compared")
            return Absent("every word arrives") if right else Known(_said(row) or "some words", _SOURCE)
    return Unread("copies between GPUs were not measured")


def _odd(tried: Sequence[_Run], sms: Mapping[int, float | None]) -> dict[int, str]:
    """A GPU whose bits are not those that all others of its name gave, where these are enough.

    Cards of one name may have fewer multiprocessors (RTX 3080 of 10 and 12 GB): libraries sum in another order there.
    """
    odd = [run for run in tried if run.agrees is False]
    if len(odd) != 1:
        return {}
    twin = odd[0].name, sms.get(odd[0].gpu)
    alike = sum((run.name, sms.get(run.gpu)) == twin for run in tried if run.agrees)
    return {odd[0].gpu: f"other bits than its {alike} siblings gave"} if alike >= _FEWEST_ALIKE else {}


def _live(
    before: Rows | None, rows: Sequence[Row], known: Mapping[int, Device], suspect: Mapping[int, Mapping[str, str]]
) -> Iterator[Row]:
    """A row for each GPU: what torch's own look gave, else what its kernels did; of one that is wrong by any rung."""
    told = listed(before)
    states: dict[int, dict[str, str]] = {}
    tried: set[int] = set()
    for row in reversed(rows):
        gpu, status = given(row, "gpu"), text(row, "status")
        if not isinstance(gpu, int) or gpu < 0 or given(row, "device") == "CPU":
            continue
        if status != "not-run":
            tried.add(gpu)
        if given(row, "rung") == "torch":
            states.setdefault(gpu, {})[status] = text(row, "because")
    for index in sorted({*states, *suspect, *range(len(told))}):
        said = states.get(index, {})
        row = told[index] if index < len(told) else _own(known.get(index), said)
        if index in tried:
            row = {**row, **dict(_results(index, known.get(index), suspect.get(index, {}), said.get("failed")))}
        yield row


def _own(device: Device | None, said: Mapping[str, str]) -> Row:
    """As torch's look tells it, where that did not look; not known where torch ran nothing."""
    why = Unread(said.get("not-run") or "torch ran nothing on it")
    return {
        "name": Known(device.name, _SOURCE) if device else Unread("CUDA does not list it"),
        "compute_capability": Known(device.capability, _SOURCE) if device and device.capability else Absent("not told"),
        "kernel": Known("ok", _SOURCE) if "ran" in said else why,
        "error": Absent("its kernels ran") if "ran" in said else why,
    }


def _results(
    index: int, device: Device | None, wrong: Mapping[str, str], error: str | None
) -> Iterator[tuple[str, Fact]]:
    """What many kernels say beside the one that torch's look runs, or instead of it."""
    yield "index", Known(index, _SOURCE)
    yield "wrong", Known(tuple(wrong), _SOURCE)
    words = next(filter(None, wrong.values()), "")
    yield "wrong_words", Known(words, _SOURCE) if words else Absent("nothing is wrong, or nothing more is known of it")
    if error is not None:
        yield "kernel", Known("error", _SOURCE)
        yield "error", Known(error or "a kernel failed", _SOURCE)
    elif wrong:
        yield "kernel", Known("wrong", _SOURCE)
    for column in ("uuid", "address"):
        if whose := getattr(device, column, ""):
            yield column, Known(whose, _SOURCE)


def _tf32(groups: Groups, runs: Sequence[_Run], known: Mapping[int, Device]) -> None:
    """How many times faster than fp32 each GPU is in TF32, where it should be much faster."""
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
        {**gpu, "tf32_gain": gains[uuid]} if (uuid := text(gpu, "uuid")) in gains else gpu for gpu in gpus
    )


def _lowest(rungs: Sequence[Row], known: Mapping[int, Device]) -> Iterator[Row]:
    """Marks the first rung of each GPU that does not hold, and tells which GPU that is."""
    order = {name: at for at, name in enumerate(_RUNGS)}
    broken: set[object] = set()
    marks: dict[int, Fact] = {}
    for at, row in sorted(enumerate(rungs), key=lambda entry: order.get(text(entry[1], "name"), len(order))):
        gpu, held = number(row, "gpu"), row.get("held")
        if isinstance(held, Known) or gpu in broken:
            marks[at] = Known(given(row, "held") is False and gpu not in broken, _SOURCE)
        else:
            marks[at] = held or Unread("not tried")
        if given(row, "held") is False:
            broken.add(gpu)
    for at, row in enumerate(rungs):
        device = known.get(int(whole)) if (whole := number(row, "gpu")) is not None else None
        whose = {
            column: Known(value, _SOURCE) for column in ("uuid", "address") if (value := getattr(device, column, ""))
        }
        yield {**row, "lowest": marks[at], **whose}

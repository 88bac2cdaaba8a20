"""What kernels gave in words: states, figures, what held a clock back, and the worst of all."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from gpudoctor.model.diagnosis import Verdict
from gpudoctor.model.measurement import Kernel, Meanwhile, Measurements, Run, State
from gpudoctor.views.tui import marks


class Look(NamedTuple):
    """How a state is shown: glyph, word in a list, word over the detail, look of a row, colour of the detail."""

    glyph: str
    short: str
    word: str
    row: str
    colour: str


LOOKS: dict[State, Look] = {
    "wrong": Look("✗", "wrong", "WRONG", "error", "$error"),
    "failed": Look("✗", "failed", "FAILED", "error", "$error"),
    "slow": Look("!", "slow", "SLOW", "warning", "$warning"),
    "unjudged": Look(marks.UNREAD, "", "NOT JUDGED", "info", "$primary"),
    "sound": Look(marks.PASSED, "", "SOUND", "", "$success"),
    "waiting": Look("…", "waiting", "WAITS", "dim", "$foreground 60%"),
    "running": Look("⠹", "running", "RUNNING", "accent", "$primary"),
}
BAD: tuple[State, ...] = ("wrong", "failed", "slow")
_REASONS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "heat (hardware slowdown)",
    "sw_thermal_slowdown": "heat (driver slowdown)",
    "hw_power_brake_slowdown": "power brake of the host",
    "sw_power_cap": "power cap",
    "sync_boost": "sync boost with another GPU",
    "applications_clocks_setting": "application clocks",
    "gpu_idle": "idle",
}


def number(value: float) -> str:
    """Three digits and more: ``712``, ``54.1``, ``4.12``, ``0.004``."""
    if 0 < value < 0.1:
        return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def many(value: int) -> str:
    """A count in short: ``67 M``."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= unit:
            return f"{value // (1000 if name == 'k' else unit)} {name}"
    return str(value)


def states(found: Measurements, kernel: Kernel) -> Counter[State]:
    """How many GPUs are in each state."""
    return Counter(found.state(run) for run in found.of(kernel.id))


def against(found: Measurements, kernel: Kernel) -> str:
    """What the bars end at: ``of expected 722``, ``of the median 4.10``."""
    expected = {value for run in found.of(kernel.id) if (value := found.expected(run))}
    if not expected:
        return "nothing to compare with"
    if len({value.value for value in expected}) > 1:
        return "of what each should do"
    one = next(iter(expected))
    return f"of {'expected' if one.how == 'table' else 'the median'} {number(one.value)}"


def verdict(run: Run) -> tuple[str, str]:
    """The column of correctness, and its look."""
    if run.right is None:
        return (marks.UNREAD if run.status == "ran" else ""), "dim"
    if run.right:
        return marks.PASSED, ""
    if run.differ is None:
        return "✗ wrong", "error"
    of = f" of {many(run.compared)}" if run.compared else ""
    return f"✗ {many(run.differ)}{of}", "error"


def held_by(meanwhile: Meanwhile | None, short: bool = False) -> str:
    """What held the clock back, in words; `short` without what is in parentheses."""
    reasons = [reason for reason in (meanwhile.reasons if meanwhile else ()) if reason != "gpu_idle"]
    if "hw_thermal_slowdown" in reasons and "hw_slowdown" in reasons:
        reasons.remove("hw_slowdown")  # it only says that one of the two others holds
    words = [_REASONS.get(reason, reason) for reason in reasons]
    return ", ".join(dict.fromkeys(word.partition(" (")[0] for word in words) if short else words)


def verdict_of_all(found: Measurements) -> tuple[Verdict, str] | None:
    """The worst of it and who, for the band; None where nothing is bad: that is not yet a sound machine."""
    gpus: dict[State, set[int]] = {}
    for run in found.runs:
        gpus.setdefault(found.state(run), set()).add(run.gpu)
    gpus = {state: numbers - {-1} or numbers for state, numbers in gpus.items()}
    words: tuple[tuple[State, str, str], ...] = (
        ("wrong", "computes wrong values", "compute wrong values"),
        ("failed", "fails", "fail"),
        ("slow", "is slow", "are slow"),
    )
    said = [
        f"{found.called(next(iter(bad)))} {one}" if len(bad) == 1 else f"{len(bad)} GPUs {several}"
        for state, one, several in words
        if (bad := gpus.get(state))
    ]
    if not said:
        return None
    return ("broken" if gpus.get("wrong") or gpus.get("failed") else "impaired"), ", ".join(said)


def worst(found: Measurements) -> Run | None:
    """The first run that is wrong, else failed, else slow."""
    order = {state: at for at, state in reversed(list(enumerate(BAD)))}
    bad = [(order[state], run) for run in found.runs if (state := found.state(run)) in order]
    return min(bad, key=lambda item: item[0])[1] if bad else None


def next_bad(found: Measurements, kernel: int, gpu: int, by: int) -> Run | None:
    """The next run behind that kernel's on that GPU that is wrong, failed or slow; `by` -1 is the one before it."""
    order = [one.id for one in found.kernels]
    bad = sorted(
        ((order.index(run.kernel), run.gpu), run)
        for run in found.runs
        if run.kernel in order and found.state(run) in BAD
    )
    if not bad:
        return None
    ahead = [run for at, run in bad if (at > (kernel, gpu) if by > 0 else at < (kernel, gpu))]
    return (ahead or [run for _, run in bad])[0 if by > 0 else -1]

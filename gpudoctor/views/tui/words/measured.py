"""What kernels measured in words: states, figures, what held a clock back, the worst of all, and one run as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.core.diagnosis import Verdict
from gpudoctor.core.fact import Json
from gpudoctor.core.language import say
from gpudoctor.core.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Run, Rung, State
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, badge, labelled, plain
from gpudoctor.views.tui.widgets.rows import next_place


class Look(NamedTuple):
    """How a state is shown: glyph, short word, word above the detail, style of its row, colour of the detail."""

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


def number_text(value: float) -> str:
    """A number as text: ``1,234``, ``712``, ``54.1``, ``4.12``, ``0.50``; below 0.1 with three decimals (``0.004``),
    below 0.001 as ``4e-04``.
    """
    if 0 < value < 0.1:
        return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count_text(value: int) -> str:
    """A count in short: ``67 M``, ``12 k``; below 10,000 all digits."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= unit:
            return f"{value // (1000 if name == 'k' else unit)} {name}"
    return str(value)


def state_counts(measurements: Measurements, kernel: Kernel) -> Counter[State]:
    """Number of this kernel's runs (one per GPU) in each state."""
    return Counter(measurements.state(run) for run in measurements.of(kernel.id))


def reference_label(measurements: Measurements, kernel: Kernel) -> str:
    """What a kernel's bars are relative to: ``of expected 722``, ``of the median 4.10``, ``of what each should do``.

    ``nothing to compare with`` if no run has an expected value.
    """
    expected = {value for run in measurements.of(kernel.id) if (value := measurements.expected(run))}
    if not expected:
        return say("nothing to compare with")
    if len({value.value for value in expected}) > 1:
        return say("of what each should do")
    one = next(iter(expected))
    against = "of expected {value}" if one.how == "table" else "of the median {value}"
    return say(against, value=number_text(one.value))


def correctness_cell(run: Run) -> tuple[str, str]:
    """Text and style that say whether a run's values are right: ``✓``, how many differ, or ``?`` if unchecked.

    Empty for a run that did not run.
    """
    if run.right is None:
        return (marks.UNREAD if run.status == "ran" else ""), "dim"
    if run.right:
        return marks.PASSED, ""
    if run.differ is None:
        return say("✗ wrong"), "error"
    of = say(" of {compared}", compared=count_text(run.compared)) if run.compared else ""
    return f"✗ {count_text(run.differ)}{of}", "error"


def throttle_text(meanwhile: Meanwhile | None, short: bool = False) -> str:
    """What limited the clock, in words, comma-separated; `short` drops what is in parentheses.

    Empty if nothing or unknown.
    """
    reasons = [reason for reason in (meanwhile.reasons if meanwhile else ()) if reason != "gpu_idle"]
    if "hw_thermal_slowdown" in reasons and "hw_slowdown" in reasons:
        reasons.remove("hw_slowdown")  # it only says that one of the two others holds
    words = [_REASONS.get(reason, reason) for reason in reasons]
    words = [*dict.fromkeys(word.partition(" (")[0] for word in words)] if short else words
    return say(", ").join(map(say, words))


def verdict_of_all(measurements: Measurements) -> tuple[Verdict, str] | None:
    """``broken`` or ``impaired``, and which GPUs compute wrong values, fail or are slow, in words.

    None if no run is bad, which does not prove it sound.
    """
    gpus: dict[State, set[int]] = {}
    for run in measurements.runs:
        gpus.setdefault(measurements.state(run), set()).add(run.gpu)
    gpus = {state: numbers - {-1} or numbers for state, numbers in gpus.items()}
    words: tuple[tuple[State, str, str], ...] = (
        ("wrong", "{name} computes wrong values", "{name} compute wrong values"),
        ("failed", "{name} fails", "{name} fail"),
        ("slow", "{name} is slow", "{name} are slow"),
    )
    parts = []
    for state, one, several in words:
        if bad := gpus.get(state):
            first = next(iter(bad))
            name = say(measurements.called(first)) if len(bad) == 1 else say("{count} GPUs", count=len(bad))
            parts.append(say(one if len(bad) == 1 and _is_single(measurements, first) else several, name=name))
    if not parts:
        return None
    return ("broken" if gpus.get("wrong") or gpus.get("failed") else "impaired"), say(", ").join(parts)


def _is_single(measurements: Measurements, gpu: int) -> bool:
    """True if that index stands for one GPU or the CPU, False if it (-1) stands for all GPUs together."""
    return gpu >= 0 or any(device.name == "CPU" for device in measurements.devices)


def worst_run(measurements: Measurements) -> Run | None:
    """The first run that is wrong, else the first failed, else the first slow one; None if there is none."""
    order = {state: at for at, state in reversed(list(enumerate(BAD)))}
    bad = [(order[state], run) for run in measurements.runs if (state := measurements.state(run)) in order]
    return min(bad, key=lambda item: item[0])[1] if bad else None


def next_bad(measurements: Measurements, kernel: int, gpu: int, by: int) -> Run | None:
    """The next wrong, failed or slow run after that kernel (its position) and GPU, by kernel, then GPU, wrapping round.

    `by` -1: the previous. None if no run is bad.
    """
    order = [one.id for one in measurements.kernels]
    bad = {
        (order.index(run.kernel), run.gpu): run
        for run in measurements.runs
        if run.kernel in order and measurements.state(run) in BAD
    }
    return bad[next_place(sorted(bad), (kernel, gpu), by)] if bad else None


# ---- One run of a kernel: what is, what follows, what to do, and against what it was measured ----

_HANG = 7
_CONSEQUENCE_OF_RUNG: dict[Rung, str] = {
    "driver": "nothing can run on this GPU before the driver answers for it.",
    "torch": "the driver answers, torch does not get through to the GPU: no training and no inference in torch.",
    "triton": "torch's own kernels work; torch.compile and every kernel written in Triton fail.",
    "nccl": "each GPU works alone; jobs on several of them fail or hang.",
    "training": "torch computes; what a training loop needs beside that does not work.",
}


def run_blocks(measurements: Measurements, kernel: Kernel, run: Run) -> Iterator[Block]:
    """The detail pane of a run: result, consequence, advice, command, details, rungs, samples, expected value."""
    state = measurements.state(run)
    look = LOOKS[state]
    yield badge(_title(measurements, kernel, run, state), f"{look.glyph} {look.word}", look.colour)
    yield GAP
    yield from (Block(plain(text)) for text in _result_sentences(measurements, kernel, run, state))
    follows, command = _consequence(run, state), next_command(measurements, run, state)
    advice = _advice(run, state, measurements.device(run.gpu), bool(command))
    if follows:
        yield GAP
        yield labelled("So", follows, _HANG)
    if advice:
        yield GAP
        yield labelled("Do", advice, _HANG)
    if command:
        yield labelled(f"{'':<{_HANG - 2}}$ ", plain(command, "$primary"), _HANG, "dim")
    for at, (name, value) in enumerate(run.details.items()):
        if not at:
            yield GAP
        yield labelled("" if at else "more", plain(f"{name}: {_json_text(value)}", "dim"), _HANG)
    yield from _ladder_blocks(run)
    yield from _meanwhile_blocks(run.meanwhile)
    expected = measurements.expected(run)
    if expected:
        yield GAP
        formula = plain(say("{formula}; e says from where", formula=expected_formula(expected)), "dim")
        yield labelled(number_text(expected.value), formula, _HANG)


def expected_blocks(measurements: Measurements, kernel: Kernel, run: Run) -> Iterator[Block]:
    """Where the run's expected value comes from: a table's limit and share, or its siblings; or that there is none."""
    expected = measurements.expected(run)
    if expected is None:
        yield Block(
            plain(say("Nothing is known of what this GPU should do here, and it has too few siblings to compare."))
        )
        return
    yield Block(
        plain(
            say(
                "{value} {unit} for {title}",
                value=number_text(expected.value),
                unit=kernel.unit,
                title=say(kernel.title),
            ),
            "bold",
        )
    )
    yield GAP
    if expected.how == "siblings":
        yield Block(plain(say("It is {words}, measured beside it.", words=expected.words)))
        yield Block(
            plain(say("Where all of them are slow alike, this says nothing: no table has a value for this kernel."))
        )
        return
    if expected.limit:
        yield labelled("limit", f"{number_text(expected.limit)} {kernel.unit}  {expected.words}", 10)
    if expected.fraction:
        yield labelled(
            "share", say("{fraction:.0f} % of it is what sound ones achieve", fraction=expected.fraction * 100), 10
        )
    yield labelled("source", expected.source or say("not said"), 10)
    yield GAP
    yield Block(plain(say("Below 90 % of it a GPU counts as slow. Five per cent between sound siblings are usual.")))


def expected_formula(expected: Expected) -> str:
    """How the expected value was computed: ``= 989 × 0.73, H100 SXM, bf16 dense``; only its words without a limit."""
    if expected.limit and expected.fraction:
        product = f"= {number_text(expected.limit)} × {expected.fraction:.2f}"
        return f"{product}, {expected.words}" if expected.words else product
    return expected.words


def next_command(measurements: Measurements, run: Run, state: State) -> str:
    """The command to run next: leave wrong GPUs out, or show what slows a GPU.

    Empty if there is none: for other states, the CPU, all GPUs together, and if no GPU would be left.
    """
    if run.gpu < 0 or measurements.called(run.gpu) == "CPU":
        return ""
    if state == "wrong":
        bad = {other.gpu for other in measurements.runs if measurements.state(other) == "wrong"}
        rest = ",".join(str(device.index) for device in measurements.devices if device.index not in bad)
        return f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={rest}" if rest else ""
    return f"nvidia-smi -i {run.gpu} -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER" if state == "slow" else ""


def _title(measurements: Measurements, kernel: Kernel, run: Run, state: State) -> str:
    """Title of the run's detail, by its state: ``GPU 3 computes wrong values``."""
    gpu, one, title = say(measurements.called(run.gpu)), _is_single(measurements, run.gpu), say(kernel.title)
    does = "{gpu} does {percent} % of what it should in {title}"
    if not one:
        does = "{gpu} do {percent} % of what it should in {title}"
    step = run.broken
    ratio = measurements.ratio(run)
    return {
        "wrong": say("{name} computes wrong values" if one else "{name} compute wrong values", name=gpu),
        "failed": say("{gpu}: {title} failed", gpu=gpu, title=title)
        + (say(" at {rung}", rung=step.rung) if step else ""),
        "slow": say(does, gpu=gpu, percent=f"{(ratio or 0) * 100:.0f}", title=title),
        "unjudged": say("{gpu}: nothing to compare with", gpu=gpu)
        if run.status == "ran"
        else say("{gpu} was not measured" if one else "{gpu} were not measured", gpu=gpu),
        "sound": say("{gpu}: {title} as it should be", gpu=gpu, title=title),
        "waiting": say("{gpu} is next" if one else "{gpu} are next", gpu=gpu),
        "running": say("{gpu} is at work" if one else "{gpu} are at work", gpu=gpu),
    }[state]


def _result_sentences(measurements: Measurements, kernel: Kernel, run: Run, state: State) -> Iterator[str]:
    """Sentences that say what was measured, what differs, what held the clock back, why it failed or was not run."""
    expected = measurements.expected(run)
    if state == "wrong" and run.differ is not None:
        of = say(" of {compared:,}", compared=run.compared) if run.compared else ""
        yield say(
            "{differ:,}{of} values differ from the reference. {words}", differ=run.differ, of=of, words=say(run.words)
        ).strip()
    elif run.words:
        yield say(run.words)
    if run.value is not None:
        of = say(" of {value}", value=number_text(expected.value)) if expected else ""
        spread = say(", ±{spread:.1f} % between repetitions", spread=run.spread * 100) if run.spread is not None else ""
        yield say("{sentence}.", sentence=f"{number_text(run.value)}{of} {kernel.unit}{spread}")
    if state == "slow" and (held := throttle_text(run.meanwhile)):
        yield say("Held back by: {held}.", held=held)
    if run.because:
        yield f"{say('failed' if run.status == 'failed' else 'not run')}{say(': ')}{say(run.because)}"
    if (step := run.broken) and run.because not in step.message:
        yield f"{step.rung}: {step.message}"
    if state == "sound" and run.right is not None:
        yield say("Its values are those of the reference.")


def _consequence(run: Run, state: State) -> str:
    """What follows for jobs from a run in this state; empty if nothing does."""
    step = run.broken
    if state == "failed" and step and step.message.startswith(f"{run.kernel}: "):
        return say("{rung} itself works on this GPU; whatever uses this fails.", rung=step.rung)
    if state == "failed":
        return say(_CONSEQUENCE_OF_RUNG.get(step.rung, "")) if step else ""
    return {
        "wrong": say("training on it can diverge, and a model it trained be worse, without any message."),
        "slow": say("every job that waits for all GPUs waits for this one."),
        "unjudged": say("nothing is known of it; it counts neither as sound nor as bad.")
        if run.status != "ran"
        else "",
    }.get(state, "")


def _advice(run: Run, state: State, device: Device | None, has_command: bool) -> str:
    """What to do about a run: its own advice, else that for its state; empty if there is none.

    `has_command`: a command is shown below the advice.
    """
    if run.advice:
        return say(run.advice)
    if state == "wrong" and run.gpu < 0:
        return say("which GPU or link it is, the kernels of each GPU alone tell. Until that is known train on none.")
    if state == "wrong":
        leave_out = say(" Until then leave it out:") if has_command else ""
        return say("take it out of use, and ask for a replacement with these numbers.{leave_out}", leave_out=leave_out)
    if state == "slow" and run.meanwhile and any("thermal" in reason for reason in run.meanwhile.reasons):
        return say("look at its cooling: fans, dust, the neighbours' air.")
    if state == "slow":
        return say("see what holds it back; 2 shows it live:")
    if state == "failed":
        return say("1 shows the causes that were found, with their cures.")
    is_in_use = state == "unjudged" and run.status == "not-run" and device and device.held
    return say("enter measures it once it is free.") if is_in_use else ""


def _json_text(value: Json) -> str:
    """A JSON value on one line: ``0-1 24.1, 0-2 23.9``; ``none`` for an empty list, ``not known`` for null."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_json_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_json_text, value)) or say("none")
    if isinstance(value, bool) or value is None:
        return {True: say("yes"), False: say("no"), None: say("not known")}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ladder_blocks(run: Run) -> Iterator[Block]:
    """A line with each rung (driver, torch, ...) and whether it held; nothing if all did."""
    if not run.broken:
        return
    yield GAP
    glyphs = {True: "✓", False: "✗", None: "·"}
    rungs = (f"{glyphs[step.held]} {step.rung}" for step in run.ladder)
    yield labelled("rungs", "   ".join(rungs), _HANG)


def _meanwhile_blocks(meanwhile: Meanwhile | None) -> Iterator[Block]:
    """A line with clock, temperature and power during the run; nothing if none of them was sampled."""
    if meanwhile is None:
        return
    parts = []
    if meanwhile.sm_clock_mhz is not None:
        of = say(" of {most:.0f}", most=meanwhile.max_sm_clock_mhz) if meanwhile.max_sm_clock_mhz else ""
        parts.append(f"{meanwhile.sm_clock_mhz:.0f}{of} MHz")
    if meanwhile.temperature_c is not None:
        parts.append(f"{meanwhile.temperature_c:.0f} °C")
    if meanwhile.power_w is not None:
        of = say(" of {most:.0f}", most=meanwhile.power_limit_w) if meanwhile.power_limit_w else ""
        parts.append(f"{meanwhile.power_w:.0f}{of} W")
    if parts:
        yield GAP
        yield labelled("while", " · ".join(parts), _HANG)

"""One run of a kernel in words: what is, what follows, what to do, and against what it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual.content import Content

from gpudoctor.model.fact import Json
from gpudoctor.model.measurement import Expected, Kernel, Meanwhile, Measurements, Run, Rung, State
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words import measured

_HANG = 7
_STANDS: dict[Rung, str] = {
    "driver": "nothing can run on this GPU before the driver answers for it.",
    "torch": "the driver answers, torch does not get through to the GPU: no training and no inference in torch.",
    "triton": "torch's own kernels work; torch.compile and every kernel written in Triton fail.",
    "nccl": "each GPU works alone; jobs on several of them fail or hang.",
    "training": "torch computes; what a training loop needs beside that does not work.",
}


def blocks(found: Measurements, kernel: Kernel, run: Run) -> Iterator[Block]:
    """All that is known of it."""
    state = found.state(run)
    look = measured.LOOKS[state]
    head = Content.styled(f" {look.glyph} {look.word} ", f"bold reverse {look.colour}")
    yield Block(plain(_title(found, kernel, run, state), "bold"), Content.assemble(head, " "), head.cell_length + 1)
    yield GAP
    yield from (Block(plain(text)) for text in _is(found, kernel, run, state))
    follows, do = _so(run, state), _do(run, state)
    if follows:
        yield GAP
        yield Block(plain(follows), Content.styled("So", "bold"), _HANG)
    for at, text in enumerate(do):
        if not at:
            yield GAP
        yield Block(plain(text), Content.styled("" if at else "Do", "bold"), _HANG)
    if command := cure(found, run, state):
        yield Block(plain(command, "$primary"), Content.styled(f"{'':<{_HANG - 2}}$ ", "dim"), _HANG)
    yield from _details(run)
    yield from _ladder(run)
    yield from _meanwhile(run.meanwhile)
    expected = found.expected(run)
    if expected:
        yield GAP
        yield Block(
            plain(f"{reckoned(expected)}; e says from where", "dim"), _lead(measured.number(expected.value)), _HANG
        )


def why(found: Measurements, kernel: Kernel, run: Run) -> Iterator[Block]:
    """Where the expected value comes from."""
    expected = found.expected(run)
    if expected is None:
        yield Block(plain("Nothing is known of what this GPU should do here, and it has too few siblings to compare."))
        return
    yield Block(plain(f"{measured.number(expected.value)} {kernel.unit} for {kernel.title}", "bold"))
    yield GAP
    if expected.how == "siblings":
        yield Block(plain(f"It is {expected.words}, measured beside it."))
        yield Block(plain("Where all of them are slow alike, this says nothing: no table has a value for this kernel."))
        return
    if expected.limit:
        yield Block(plain(f"{measured.number(expected.limit)} {kernel.unit}  {expected.words}"), _lead("limit"), 10)
    if expected.fraction:
        yield Block(plain(f"{expected.fraction * 100:.0f} % of it is what sound ones achieve"), _lead("share"), 10)
    yield Block(plain(expected.source or "not said"), _lead("source"), 10)
    yield GAP
    yield Block(plain("Below 90 % of it a GPU counts as slow. Five per cent between sound siblings are usual."))


def reckoned(expected: Expected) -> str:
    """``989 × 0.73, H100 SXM, bf16 dense``."""
    if expected.limit and expected.fraction:
        return f"= {measured.number(expected.limit)} × {expected.fraction:.2f}, {expected.words}"
    return expected.words


def cure(found: Measurements, run: Run, state: State) -> str:
    """The command that helps on: leave the GPU out, or look at what holds it back."""
    if state == "wrong" and found.called(run.gpu) != "CPU":
        bad = {other.gpu for other in found.runs if found.state(other) == "wrong"}
        rest = ",".join(str(device.index) for device in found.devices if device.index not in bad)
        return f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={rest}"
    if state != "slow" or found.called(run.gpu) == "CPU":
        return ""
    return f"nvidia-smi -i {run.gpu} -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER"


def _lead(text: str) -> Content:
    return Content.styled(text, "bold")


def _title(found: Measurements, kernel: Kernel, run: Run, state: State) -> str:
    gpu = found.called(run.gpu)
    step = run.broken
    ratio = found.ratio(run)
    return {
        "wrong": f"{gpu} computes wrong values",
        "failed": f"{gpu}: {kernel.title} failed" + (f" at {step.rung}" if step else ""),
        "slow": f"{gpu} does {(ratio or 0) * 100:.0f} % of what it should in {kernel.title}",
        "unjudged": f"{gpu} was not measured" if run.status != "ran" else f"{gpu}: nothing to compare with",
        "sound": f"{gpu}: {kernel.title} as it should be",
        "waiting": f"{gpu} is next",
        "running": f"{gpu} is at work",
    }[state]


def _is(found: Measurements, kernel: Kernel, run: Run, state: State) -> Iterator[str]:
    expected = found.expected(run)
    if state == "wrong" and run.differ is not None:
        of = f" of {run.compared:,}" if run.compared else ""
        yield f"{run.differ:,}{of} values differ from the reference. {run.words}".strip()
    elif run.words:
        yield run.words
    if run.value is not None:
        of = f" of {measured.number(expected.value)}" if expected else ""
        spread = f", ±{run.spread * 100:.1f} % between repetitions" if run.spread is not None else ""
        yield f"{measured.number(run.value)}{of} {kernel.unit}{spread}."
    if state == "slow" and (held := measured.held_by(run.meanwhile)):
        yield f"Held back by: {held}."
    if run.because:
        yield f"{'failed' if run.status == 'failed' else 'not run'}: {run.because}"
    if (step := run.broken) and run.because not in step.message:
        yield f"{step.rung}: {step.message}"
    if state == "sound" and run.right is not None:
        yield "Its values are those of the reference."


def _so(run: Run, state: State) -> str:
    step = run.broken
    if state == "failed" and step and step.message.startswith(f"{run.kernel}: "):
        return f"{step.rung} itself works on this GPU; whatever uses this fails."
    if state == "failed":
        return _STANDS.get(step.rung, "") if step else ""
    return {
        "wrong": "training on it can diverge, and a model it trained be worse, without any message.",
        "slow": "every job that waits for all GPUs waits for this one.",
        "unjudged": "nothing is known of it; it counts neither as sound nor as bad." if run.status != "ran" else "",
    }.get(state, "")


def _do(run: Run, state: State) -> Iterable[str]:
    if run.advice:
        return (run.advice,)
    if state == "wrong":
        return ("take it out of use, and ask for a replacement with these numbers. Until then leave it out:",)
    if state == "slow":
        heat = "heat" in measured.held_by(run.meanwhile)
        return (
            "look at its cooling: fans, dust, the neighbours' air."
            if heat
            else "see what holds it back; 2 shows it live:",
        )
    if state == "failed":
        return ("1 shows the causes that were found, with their cures.",)
    if state == "unjudged" and run.because.startswith("in use"):
        return ("enter measures it once it is free.",)
    return ()


def _details(run: Run) -> Iterator[Block]:
    """Further figures by name, a line each: what is a list or a table is one line, too."""
    lead = "more"
    for name, value in run.details.items():
        if not lead:
            yield Block(plain(f"{name}: {_short(value)}", "dim"), _lead(f"{'':<{_HANG - 2}}"), _HANG)
            continue
        yield GAP
        yield Block(plain(f"{name}: {_short(value)}", "dim"), _lead(lead), _HANG)
        lead = ""


def _short(value: Json) -> str:
    """A value on one line: ``0-1 24.1, 0-2 23.9``."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ladder(run: Run) -> Iterator[Block]:
    if not run.broken:
        return
    yield GAP
    glyphs = {True: "✓", False: "✗", None: "·"}
    rungs = (f"{glyphs[step.held]} {step.rung}" for step in run.ladder)
    yield Block(plain("   ".join(rungs)), _lead("rungs"), _HANG)


def _meanwhile(meanwhile: Meanwhile | None) -> Iterator[Block]:
    if meanwhile is None:
        return
    said = []
    if meanwhile.sm_clock_mhz is not None:
        of = f" of {meanwhile.max_sm_clock_mhz:.0f}" if meanwhile.max_sm_clock_mhz else ""
        said.append(f"{meanwhile.sm_clock_mhz:.0f}{of} MHz")
    if meanwhile.temperature_c is not None:
        said.append(f"{meanwhile.temperature_c:.0f} °C")
    if meanwhile.power_w is not None:
        of = f" of {meanwhile.power_limit_w:.0f}" if meanwhile.power_limit_w else ""
        said.append(f"{meanwhile.power_w:.0f}{of} W")
    if said:
        yield GAP
        yield Block(plain(" · ".join(said)), _lead("while"), _HANG)

"""What the user wishes to have installed: typed for a field, and made a plan of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Known
from gpudoctor.model.plan import Plan
from gpudoctor.model.stack import GPU, MACHINE, Stack, Wishes, wanted
from gpudoctor.views.tui.words import stack as words

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

TYPED = {
    "gpus": "A GPU by its name: RTX 5090, H100, GTX 1080 Ti.",
    "driver": "The driver's version: 570.124.06, or its branch: 570.",
    "python": "3.10 to 3.14.",
    "os": "linux, windows or wsl.",
    "arch": "x86_64 or aarch64.",
    "torch": "A release: 2.9 or 2.8.0. Empty is the newest that fits.",
    "wants": "Requirements with a space between: torch>=2.6 flash-attn vllm. Empty is none.",
}
"""What may be typed for which field."""


def ask(app: DoctorApp, name: str, wishes: Wishes, then: Callable[[object], None]) -> None:
    """Have a value typed for the field of that name, and call `then` with it."""
    from gpudoctor.views.tui.screens.ask import Ask

    now = getattr(wishes, name)
    value = "" if name == "gpus" else " ".join(now) if name == "wants" else str(now)

    def typed(text: str | None) -> None:
        if text or (name in ("torch", "wants") and text is not None):
            then(_value(name, text))

    app.push_screen(Ask(words.LABELS[name], value, TYPED[name]), typed)


def _value(field: str, text: str) -> object:
    """What was typed, as the wishes have it."""
    if field == "gpus":
        return (GPU(text),)
    if field == "wants":
        return wanted(text)
    return tuple(text.split()) if field == "extras" else text


def plan_of(stack: Stack, wishes: Wishes, diagnosis: Diagnosis) -> Plan:
    """The commands as a plan for the machine that was read."""
    prefix = diagnosis.snapshot.get("python.prefix")
    where = str(prefix.value) if isinstance(prefix, Known) else ""
    return stack.plan(wishes.tool, diagnosis.snapshot.target.name, where, _hindrance(wishes, diagnosis))


def _hindrance(wishes: Wishes, diagnosis: Diagnosis) -> str:
    if wishes.elsewhere:
        said = ", ".join(words.LABELS.get(name, name) for name in MACHINE if name in wishes.said)
        return f"not from here: it is for another machine ({said} as you said)"
    if diagnosis.snapshot.target.kind != "local":
        return "not from here: what was read is another machine"
    return ""

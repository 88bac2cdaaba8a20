"""The questions of ``fix`` on a terminal: nothing but a plain yes runs a step, and a reboot wants the host's name."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Literal

from gpudoctor.model.errors import UsageError
from gpudoctor.views._terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpudoctor.model.plan import Plan, PlanStep

Answer = Literal["run", "leave out", "stop"]
_STEP = "Run it? y yes, n leave it out, a all the rest, q stop [n] "
_BY_HAND = "Is it done? y yes, n leave it out, q stop [n] "


def require_terminal() -> None:
    """Raise `UsageError` where nobody can be asked."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask on: --dry-run shows the plan, --yes runs it without a question")


def put(question: str) -> str:
    """The answer in small letters; ``q`` where there is no more input, and for Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a handler that returns has the read go on
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        said = sys.stdin.readline()
    except KeyboardInterrupt:
        said = ""
    finally:
        signal.signal(signal.SIGINT, before)
    if not said.endswith("\n"):
        sys.stderr.write("\n")
        return "q"
    return said.strip().lower()


def agreed(question: str) -> bool:
    """Whether the answer is a plain yes."""
    return put(f"{question} y yes, n no [n] ") in ("y", "yes")


class Questions:
    """Asks before each step of a plan that changes something, until somebody says ``all the rest``, which no reboot
    is part of.
    """

    def __init__(self, plan: Plan, show: Callable[[PlanStep], Sequence[str]]) -> None:
        self._plan, self._show, self._all = plan, show, False
        self._left: set[str] = set()
        """Causes of which a step was left out: whether they are gone is not asked then."""

    def __call__(self, step: PlanStep) -> Answer:
        """What is to become of that step."""
        if step.verify:
            return "leave out" if step.cause in self._left else "run"
        answer = self._ask(step)
        if answer == "leave out" and (step.touches != "nothing" or not step.argv):
            self._left.add(step.cause)
        return answer

    def _ask(self, step: PlanStep) -> Answer:
        only_shows = step.touches == "nothing" and not step.needs
        if step.argv and (only_shows or (self._all and "reboot" not in step.needs)):
            return "run"
        sys.stderr.write("".join(f"{line}\n" for line in ("", *self._show(step))))
        if "reboot" in step.needs:
            return self._reboot()
        said = put(f"     {_STEP if step.argv else _BY_HAND}")
        self._all = self._all or (said in ("a", "all") and bool(step.argv))
        if said in ("y", "yes", "a", "all"):
            return "run"
        return "stop" if said in ("q", "quit") else "leave out"

    def _reboot(self) -> Answer:
        """Only the machine's name is a yes."""
        name = one_line(self._plan.machine)
        said = put(f"     It reboots. Type {name} to run it, q to stop; anything else leaves it out: ")
        if name and said == name.lower():
            return "run"
        return "stop" if said in ("q", "quit") else "leave out"

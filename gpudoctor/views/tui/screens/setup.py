"""What to install: the torch stack that fits this machine, or another one, with the command and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan
from gpudoctor.core.stack import GPU, MACHINE, Stack, Wishes, parse_requirements, wishes_from_snapshot
from gpudoctor.views.tui.base import BaseApp, FramedScreen
from gpudoctor.views.tui.repair import ConfirmScreen, open_given_plan
from gpudoctor.views.tui.screens.dialogs import TextDialog
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.widgets.form import Form
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import stack as words
from gpudoctor.views.tui.work import error_text, run_in_thread


class SetupScreen(FramedScreen):
    """What to install: choices at the left, the stack that fits at the right; nothing is installed without a yes."""

    NAME = "setup"
    AUTO_FOCUS = "#form"
    CSS = """
    #choices { height: 20; max-height: 60%; }
    .-narrow #choices { height: 1fr; max-height: 100%; }
    #form { width: 2fr; min-width: 52; }
    #fits { width: 3fr; }
    #why { height: 1fr; }
    .-narrow #form { width: 1fr; height: auto; max-height: 55%; min-width: 0; }
    .-narrow #fits { width: 1fr; height: 1fr; }
    .-narrow #why { display: none; }
    .-narrow #why.-open { display: block; height: 8fr; }
    #why.-none, .-narrow #why.-none.-open { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "apply", "apply", tooltip="The commands as a plan; nothing is run before a yes"),
        Binding("c", "copy", "copy", tooltip="Copy the command or the file"),
        Binding("w", "write", "write", tooltip="Write the command or the file to a file"),
        Binding("e", "why", "why", tooltip="The reasons, where they are hidden"),
        Binding("enter", "type", "type it", tooltip="Type another value for the field"),
        Binding("s", "smallest", "smallest change", tooltip="Set the smallest change with which something fits"),
        Binding("g", "gpu", "other GPU", show=False, tooltip="Plan for another GPU"),
        Binding("0", "reset", "as read", show=False, tooltip="All choices as they were read"),
    ]

    def body(self) -> Iterable[Widget]:
        """Choices and what fits them side by side, the reasons below."""
        self.form, self.fits = Form(), Pane("What fits", id="fits")
        self.why = Pane("Why", id="why")
        self.read, self.wishes = Wishes(), Wishes()
        self.stack: Stack | None = None
        self._solve_number, self._remedy_number, self._trouble, self._solving = 0, 0, "", False
        with Container(classes="panes", id="choices"):
            yield self.form
            yield self.fits
        yield self.why

    def on_mount(self) -> None:
        """Show the choices, without a stack, if nothing was read yet."""
        if not self.doctor.diagnosis:
            self._show_stack()

    def on_resize(self) -> None:
        """Redraw choices, stack and reasons for the new width, after the layout."""
        self.call_after_refresh(self._show_stack)

    def show(self, diagnosis: Diagnosis) -> None:
        """Take the diagnosis's machine as choices, keep what the user has set, and solve anew; nothing if unchanged."""
        read = wishes_from_snapshot(diagnosis.snapshot)
        if read == self.read:
            return
        kept = {name: getattr(self.wishes, name) for name in self.wishes.set_by_user}
        self.read, self.wishes = read, replace(read, set_by_user=self.wishes.set_by_user, **kept)
        self._solve()

    def _solve(self) -> None:
        """Work out the stack for the current choices in a thread, and redraw; an older answer is ignored."""
        self._solve_number += 1
        self._trouble, self._solving = "", False
        number, wishes, solver = self._solve_number, self.wishes, self.doctor.work.stack
        if solver:
            self._solving = True
            run_in_thread(self.app, "solve", lambda: solver(wishes), lambda answer: self._receive_stack(number, answer))
        self._show_stack()

    def _receive_stack(self, number: int, answer: Stack | BaseException) -> None:
        """Show the stack, or why there is none; ignored if the choices have changed since."""
        if number != self._solve_number:
            return
        self._solving = False
        if isinstance(answer, BaseException):
            self.stack, self._trouble = None, error_text(answer)
        else:
            self.stack, self._remedy_number = answer, 0
        self._show_stack()

    def _show_stack(self) -> None:
        """Redraw choices, stack (or why there is none, or that it is being worked out), reasons and frame."""
        stack = self.stack
        self.form.put(list(words.field_options(self.wishes, self.read, stack)))
        if self._trouble:
            self.fits.put("What fits", [Block(plain(self._trouble), Content.styled("✗ ", "$error"), 2)])
        elif stack:
            self.fits.put("What fits", list(words.fit_blocks(stack, self.wishes, self.has_class("-narrow"))))
        elif self._solving:
            self.fits.put("What fits", [Block(Content(say("working it out …")))])
        else:
            self.fits.put("What fits", list(words.no_machine_blocks()))
        self.why.set_class(not stack, "-none")
        self.why.put("Why", list(words.reason_blocks(stack)) if stack else [])
        self.reframe()
        self.refresh_bindings()

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: which machine the stack is for, and that nothing is installed without a yes."""
        if not self.doctor.reading.over:
            return super().status()
        where = say("for another machine" if self.wishes.elsewhere else "for this machine")
        how = say("0 sets it back" if self.wishes.elsewhere else "change a line to plan for another")
        text = where if self.has_class("-narrow") else f"{where}{say('; ')}{how}"
        return Content(text), Content(say("nothing is installed until you say yes"))

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Let the user type a value for the field under the cursor; without a solver choose the option under it."""
        if event.rows is self.form and self.doctor.work.stack:
            self.action_type()
        elif event.rows is self.form:
            self.form.action_choose()

    def on_form_picked(self, event: Form.Picked) -> None:
        """Set the field to the picked option; of a field with several values, add or remove it."""
        option = event.option
        value = option.value
        if option.several:
            now = self.wishes.extras
            value = tuple(item for item in now if item != value) if value in now else (*now, str(value))
        self._set_field(option.field, value)

    def _set_field(self, name: str, value: object) -> None:
        """Set a field of the wishes and solve anew; for ``tool`` and ``emit``, which change no stack, only redraw.

        A value as read does not count as set by the user.
        """
        wishes = self.wishes.with_wish(name, value)
        if value == getattr(self.read, name):
            wishes = replace(wishes, set_by_user=wishes.set_by_user - {name})
        self.wishes = wishes
        if name in ("tool", "emit") and self.stack:
            self._show_stack()  # what fits is the same
        else:
            self._solve()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """False for ``smallest`` if a stack fits, ``type`` without a solver, ``why`` if reasons are shown anyway."""
        if action == "smallest":
            return bool(self.stack and self.stack.smallest and not self.stack.torch)
        if action == "type":
            return self.doctor.work.stack is not None
        if action == "why":
            return self.has_class("-narrow") or not self.stack
        return True

    def action_type(self) -> None:
        """Open a dialog for a value of the field under the cursor; only a message if none can be typed."""
        option = self.form.option
        if not option or option.field not in TYPED:
            self.doctor.say("space chooses here; there is nothing to type")
        else:
            ask_for_value(self.doctor, option.field, self.wishes, partial(self._set_field, option.field))

    def action_smallest(self) -> None:
        """Apply the smallest change that makes something fit; when repeated, the next. Nothing if none is known."""
        stack = self.stack
        if stack and stack.smallest:
            remedy = stack.smallest[self._remedy_number % len(stack.smallest)]
            self._remedy_number += 1
            self.wishes = self.wishes.remedied(remedy)
            self._solve()
            self.doctor.say("set: {text}; 0 sets all back", text=remedy.text)

    def action_gpu(self) -> None:
        """Go to the field of the GPU, and open a dialog to type another one."""
        self.form.focus()
        self.form.action_edge(0)
        if self.doctor.work.stack:
            self.action_type()

    def action_reset(self) -> None:
        """Set all choices back to what was read, and solve anew."""
        self.wishes = self.read
        self._solve()

    def action_why(self) -> None:
        """Show or hide the reasons on narrow screens; without a stack, open the page ``torch``."""
        if not self.stack:
            self.app.push_screen(ExplainScreen("torch"))
            return
        self.why.toggle_class("-open")

    def _command_text(self) -> str:
        """The chosen form (command or file) of the stack as text; empty without a stack."""
        return self.stack.written(self.wishes.tool, self.wishes.emit) if self.stack else ""

    def action_copy(self) -> None:
        """Copy the command or file; only a message if nothing fits."""
        if text := self._command_text():
            self.app.copy_to_clipboard(text)
            first = text.splitlines()[0]
            more = len(text.splitlines()) - 1
            self.doctor.say(
                say("copied: {first}", first=first) + (say(" and {more} more lines", more=more) if more else "")
            )
        else:
            self.doctor.say("nothing fits these choices, so there is nothing to copy")

    def action_write(self) -> None:
        """Ask, then write the shown command or file into the current folder; only a message if there is none."""
        text, save, name = self._command_text(), self.doctor.work.save, words.FILES[self.wishes.emit]
        if not text or not save:
            self.doctor.say("nothing fits these choices" if not text else "nothing is written from here")
            return

        def done(answer: BaseException | None) -> None:
            """Show a message: the file was written (None), or why not."""
            self.doctor.say(
                say("not written: {error}", error=error_text(answer)) if answer else say("written to {name}", name=name)
            )

        def answered(yes: bool | None) -> None:
            """Write the file in a thread after a yes."""
            if yes:
                run_in_thread(self.app, "write", lambda: save(text, name), done)

        blocks = [Block(plain(say("Write {name} in the folder that gpudoctor was started in?", name=name), "bold"))]
        blocks.append(Block(Content(say("A file of that name is replaced."))))
        self.app.push_screen(ConfirmScreen("Write it?", blocks, "write it"), answered)

    def action_apply(self) -> None:
        """Open the stack's commands as a plan on the fix screen; a message if nothing fits or another plan runs."""
        stack, diagnosis = self.stack, self.doctor.diagnosis
        if not stack or not stack.torch or not diagnosis:
            self.doctor.say("nothing fits these choices, so there is nothing to install")
        elif self.doctor.repair and self.doctor.repair.busy:
            self.doctor.say("another plan is under way: f shows it")
        else:
            open_given_plan(self.doctor, plan_of(stack, self.wishes, diagnosis))


# ---- What the user wishes to have installed ----

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


def ask_for_value(app: BaseApp, name: str, wishes: Wishes, then: Callable[[object], None]) -> None:
    """Open a dialog to type a value for that field of the wishes, and call `then` with it unless the user goes back.

    Nothing typed is a value only for ``torch`` and ``wants``.
    """
    now = getattr(wishes, name)
    value = "" if name == "gpus" else " ".join(now) if name == "wants" else str(now)

    def typed(text: str | None) -> None:
        """Call `then` with the typed text as value; not if the dialog was cancelled (None) or nothing is no value."""
        if text or (name in ("torch", "wants") and text is not None):
            then(_value_of_text(name, text))

    app.push_screen(TextDialog(words.LABELS[name], value, TYPED[name]), typed)


def _value_of_text(field: str, text: str) -> object:
    """The typed text as value of that field of `Wishes`: a tuple of one GPU, a tuple of requirements, else the text."""
    if field == "gpus":
        return (GPU(text),)
    return parse_requirements(text) if field == "wants" else text


def plan_of(stack: Stack, wishes: Wishes, diagnosis: Diagnosis) -> Plan:
    """The stack's commands as a plan for the machine of the diagnosis, with the reason if it cannot be run here."""
    where = diagnosis.snapshot.text("python.prefix")
    return stack.plan(wishes.tool, diagnosis.snapshot.target.name, where, _hindrance(wishes, diagnosis))


def _hindrance(wishes: Wishes, diagnosis: Diagnosis) -> str:
    """Why the stack's plan cannot be run here; empty if it can."""
    if wishes.elsewhere:
        wished = ", ".join(say(words.LABELS.get(name, name)) for name in MACHINE if name in wishes.set_by_user)
        return say("not from here: it is for another machine ({wished} as given)", wished=wished)
    if diagnosis.snapshot.target.kind != "local":
        return say("not from here: what was read is another machine")
    return ""

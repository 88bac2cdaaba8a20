"""What to install: the torch stack that fits this machine, or another one, with the command and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DoctorError
from gpudoctor.model.fact import Known
from gpudoctor.model.plan import Plan
from gpudoctor.model.stack import GPU, MACHINE, Stack, Wishes, read_from, wanted
from gpudoctor.views.tui import background
from gpudoctor.views.tui.repair import handed_over
from gpudoctor.views.tui.screens.confirm import Sure
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.widgets.form import Form
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import stack as words

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp


class SetupScreen(Place):
    """Every choice is answered at once; nothing is installed before the plan of it was seen and a yes was said."""

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
        self._round, self._remedy, self._trouble, self._solving = 0, 0, "", False
        with Container(classes="panes", id="choices"):
            yield self.form
            yield self.fits
        yield self.why

    def on_mount(self) -> None:
        """Something to see before anything was read."""
        super().on_mount()
        if not self.doctor.diagnosis:
            self._put()

    def on_resize(self) -> None:
        """The order of what is said goes by the room there is."""
        super().on_resize()
        self.call_after_refresh(self._put)

    def show(self, diagnosis: Diagnosis) -> None:
        """The machine as it was read, under what the user said of it."""
        read = read_from(diagnosis.snapshot)
        if read == self.read:
            return
        kept = {name: getattr(self.wishes, name) for name in self.wishes.said}
        self.read, self.wishes = read, replace(read, said=self.wishes.said, **kept)
        self._solve()

    def _solve(self) -> None:
        """Have these choices answered, beside the interface."""
        self._round += 1
        self._trouble, self._solving = "", False
        mine, wishes, solver = self._round, self.wishes, self.doctor.work.stack
        if solver:
            self._solving = True
            background.start(self.app, "solve", lambda: solver(wishes), lambda answer: self._solved(mine, answer))
        self._put()

    def _solved(self, mine: int, answer: Stack | BaseException) -> None:
        if mine != self._round:
            return
        self._solving = False
        if isinstance(answer, BaseException):
            said = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.stack, self._trouble = None, " ".join(said.split())
        else:
            self.stack, self._remedy = answer, 0
        self._put()

    def _put(self) -> None:
        stack = self.stack
        self.form.put(list(words.options(self.wishes, self.read, stack)))
        if self._trouble:
            self.fits.put("What fits", [Block(plain(self._trouble), Content.styled("✗ ", "$error"), 2)])
        elif stack:
            self.fits.put("What fits", list(words.fits(stack, self.wishes, self.has_class("-narrow"))))
        elif self._solving:
            self.fits.put("What fits", [Block(Content("working it out …"))])
        else:
            self.fits.put("What fits", list(words.no_machine()))
        self.why.set_class(not stack, "-none")
        self.why.put("Why", list(words.why(stack)) if stack else [])
        self.reframe()
        self.refresh_bindings()

    def status(self) -> Sequence[Content | str]:
        """Which machine it is for."""
        if not self.doctor.reading.over:
            return super().status()
        where = "for another machine" if self.wishes.elsewhere else "for this machine"
        how = "0 sets it back" if self.wishes.elsewhere else "change a line to plan for another"
        said = where if self.has_class("-narrow") else f"{where}; {how}"
        return Content(said), Content("nothing is installed until you say yes")

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter: type a value where one can be worked with, else choose what is under the cursor."""
        if event.rows is self.form and self.doctor.work.stack:
            self.action_type()
        elif event.rows is self.form:
            self.form.action_choose()

    def on_form_picked(self, event: Form.Picked) -> None:
        """Set that field, and answer anew."""
        option = event.option
        value = option.value
        if option.several:
            now = self.wishes.extras
            value = tuple(item for item in now if item != value) if value in now else (*now, str(value))
        self._set(option.field, value)

    def _set(self, name: str, value: object) -> None:
        wishes = self.wishes.saying(name, value)
        if value == getattr(self.read, name):
            wishes = replace(wishes, said=wishes.said - {name})
        self.wishes = wishes
        if name in ("tool", "emit") and self.stack:
            self._put()  # what fits is the same
        else:
            self._solve()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Only what can be done now shows its key."""
        if action == "smallest":
            return bool(self.stack and self.stack.smallest and not self.stack.torch)
        if action == "type":
            return self.doctor.work.stack is not None
        if action == "why":
            return self.has_class("-narrow") or not self.stack
        return True

    def action_type(self) -> None:
        """Type another value for the field under the cursor."""
        option = self.form.option
        if not option or option.field not in TYPED:
            self.doctor.say("space chooses here; there is nothing to type")
        else:
            ask(self.doctor, option.field, self.wishes, partial(self._set, option.field))

    def action_smallest(self) -> None:
        """Set the smallest change with which something fits; pressed again, the next one."""
        stack = self.stack
        if stack and stack.smallest:
            remedy = stack.smallest[self._remedy % len(stack.smallest)]
            self._remedy += 1
            self.wishes = self.wishes.remedied(remedy)
            self._solve()
            self.doctor.say(f"set: {remedy.text}; 0 sets all back")

    def action_gpu(self) -> None:
        """The field of the GPU."""
        self.form.focus()
        self.form.action_edge(0)
        if self.doctor.work.stack:
            self.action_type()

    def action_reset(self) -> None:
        """All as it was read."""
        self.wishes = self.read
        self._solve()

    def action_why(self) -> None:
        """Show or hide the reasons, where there is no room for all panes; without an answer, the table of builds."""
        if not self.stack:
            from gpudoctor.views.tui.screens.explain import ExplainScreen

            self.app.push_screen(ExplainScreen("torch"))
            return
        self.why.toggle_class("-open")

    def _written(self) -> str:
        return self.stack.written(self.wishes.tool, self.wishes.emit) if self.stack else ""

    def action_copy(self) -> None:
        """The command or the file to the clipboard."""
        if text := self._written():
            self.app.copy_to_clipboard(text)
            first = text.splitlines()[0]
            more = len(text.splitlines()) - 1
            self.doctor.say(f"copied: {first}" + (f" and {more} more lines" if more else ""))
        else:
            self.doctor.say("nothing fits these choices, so there is nothing to copy")

    def action_write(self) -> None:
        """Ask, then write it to a file in the folder that this runs in."""
        text, save, name = self._written(), self.doctor.work.save, words.FILES[self.wishes.emit]
        if not text or not save:
            self.doctor.say("nothing fits these choices" if not text else "nothing is written from here")
            return

        def done(answer: BaseException | None) -> None:
            self.doctor.say(f"not written: {answer}" if answer else f"written to {name}")

        def answered(yes: bool | None) -> None:
            if yes:
                background.start(self.app, "write", lambda: save(text, name), done)

        said = [Block(plain(f"Write {name} in the folder that gpudoctor was started in?", "bold"))]
        said.append(Block(Content("A file of that name is replaced.")))
        self.app.push_screen(Sure("Write it?", said, "write it"), answered)

    def action_apply(self) -> None:
        """The commands as a plan, on the screen that runs plans."""
        stack, diagnosis = self.stack, self.doctor.diagnosis
        if not stack or not stack.torch or not diagnosis:
            self.doctor.say("nothing fits these choices, so there is nothing to install")
        elif self.doctor.repair and self.doctor.repair.busy:
            self.doctor.say("another plan is under way: f shows it")
        else:
            handed_over(self.doctor, plan_of(stack, self.wishes, diagnosis))


# ---- What the user wishes to have installed ----
# Typed for a field, and made a plan of.

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

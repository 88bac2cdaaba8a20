"""The plan that is open: made or handed over, run, taken back, ended; and the question before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from gpudoctor.core.errors import DoctorError
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan
from gpudoctor.core.run import Run
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.base import BaseApp, Repair
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain
from gpudoctor.views.tui.words import plan as plan_words


def repair_of(app: BaseApp) -> Repair:
    """The app's open plan and run, created at the first call; `last` is then the interrupted run, if there is one."""
    if app.repair is None:
        app.repair = Repair()
        app.repair.last = app.work.unfinished() if app.work.unfinished else None
    return app.repair


@contextmanager
def errors_shown(app: BaseApp) -> Iterator[None]:
    """Context in which a `DoctorError` ends the block and is shown as the app's message instead of being raised."""
    try:
        yield
    except DoctorError as error:
        app.say(str(error))


def open_new_plan(app: BaseApp, only: tuple[str, ...] = ()) -> None:
    """Open the plan for the findings with these ids (empty: every cause), or the run in progress, on the fix screen.

    If making the plan raises `DoctorError`, its message is shown and no screen is opened. Without a diagnosis, or where
    plans cannot be made, the screen opens without a plan.
    """
    repair, make = repair_of(app), app.work.plan
    with errors_shown(app):
        if not repair.busy:
            repair.put(make(app.diagnosis, only) if make and app.diagnosis else None, only)
        repair.open(app)


def open_given_plan(app: BaseApp, plan: Plan) -> None:
    """Open a plan that was made elsewhere on the fix screen; not to be called while another one runs."""
    repair = repair_of(app)
    repair.put(plan, given=True)
    repair.open(app)


# ---- Asked before it is done ----


def ask_to_run(app: BaseApp, plan: Plan) -> None:
    """Ask, then run the plan in a thread. If it needs root, reboots or stops jobs, the host's name must be typed
    (``yes`` if it is not known); not for a recording.
    """
    apply, recorded = app.work.apply, app.work.recorded
    assert apply, "there is something that runs plans"
    required_word = (plan.machine or "yes") if plan.grave and not recorded else ""
    title = "Sure? (a recording)" if recorded else "Sure?"
    _ask(
        *(app, title, plan_words.run_question(plan, recorded), "run it"),
        lambda: repair_of(app).start(app, lambda report, wanted: apply(plan, report, wanted)),
        on_no=lambda: app.say("nothing was run"),
        required_word=required_word,
    )


def ask_to_undo(app: BaseApp, run: Run) -> None:
    """Ask, then undo the run in a thread."""
    undo = app.work.undo
    assert undo, "there is something that takes runs back"
    _ask(
        *(app, "Undo?", plan_words.undo_question(run), "take it back"),
        lambda: repair_of(app).start(app, lambda report, wanted: undo(run, report, wanted)),
    )


def ask_to_end(app: BaseApp) -> None:
    """Ask, then end the command that runs now."""
    repair = repair_of(app)
    question = plan_words.quit_question(repair.run)
    _ask(app, "End it now?", question, "end the step", lambda: repair.stop("now"))


def ask_to_leave(app: BaseApp) -> None:
    """Ask, then end the running step, and quit when its record is written.

    If that was answered with yes before, quit at once: the record on disk names the running step.
    """
    repair = repair_of(app)
    if repair.leaving:
        app.exit()
        return

    def leave() -> None:
        """End the running step so that the app quits when its record is written; quit at once if nothing runs."""
        if not repair.busy:
            app.exit()
        repair.leaving = True
        repair.stop("now")
        app.say("ending the step; the program ends when its record is written")

    _ask(app, "A step is running", plan_words.quit_question(repair.run), "end the step, and quit", leave)


def _ask(
    app: BaseApp,
    title: str,
    blocks: Sequence[Block],
    yes: str,
    on_yes: Callable[[], None],
    on_no: Callable[[], None] = lambda: None,
    required_word: str = "",
) -> None:
    """Open the question, and call `on_yes` or `on_no` by its answer; does nothing if a question is open already.

    With `required_word` yes means to type that word.
    """
    if not isinstance(app.screen, ConfirmScreen):
        screen = ConfirmScreen(title, blocks, yes, required_word)
        app.push_screen(screen, lambda answer: on_yes() if answer else on_no())


# ---- The question ----


class ConfirmScreen(ModalScreen[bool]):
    """The question before anything is changed; nothing has the focus, and Enter does nothing.

    Dismissed with True on `y` alone; with `word`, only after that word and Enter were typed.
    """

    AUTO_FOCUS = ""
    SCOPED_CSS = False
    CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    #sure { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $warning; padding: 1 2;
            background: $surface; border-title-style: bold; scrollbar-size-vertical: 1; }
    #answer { dock: bottom; background: $surface; padding: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,escape", "dismiss(False)", "go back"),
        Binding("y", "yes", "do it"),
    ]

    def __init__(self, title: str, blocks: Sequence[Block], yes: str = "run it", word: str = "") -> None:
        super().__init__()
        self._title, self._blocks, self._yes_label, self._required_word = title, blocks, yes, word
        self.typed = ""

    def compose(self) -> ComposeResult:
        """The question, which may scroll, and below it the keys, which stay."""
        with VerticalScroll(id="sure", can_focus=False) as frame:
            frame.border_title = Content(one_line(say(self._title)))
            yield Prose(id="question")
            yield Prose(id="answer")

    def on_mount(self) -> None:
        """Show the question and the keys."""
        self.query_one("#question", Prose).put(self._blocks)
        self._update_answer()

    def _update_answer(self) -> None:
        """Redraw the keys, or the word to type with what has been typed."""
        self.query_one("#answer", Prose).put([self._keys_block()])

    def _keys_block(self) -> Block:
        """The keys that answer; if a word must be typed, that word and what has been typed."""
        key = "bold $primary"
        if not self._required_word:
            return Block(
                Content.assemble(("y", key), f"  {say(self._yes_label)}            ", ("n", key), f"  {say('go back')}")
            )
        typed = Content.assemble(plain(self.typed, "bold"), ("▏", "$primary"))
        asks = Content.assemble(
            say("to go on, type "),
            plain(self._required_word, "bold $warning"),
            say(" and press enter    "),
            ("esc", key),
            f"  {say('go back')}",
        )
        return Block(Content.assemble(asks, "\n\n› ", typed))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """False for the action ``yes`` while a word must be typed; else True."""
        return not (self._required_word and action == "yes")

    def action_yes(self) -> None:
        """Close the question with True."""
        self.dismiss(True)

    def on_key(self, event: events.Key) -> None:
        """Add typed letters to the word that must be typed; Enter closes with True only once it is complete.

        Without such a word, and for Esc, the key is left to the bindings.
        """
        if not self._required_word or event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter" and self.typed == self._required_word:
            self.dismiss(True)
        elif event.key in ("backspace", "ctrl+h"):
            self.typed = self.typed[:-1]
        elif event.is_printable and event.character:
            self.typed += event.character
        self._update_answer()

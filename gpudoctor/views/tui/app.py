"""The application: holds the diagnosis, has work done in the background, and opens the screens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import App
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DoctorError
from gpudoctor.views.tui import background, places, themes
from gpudoctor.views.tui.reading import Reading

if TYPE_CHECKING:
    from gpudoctor.views.tui.screens.place import Place
    from gpudoctor.views.tui.work import Event, Work


class DoctorApp(App[None]):
    """What is common to all screens; each of them follows `diagnosis`, `reading` and `message`."""

    TITLE = "gpudoctor"
    CSS_PATH = "tui.tcss"
    ENABLE_COMMAND_PALETTE = True
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {door.name: door.open for door in places.DOORS}
    DEFAULT_MODE = places.DOORS[0].name
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"open('{door.name}')", door.title, show=False)
            for number, door in enumerate(places.DOORS, 1)
        ),
        Binding("r", "read", "Read again", show=False),
        Binding("q", "quit", "Quit", show=False),
        Binding("question_mark", "keys", "Keys", show=False),
    ]
    diagnosis: reactive[Diagnosis | None] = reactive(None)
    reading: reactive[Reading] = reactive(Reading)
    message: reactive[str] = reactive("")
    PERIOD = 0.25
    """Seconds between two looks at the clock while sources are asked."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        for theme in themes.OURS:
            self.register_theme(theme)
        self.theme = themes.NIGHT.name
        self._round = 0
        """Which reading is the current one: what an older one still says is not heard."""

    def on_mount(self) -> None:
        """First the screen, then the work."""
        self.call_after_refresh(self.action_read)
        self.set_interval(self.PERIOD, self._tick)

    def _tick(self) -> None:
        if not self.reading.over:
            self.mutate_reactive(DoctorApp.reading)

    def say(self, message: str) -> None:
        """Show a message in the second line, until the next key or another message."""
        self.message = message

    def action_open(self, name: str) -> None:
        """Go to the screen of that name."""
        self.switch_mode(name)
        cast("Place", self.screen_stack[0]).back = ""

    def action_read(self) -> None:
        """Read everything, again."""
        self._round += 1
        self.reading = Reading()
        tell = partial(background.tell, self)
        mine = self._round

        def event(what: Event) -> None:
            tell(lambda: self._event(mine, what))

        def partly(diagnosis: Diagnosis) -> None:
            tell(lambda: self._partly(mine, diagnosis))

        background.start(
            self, "reading", lambda: self.work.diagnose(event, partly), lambda answer: self._read(mine, answer)
        )

    def stop_reading(self) -> None:
        """Keep what was read, and hear no more."""
        self._round += 1
        self.reading = self.reading.ended("" if self.diagnosis else "stopped before anything was read; r reads again")
        self.say("stopped: what was not read by then is not judged; r reads again")

    def _event(self, mine: int, event: Event) -> None:
        if mine == self._round:
            self.reading = self.reading.after(event)

    def _partly(self, mine: int, diagnosis: Diagnosis) -> None:
        if mine == self._round and not self.reading.over:
            self.diagnosis = diagnosis

    def _read(self, mine: int, answer: Diagnosis | BaseException) -> None:
        if mine != self._round:
            return
        if isinstance(answer, BaseException):
            words = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.reading = self.reading.ended(" ".join(words.split()))
            return
        self.reading = self.reading.ended()
        self.diagnosis = answer

    def on_key(self, event: Any) -> None:
        """A message stays until the next key."""
        if self.message and event.key != "escape":
            self.message = ""

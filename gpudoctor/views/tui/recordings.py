"""The interface with a list of recorded machines before it, one of which is looked at at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpudoctor.views.tui import places
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.reading import Reading
from gpudoctor.views.tui.screens.demos import DemosScreen
from gpudoctor.views.tui.work import Choice

LIST = "demos"


class RecordingsApp(DoctorApp):
    """The list is a mode beside the screens; they are built anew for each machine."""

    DEFAULT_MODE = LIST
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "choices", "other recorded machines", show=False)]

    OWN_KEYS = (("o", "list", "app.choices"),)
    """Hints that are shown on each of its screens."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__(choices[0].work())
        self._list = DemosScreen(choices)
        self.add_mode(LIST, lambda: self._list)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """On the list there is no machine yet."""
        if self.current_mode == LIST and action in {"open", "read", "choices"}:
            return False
        return super().check_action(action, parameters)

    def action_read(self) -> None:
        """Nothing is read before a machine is chosen."""
        if self.current_mode != LIST:
            super().action_read()

    async def action_open_choice(self) -> None:
        """Look at the machine under the list's cursor, on screens that have seen no other one."""
        self._round += 1
        self.work = self._list.choices.choice.work()
        self.diagnosis, self.reading, self.message = None, Reading(), ""
        self.repair = None
        for door in (*places.DOORS, places.FIX):
            await self.remove_mode(door.name)
            self.add_mode(door.name, door.open)
        await self.switch_mode(self.first)
        self.action_read()

    def action_choices(self) -> None:
        """Back to the list; a reading that is on its way is not heard any more."""
        self._round += 1
        self.switch_mode(LIST)

    @property
    def first(self) -> str:
        """The screen that a machine opens with."""
        return places.DOORS[0].name

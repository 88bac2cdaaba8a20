"""The hosts that may train, written to a file for whoever starts the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor.views.tui import background

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

FILE = "sound-hosts.txt"


def write(app: DoctorApp, names: Sequence[str], save: Callable[[str, str], None]) -> None:
    """A line each, beside the interface; what came of it is said."""
    if not names:
        app.say("no host is sound: nothing was written")
        return
    text = "".join(f"{name}\n" for name in names)

    def written(answer: BaseException | None) -> None:
        fine = f"{len(names)} sound hosts written to {FILE}"
        app.say(fine if answer is None else f"not written: {background.words(answer)}")

    background.start(app, "save", lambda: save(text, FILE), written)

"""Work beside the interface, in threads that nobody waits for.

Textual's own thread workers are waited for when the program ends: a probe that never returns would keep the terminal.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from textual.app import App

from gpudoctor.model.errors import DoctorError
from gpudoctor.views._terminal import one_line

T = TypeVar("T")


def start(app: App[Any], name: str, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
    """Do `work` in a thread, then call `then` in the interface with what came of it, if the interface still is."""

    def run() -> None:
        try:
            answer: T | BaseException = work()
        except BaseException as error:  # whatever it is, it is shown, and ends nothing
            answer = error
        tell(app, lambda: then(answer))

    threading.Thread(target=run, name=name, daemon=True).start()


def tell(app: App[Any], what: Callable[[], None]) -> None:
    """Call `what` in the interface, from any thread; does not wait, and is silent where the interface has ended."""
    with contextlib.suppress(RuntimeError):
        app.call_later(what)


def words(error: BaseException) -> str:
    """What went wrong there, on one line."""
    return one_line(str(error) if isinstance(error, DoctorError) else f"{type(error).__name__}: {error}")

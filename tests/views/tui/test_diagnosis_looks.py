"""Pictures of the first screen and of what lies over it, at both sizes; a difference is looked at, then taken over."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpudoctor.views.tui.app import DoctorApp
from tests.views.tui.conftest import SIZES, calm, settled
from tests.views.tui.machines import told_of

Snap = Callable[..., bool]
PAGE = """\
{}: A page of a rule
error, cause, layer driver

What is behind it, in a paragraph that is wrapped where it is printed, at
eighty columns.

Found when all of these hold:
  driver.version < version("570")

Cure: Install a newer driver
  What the step does. (needs root, changes the system)
    $ ubuntu-drivers install
"""


def pressing(keys: Sequence[str]) -> Callable[[Pilot[None]], object]:
    """Wait until all is read, then press these keys and let everything that follows happen."""

    async def run(pilot: Pilot[None]) -> None:
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await calm(pilot)
        for entry in pilot.app.screen.query(Input):
            entry.cursor_blink = False  # or the picture depends on when it is taken
        await calm(pilot)

    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("machine", "keys"),
    [
        ("too-old-b200", ()),
        ("torch-arch-dropped-and-driver-too-old", ("j", "j")),
        ("too-old-b200", ("u", "j")),
        ("hgx-h100", ("j", "j", "j")),
        ("too-old-b200", ("e",)),
    ],
    ids=["broken", "order", "unjudged", "sound", "explain"],
)
def test_it_looks_as_it_did(snap_compare: Snap, machine: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    work = replace(told_of(machine), explain=PAGE.format)
    assert snap_compare(DoctorApp(work), terminal_size=size, run_before=pressing(keys))

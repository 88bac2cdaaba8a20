"""Pictures of what lies over the screens, and of the list of recordings; a difference is looked at, then taken over."""

import pytest

from gpudoctor.app import demos
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.recordings import RecordingsApp
from tests.views.tui.conftest import SIZES
from tests.views.tui.machines import told_of
from tests.views.tui.test_diagnosis_looks import Snap, pressing


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "keys", [("question_mark",), ("s",), ("ctrl+p", *"view: theme", "enter")], ids=["keys", "save", "theme"]
)
def test_it_looks_as_it_did(
    snap_compare: Snap, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    monkeypatch.chdir("/")  # the folder that is saved to is named
    assert snap_compare(DoctorApp(told_of("too-old-b200")), terminal_size=size, run_before=pressing(keys))


@pytest.mark.parametrize("size", SIZES)
def test_the_list_of_recordings_looks_as_it_did(snap_compare: Snap, size: tuple[int, int]) -> None:
    assert snap_compare(RecordingsApp(demos.every()), terminal_size=size)

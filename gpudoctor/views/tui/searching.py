"""A search among facts: in place where they are few, beside the interface where it takes longer than a key may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpudoctor.views.tui import background
from gpudoctor.views.tui.words.facts import NONE
from gpudoctor.views.tui.words.listing import Listing
from gpudoctor.views.tui.words.sought import Sought

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp
    from gpudoctor.views.tui.work import Told

_MANY = 20_000
"""Facts from which a search is done beside the interface."""


class Searching:
    """`begun` is told among how many facts a long search goes, `found` of the places of what was found."""

    def __init__(
        self,
        app: DoctorApp,
        begun: Callable[[int], None],
        found: Callable[[Listing, Sought, Sequence[int]], None],
    ) -> None:
        self._app = app
        self._begun = begun
        self._found = found
        self._number = 0
        self.forget()

    def forget(self) -> None:
        """What was found before is no help to find more."""
        self.listing: Listing = NONE
        """What was searched last."""
        self._last: tuple[Sought, Sequence[int]] = (Sought(), ())

    def start(self, listing: Listing, sought: Sought, told: Mapping[str, Told]) -> None:
        """Find it; a search that is under way is not heard any more."""
        before, found = self._last
        among = found if self.listing is listing and sought.narrows(before) else sought.among(listing, told)
        self._number += 1
        mine = self._number

        def found_beside(found: Sequence[int] | BaseException) -> None:
            if mine == self._number and not isinstance(found, BaseException):
                self._tell(listing, sought, found)

        if sought.text and len(among) > _MANY:
            self._begun(len(among))
            over = partial(self._is_over, mine)
            background.start(self._app, "search", lambda: listing.search(sought.words, among, over), found_beside)
        else:
            self._tell(listing, sought, listing.search(sought.words, among))

    def _is_over(self, search: int) -> bool:
        return search != self._number

    def _tell(self, listing: Listing, sought: Sought, found: Sequence[int]) -> None:
        self.listing, self._last = listing, (sought, found)
        self._found(listing, sought, found)

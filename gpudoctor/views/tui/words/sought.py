"""Which facts are shown, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.words.compared import Compared
from gpudoctor.views.tui.words.facts import Facts
from gpudoctor.views.tui.words.listing import Listing
from gpudoctor.views.tui.work import Told

KINDS = {"unread": "not read", "absent": "absent", "proof": "what findings rest on"}

_THAT = {"unread": "were not read", "absent": "are absent", "proof": "a finding rests on"}


@dataclass(frozen=True, slots=True)
class Sought:
    """Facts with these words, of one kind, or about one rule. What is empty is no condition."""

    words: str = ""
    only: str = ""
    about: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.only or self.about)

    @property
    def text(self) -> str:
        """The words as they are said."""
        return one_line(self.words)

    @property
    def rules(self) -> str:
        """The rule that it is about, or how many."""
        return self.about[0] if len(self.about) == 1 else f"{len(self.about)} rules"

    @property
    def read(self) -> str:
        """``read``, as the rules do."""
        return "reads" if len(self.about) == 1 else "read"

    def narrows(self, before: Sought) -> bool:
        """Whether all that is sought now was among what was sought before."""
        return replace(before, words="") == replace(self, words="") and self.words.startswith(before.words)

    def among(self, listing: Listing, told: Mapping[str, Told]) -> Sequence[int]:
        """The places where the words are to be searched: facts of that kind, or those about that rule."""
        if self.about:
            if found := listing.about(self.about):
                return found
            names = frozenset(name for name, what in told.items() if {*self.about} & {*what.rules})
            return listing.reading(names) if isinstance(listing, Facts) else ()
        kinds = {"unread": listing.unread, "absent": listing.absent, "proof": listing.proof}
        return kinds.get(self.only, range(len(listing)))

    def conditions(self) -> list[str]:
        """What is shown, in words; nothing where all is."""
        words = [f'with "{self.text}"'] if self.text else []
        if self.only:
            words.append(f"only {KINDS[self.only]}")
        if self.about:
            words.append(f"of {self.rules}")
        return words

    def nothing(self, listing: Listing) -> str:
        """Why nothing is shown."""
        what = "differing fact" if isinstance(listing, Compared) else "fact"
        if self.text:
            where = (
                "" if not self.only else f", of those {'that are ' if self.only != 'proof' else ''}{KINDS[self.only]},"
            )
            return f'no {what}{where} has "{self.text}"; names, values and sources were searched'
        if self.about:
            where = "what differs" if isinstance(listing, Compared) else "the facts"
            return f"nothing that {self.rules} {self.read} is among {where}"
        if self.only:
            return f"no finding rests on a {what}" if self.only == "proof" else f"no {what} is {KINDS[self.only]}"
        if isinstance(listing, Compared):
            moving = len(listing.difference.moving)
            return "nothing differs" + (f" but what always does: D shows these {moving} facts" if moving else "")
        return "nothing was read"

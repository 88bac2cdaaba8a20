"""Every fact: its value, its source, what rests on it; searched, told apart, compared with another machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background, fact
from gpudoctor.views.tui.compared import Compared
from gpudoctor.views.tui.facts import NONE, Facts, Item, Listing
from gpudoctor.views.tui.screens.open_file import OpenFile
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.sought import Sought
from gpudoctor.views.tui.widgets.facts_table import FactsTable
from gpudoctor.views.tui.widgets.frame import NARROW, Line
from gpudoctor.views.tui.widgets.prose import Pane
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.work import Told

_MANY = 20_000
"""Facts from which a search is done beside the interface: it takes longer than a key may."""
_MOST_COPIED = 50_000
"""Characters for the clipboard: terminals refuse much more."""

_LETTERS = {"search", "only", "all", "compare", "copy", "moving"}


class Search(Input):
    """The line in which one types what is searched."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "screen.to_list", "to the list"),
        Binding("escape", "screen.leave", "all facts"),
    ]


class FactsScreen(Place):
    """The third screen. What is typed is searched in names, values and sources."""

    NAME = "facts"
    AUTO_FOCUS = "#facts"
    CSS = """
    #all { height: 1fr; }
    #facts { height: 1fr; }
    #fact { height: 11; }
    .-narrow #fact { height: 9; }
    #searching { display: none; height: 1; background: $panel; }
    #searching.-open { display: block; }
    #searching Line { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    #search { height: 1; width: 1fr; border: none; padding: 0; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search"),
        Binding("u", "only('unread')", "not read"),
        Binding("minus", "only('absent')", "absent"),
        Binding("d", "compare", "compare"),
        Binding("c", "copy", "copy"),
        Binding("exclamation_mark", "only('proof')", "Only facts that findings rest on", show=False),
        Binding("a", "all", "All facts", show=False),
        Binding("D", "moving", "With what always differs", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._facts = NONE
        self._compared: Compared | None = None
        self._other: tuple[str, Diagnosis] | None = None
        self._moving = False
        self._sought = Sought()
        self._found: tuple[Listing, Sought, Sequence[int]] = (NONE, Sought(), ())
        """What was searched last, and what came of it."""
        self._told: Mapping[str, Told] = {}
        self._searches = 0

    def body(self) -> Iterable[Widget]:
        """The search, the table, and of the fact under the cursor all there is."""
        self.table, self.detail = FactsTable(), Pane("Where it came from", id="fact")
        self.search = Search(id="search", placeholder="name, value or source", select_on_focus=False)
        self.searching, sign = Horizontal(id="searching"), Line()
        sign.say("/")
        self.table.uses = self._use
        with Vertical(id="all"):
            with self.searching:
                yield sign
                yield self.search
            yield self.table
            yield self.detail

    def on_mount(self) -> None:
        """Learn which rules read what, which takes a while."""
        super().on_mount()
        if self.doctor.work.used_by:
            background.start(self.app, "used by", self.doctor.work.used_by, self._tell)

    def _tell(self, told: Mapping[str, Told] | BaseException) -> None:
        if isinstance(told, BaseException):
            self.doctor.say(f"which rules read a fact is not known: {one_line(str(told))}")
            return
        self._told = told
        self.table.refresh_uses()
        self._detail()
        if self._sought.about:
            self._found = (NONE, Sought(), ())
            self._show()

    def show(self, diagnosis: Diagnosis) -> None:
        """All facts, as they come in."""
        self._facts = Facts(diagnosis.snapshot, diagnosis.findings)
        if self._other and self.doctor.reading.over:
            self._compare(self._other[1])
        self._show()

    # which facts

    @property
    def _listing(self) -> Listing:
        return self._facts if self._compared is None else self._compared

    def _show(self) -> None:
        """Search what is sought, and show it."""
        listing, sought = self._listing, self._sought
        last, before, found = self._found
        among = found if last is listing and sought.narrows(before) else sought.among(listing, self._told)
        self._searches += 1
        mine = self._searches

        def found_beside(found: Sequence[int] | BaseException) -> None:
            if mine == self._searches and not isinstance(found, BaseException):
                self._put(listing, sought, found)

        if sought.text and len(among) > _MANY:
            self.table.border_subtitle = Content(f"searching {len(among):,} facts…")
            over = partial(self._is_over, mine)
            background.start(self.app, "search", lambda: listing.search(sought.words, among, over), found_beside)
        else:
            self._put(listing, sought, listing.search(sought.words, among))

    def _is_over(self, search: int) -> bool:
        return search != self._searches

    def _put(self, listing: Listing, sought: Sought, found: Sequence[int]) -> None:
        self._found = (listing, sought, found)
        compared = listing if isinstance(listing, Compared) else None
        conditions = sought.conditions()
        if compared and compared.difference.moving:
            conditions.append(f"D {'leaves out' if self._moving else 'adds'} what always differs")
        self.table.border_subtitle = Content(" · ".join(conditions))
        self.table.title = "Facts that differ" if compared else "Facts"
        self.table.empty = self._nothing(listing, sought)
        basis = found if not sought.text else replace(sought, words="").among(listing, self._told)
        self.table.put(listing, found, basis, ("here", _short(self._other[0])) if self._other else ("value", "other"))
        self.reframe()

    def _nothing(self, listing: Listing, sought: Sought) -> str:
        if sought.about and not self._told and self.doctor.work.used_by:
            return f"looking up what {sought.about} reads…"
        return sought.nothing(listing) if self.doctor.reading.over else "nothing was read yet"

    def go(self, name: str) -> bool:
        """Put the cursor on the fact of that name (``gpu.5.name``), among all; whether there is one."""
        place = self._facts.named(name)
        if place is not None:
            self._other = self._compared = None
            self._close_search()
            self._set(Sought())
            self.table.cursor = place
        return place is not None

    def look_at(self, rule: str) -> None:
        """Show what the findings of this rule rest on, or what it reads."""
        self._close_search()
        self._set(Sought(about=rule))

    def _set(self, sought: Sought) -> None:
        self._sought = sought
        self._show()

    # the fact under the cursor

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail follows the cursor."""
        if event.rows is self.table:
            self._detail()

    def _detail(self) -> None:
        item, diagnosis = self.table.item, self.doctor.diagnosis
        if item is None or diagnosis is None:
            self.detail.put("Where it came from", [])
            return
        told = fact.told_of(item.fact, self._told)
        about = fact.uses(item, diagnosis, self._told)
        read = fact.moment(diagnosis, self.doctor.reading, told)
        self.detail.put("Where it came from", list(fact.blocks(item, self._listing, about, told, read)))

    def _use(self, item: Item) -> str:
        """The column "used by": what was found, what it keeps from being judged, or how many rules read it."""
        if item.findings:
            ids = list(dict.fromkeys(finding.id for finding in item.findings))
            return ids[0] if len(ids) == 1 else f"{len(ids)} findings"
        rules = fact.told_of(item.fact, self._told).rules
        if not rules or len(rules) == 1:
            return "".join(rules)
        return f"{len(rules)} rules"

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter: the finding that rests on it, or the rule that it keeps from being judged."""
        if event.rows is self.table:
            self.run_worker(self._open_rule())

    async def _open_rule(self) -> None:
        from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen

        item, diagnosis = self.table.item, self.doctor.diagnosis
        if item is None or diagnosis is None:
            return
        about = [use for use in fact.uses(item, diagnosis, self._told) if use.state in ("found", "not judged")]
        if not about:
            self.doctor.say(f"no finding and no rule that was not judged reads {item.name}")
            return
        place = await self.visit("diagnosis")
        assert isinstance(place, DiagnosisScreen)
        if not place.findings.go(about[0].rule):
            self.doctor.say(f"{about[0].rule} is not among the findings of this machine")

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While one types the keys are letters."""
        return not (self.search.has_focus and action in _LETTERS) and super().check_action(action, parameters)

    def action_search(self) -> None:
        """Type what is searched."""
        self.searching.add_class("-open")
        self.search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as one types."""
        if event.value != self._sought.words:
            self._set(replace(self._sought, words=event.value))

    def action_to_list(self) -> None:
        """From the search to the list; an empty search closes."""
        self.table.focus()
        if not self.search.value:
            self.searching.remove_class("-open")

    def _close_search(self) -> None:
        self.search.value = ""
        self.searching.remove_class("-open")
        self.table.focus()

    def action_only(self, kind: str) -> None:
        """Only facts of that kind, or all again."""
        self._set(replace(self._sought, only="" if self._sought.only == kind else kind, about=""))

    def action_all(self) -> None:
        """Every fact."""
        self._close_search()
        self._set(Sought())

    def action_leave(self) -> None:
        """Esc: take back what is sought, then the comparison, then as everywhere."""
        if self.searching.has_class("-open"):
            self._close_search()
            self._set(replace(self._sought, words=""))
        elif self.doctor.message:
            super().action_leave()
        elif self._sought and not (self._sought.about and self.back):
            self._set(Sought())
        elif self._other:
            self._other = self._compared = None
            self._show()
        else:
            self._sought = Sought()
            super().action_leave()
            self._show()

    def action_copy(self) -> None:
        """The fact, its value and its source."""
        item = self.table.item
        if item is None:
            self.doctor.say("no fact to copy here")
            return
        text = fact.line(item)
        self.app.copy_to_clipboard(text[:_MOST_COPIED])
        cut = f" the first {_MOST_COPIED:,} of {len(text):,} characters" if len(text) > _MOST_COPIED else ""
        self.doctor.say(f"copied{cut}: {one_line(text[:200])}")

    # another machine

    def action_compare(self) -> None:
        """Ask for a file, and show in what its machine differs from this one."""
        work = self.doctor.work
        if not work.open or not work.compare:
            self.doctor.say("nothing to compare with can be opened here")
        elif self.doctor.diagnosis is None or not self.doctor.reading.over:
            self.doctor.say("not while this machine is being read")
        else:
            self.app.push_screen(OpenFile("Compare with", work.open), self._opened)

    def _opened(self, answer: tuple[str, Diagnosis] | None) -> None:
        if answer:
            self._other = answer
            self._compare(answer[1])

    def _compare(self, other: Diagnosis) -> None:
        work, here = self.doctor.work, self.doctor.diagnosis
        assert work.compare
        assert here
        compare = work.compare
        background.start(self.app, "compare", lambda: compare(here, other), self._differs)

    def _differs(self, difference: Difference | BaseException) -> None:
        if self._other is None:
            return
        if isinstance(difference, BaseException):
            self._other = self._compared = None
            self.doctor.say(f"cannot compare: {one_line(str(difference))}")
        else:
            self._compared = Compared(difference, self._moving)
        self._close_search()
        self._set(Sought())

    def action_moving(self) -> None:
        """With or without what differs between any two machines or moments."""
        if self._compared is None:
            self.doctor.say("D goes with a comparison: d opens a file to compare with")
            return
        self._moving = not self._moving
        self._compared = Compared(self._compared.difference, self._moving)
        self._show()

    # the second line

    def status(self) -> Sequence[Content | str]:
        """What can be searched, and the counts of what there is."""
        listing = self._listing
        if self.doctor.diagnosis is None or not self.doctor.reading.over:
            return super().status()
        counts = f"{len(listing):,} {'differ' if self._compared else 'facts'}"
        counts += f" · {len(listing.absent):,} absent (-) · {len(listing.unread):,} not read (u)"
        narrow = self.app.size.width < NARROW
        said = "/ search" if narrow else "/ searches names, values and sources as you type"
        if self._compared and self._other:
            said = f"beside {one_line(_short(self._other[0]))} · esc ends it"
        return Content(said), Content(counts)


def _short(name: str) -> str:
    """The last part of a file's name."""
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name

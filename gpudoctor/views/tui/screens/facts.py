"""Every fact: its value, its source, what rests on it; searched, told apart, compared with another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background
from gpudoctor.views.tui.screens.explain import ExplainScreen
from gpudoctor.views.tui.screens.open_file import OpenFile
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.searching import Searching
from gpudoctor.views.tui.widgets.facts_table import FactsTable
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.prose import Pane
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.widgets.search import Search
from gpudoctor.views.tui.words import fact
from gpudoctor.views.tui.words.compared import Compared
from gpudoctor.views.tui.words.facts import NONE, Facts
from gpudoctor.views.tui.words.listing import Item, Listing
from gpudoctor.views.tui.words.sought import Sought
from gpudoctor.views.tui.work import Told

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

_MOST_COPIED = 50_000
"""Characters for the clipboard: terminals refuse much more."""
_LETTERS = {"search", "only", "all", "compare", "copy", "moving", "fix", "explain"}
"""Actions whose keys are letters while one types."""


class FactsScreen(Place):
    """The third screen. What is typed is searched in names, values and sources."""

    NAME = "facts"
    AUTO_FOCUS = "#facts"
    CSS = """
    #facts { height: 1fr; }
    #fact { height: 11; }
    .-narrow #fact { height: 9; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search"),
        Binding("u", "only('unread')", "not read"),
        Binding("minus", "only('absent')", "absent"),
        Binding("d", "compare", "compare"),
        Binding("c", "copy", "copy"),
        Binding("e", "explain", "what it means", show=False),
        Binding("f", "fix", "fix what rests on it", show=False),
        Binding("exclamation_mark", "only('proof')", "only what findings rest on", show=False),
        Binding("a", "all", "all facts", show=False),
        Binding("D", "moving", "compare with what always differs, too", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._facts = NONE
        self._sought = Sought()
        self._told: Mapping[str, Told] = {}

    def body(self) -> Iterable[Widget]:
        """The search, the table, and of the fact under the cursor all there is."""
        self.beside = Comparing(self.doctor, self._compared)
        self.searching = Searching(self.doctor, self._searches, self._put)
        self.search = Search("name, value or source")
        self.table, self.detail = FactsTable(), Pane("Where it came from", id="fact")
        self.table.uses = self._use
        with Vertical():
            yield self.search
            yield self.table
            yield self.detail

    def on_mount(self) -> None:
        """Learn which rules read what, which takes a while."""
        super().on_mount()
        self.watch(self.app, "reading", self._read)
        if self.doctor.work.used_by:
            background.start(self.app, "used by", self.doctor.work.used_by, self._tell)

    def _read(self) -> None:
        """Where nothing was read, it is said as soon as that is known."""
        if self.doctor.diagnosis is None:
            self.table.empty = self._nothing(NONE, self._sought)
            self.table.refresh()

    def _tell(self, told: Mapping[str, Told] | BaseException) -> None:
        if isinstance(told, BaseException):
            self.doctor.say(f"which rules read a fact is not known: {one_line(str(told))}")
            return
        self._told = told
        self.searching.forget()
        self._show()

    def show(self, diagnosis: Diagnosis) -> None:
        """All facts, as they come in."""
        self._facts = Facts(diagnosis.snapshot, diagnosis.findings)
        if self.doctor.reading.over:
            self.beside.again()
        self._show()

    def selected(self) -> tuple[str, ...]:
        """The findings that rest on the fact under the cursor."""
        item = self.table.item
        return tuple(dict.fromkeys(finding.id for finding in item.findings)) if item else ()

    # which facts

    @property
    def _listing(self) -> Listing:
        return self._facts if self.beside.listing is None else self.beside.listing

    def _show(self) -> None:
        """Search what is sought, and show it."""
        self.searching.start(self._listing, self._sought, self._told)

    def _searches(self, many: int) -> None:
        self.table.border_subtitle = Content(f"searching {many:,} facts…")

    def _put(self, listing: Listing, sought: Sought, found: Sequence[int]) -> None:
        beside = self.beside.listing
        conditions = sought.conditions()
        if beside and beside.difference.moving:
            conditions.append(f"D {'leaves out' if self.beside.moving else 'adds'} what always differs")
        self.table.border_subtitle = Content(one_line(" · ".join(conditions)))
        self.table.title = "Facts" if beside is None else "Facts that differ"
        self.table.empty = self._nothing(listing, sought)
        basis = replace(sought, words="").among(listing, self._told) if sought.text else found
        self.table.words = tuple(sought.words.lower().split())
        self.table.put(listing, found, basis, ("here", self.beside.name))
        self.reframe()

    def _nothing(self, listing: Listing, sought: Sought) -> str:
        if sought.about and not self._told and self.doctor.work.used_by:
            return f"looking up what {sought.rules} {sought.read}…"
        if not self.doctor.reading.over and not len(listing):
            return "nothing was read yet: what is read is shown as it comes in"
        return sought.nothing(listing)

    def _set(self, sought: Sought) -> None:
        if not sought.words:
            self.search.close()
            self.table.focus()
        self._sought = sought
        self._show()

    def go(self, name: str) -> bool:
        """Put the cursor on the fact of that name (``gpu.5.name``), among all; whether there is one."""
        place = self._facts.named(name)
        if place is not None:
            self.beside.end()
            self._set(Sought())
            self.table.cursor = place
        return place is not None

    def look_at(self, *rules: str) -> None:
        """Show what the findings of these rules rest on, or what they read."""
        self._set(Sought(about=rules))

    # the fact under the cursor

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail follows the cursor."""
        item, diagnosis = self.table.item, self.doctor.diagnosis
        if event.rows is not self.table:
            return
        if item is None or diagnosis is None:
            self.detail.put("Where it came from", [])
            return
        told = fact.told_of(item.fact, self._told)
        read = fact.moment(diagnosis, self.doctor.reading, told)
        about = fact.uses(item, diagnosis, self._told)
        self.detail.put("Where it came from", list(fact.blocks(item, self._listing, about, told, read)))

    def _use(self, item: Item) -> str:
        """The column "used by": what rests on it, or how many rules read it."""
        return fact.used(item, self._told)

    async def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter: the finding that rests on it, the rule that waits for it, or else the page of one that passed."""
        item, diagnosis = self.table.item, self.doctor.diagnosis
        if event.rows is not self.table or item is None or diagnosis is None:
            return
        about = fact.uses(item, diagnosis, self._told)
        if not about:
            self.doctor.say(f"no rule reads {item.name}")
        elif about[0].rule in diagnosis.passed:  # perhaps found on the other machine
            self.app.push_screen(ExplainScreen(about[0].rule))
        else:
            (await self.visit("diagnosis")).go(about[0].rule)

    def action_explain(self) -> None:
        """What the fact means, and the rules that read it."""
        if item := self.table.item:
            self.app.push_screen(ExplainScreen(item.fact))

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While one types the keys are letters."""
        return not (self.search.field.has_focus and action in _LETTERS) and super().check_action(action, parameters)

    def action_search(self) -> None:
        """Type what is searched."""
        self.search.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as one types."""
        if event.value != self._sought.words:
            self._sought = replace(self._sought, words=event.value)
            self._show()

    def action_to_list(self) -> None:
        """From the search to the list; an empty search closes."""
        self.table.focus()
        if not self.search.field.value:
            self.search.close()

    def action_only(self, kind: str) -> None:
        """Only facts of that kind, or all again."""
        self._set(replace(self._sought, only="" if self._sought.only == kind else kind, about=()))

    def action_all(self) -> None:
        """Every fact."""
        self._set(Sought())

    def action_leave(self) -> None:
        """Esc: take back what is searched, then what else is sought, then the comparison, then as everywhere."""
        if self.search.opened:
            self._set(replace(self._sought, words=""))
        elif self.doctor.message:
            super().action_leave()
        elif self._sought and not (self._sought.about and self.back):
            self._set(Sought())
        elif self.beside.name:
            self.beside.end()
        else:
            if self._sought:
                self._set(Sought())
            super().action_leave()

    def action_copy(self) -> None:
        """The fact, its value and its source."""
        item = self.table.item
        if item is None:
            self.doctor.say("no fact to copy here")
            return
        text = fact.line(item)
        self.app.copy_to_clipboard(text[:_MOST_COPIED])
        cut = f" the first {_MOST_COPIED:,} of {len(text):,} characters" if len(text) > _MOST_COPIED else ""
        self.doctor.say(f"copied{cut}: {text[:200]}")

    # another machine

    def action_compare(self) -> None:
        """Ask for a file, and show in what its machine differs from this one."""
        self.beside.ask()

    def action_moving(self) -> None:
        """With or without what differs between any two machines or moments."""
        self.beside.turn_moving()

    def _compared(self) -> None:
        """Another machine came, or went; or something else differs now."""
        if (self.searching.listing is self._facts) == (self.beside.listing is None):
            self._show()
        else:
            self._set(Sought())

    def status(self) -> Sequence[Content | str]:
        """What can be searched, and the counts of what there is."""
        listing, name = self._listing, self.beside.name
        if self.doctor.diagnosis is None or not self.doctor.reading.over:
            return super().status()
        narrow = self.app.size.width < NARROW
        said = "/ search" if narrow else "/ searches names, values and sources as you type"
        said = f"beside {name} · esc ends it" if name else said
        missing = f"{len(listing.absent):,} absent (-) · {len(listing.unread):,} not read (u)"
        return said, f"{len(listing):,} {'differ' if name else 'facts'} · {missing}", missing


# ---- Another machine beside this one ----
# Asked for by its file, compared in the background, shown until it is put away.


class Comparing:
    """`changed` is called whenever there is another listing, or none."""

    def __init__(self, app: DoctorApp, changed: Callable[[], None]) -> None:
        self._app = app
        self._changed = changed
        self._other: tuple[str, Diagnosis] | None = None
        self.listing: Compared | None = None
        """What differs; None where nothing is compared, or not yet."""
        self.moving = False
        """Whether what always differs is listed, too."""

    @property
    def name(self) -> str:
        """The last part of the other file's name; empty where there is none."""
        whole = self._other[0].replace("\\", "/").rstrip("/") if self._other else ""
        return one_line(whole.rpartition("/")[2])

    def ask(self) -> None:
        """For a file, and compare with it."""
        work = self._app.work
        if not work.open or not work.compare:
            self._app.say("nothing to compare with can be opened here")
        elif self._app.diagnosis is None or not self._app.reading.over:
            self._app.say("not while this machine is being read")
        else:
            self._app.push_screen(OpenFile("Compare with", work.open), self._opened)

    def _opened(self, answer: tuple[str, Diagnosis] | None) -> None:
        if answer:
            self._other = answer
            self.again()

    def again(self) -> None:
        """Compare anew: this machine was read again."""
        compare, here = self._app.work.compare, self._app.diagnosis
        if self._other and compare and here:
            other = self._other[1]
            background.start(self._app, "compare", lambda: compare(here, other), self._differs)

    def _differs(self, difference: Difference | BaseException) -> None:
        if self._other is None:
            return
        if isinstance(difference, BaseException):
            self._app.say(f"cannot compare: {one_line(str(difference))}")
            self.end()
        else:
            self.listing = Compared(difference, self.moving)
            self._changed()

    def turn_moving(self) -> None:
        """With or without what differs between any two machines or moments."""
        if self.listing is None:
            self._app.say("D goes with a comparison: d opens a file to compare with")
            return
        self.moving = not self.moving
        self.listing = Compared(self.listing.difference, self.moving)
        self._changed()

    def end(self) -> None:
        """This machine alone again."""
        self._other = self.listing = None
        self._changed()

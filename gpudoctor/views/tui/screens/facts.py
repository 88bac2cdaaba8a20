"""Every fact: its value, its source, what rests on it; searched, told apart, compared with another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.difference import Difference
from gpudoctor.core.language import say
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.base import BaseApp, FramedScreen
from gpudoctor.views.tui.screens.dialogs import OpenFile
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.widgets.facts_table import FactsTable
from gpudoctor.views.tui.widgets.frame import NARROW, Search
from gpudoctor.views.tui.widgets.prose import Pane
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import fact
from gpudoctor.views.tui.words.facts import NO_FACTS, Compared, Facts, Filter, Listing
from gpudoctor.views.tui.work import FactInfo, error_text, run_in_thread

_ALL, _DIFFERING = "Facts", "Facts that differ"
"""Titles of the table."""
_MOST_COPIED = 50_000
"""Characters for the clipboard: terminals refuse much more."""
_BACKGROUND_SEARCH_SIZE = 20_000
"""Facts from which a search is done beside the interface."""
_LETTER_ACTIONS = {"search", "only", "all", "compare", "copy", "moving", "fix", "explain"}
"""Actions whose keys are letters while one types."""


class FactsScreen(FramedScreen):
    """The third screen: every fact, searched by name, value and source while the user types."""

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
        self._facts = NO_FACTS
        self._filter = Filter()
        self._infos: Mapping[str, FactInfo] = {}
        self._search_number = 0
        self._last_search: tuple[Listing, Filter, Sequence[int]] = (NO_FACTS, Filter(), ())
        """What was searched last, with what, and what matched."""

    def body(self) -> Iterable[Widget]:
        """The search line, the table, and all that is known of the fact under the cursor."""
        self.beside = Comparison(self.doctor, self._show_comparison)
        self.search = Search("name, value or source")
        self.table, self.detail = FactsTable(), Pane("Where it came from", id="fact")
        self.table.uses = lambda item: fact.uses_label(item, self._infos)
        with Vertical():
            yield self.search
            yield self.table
            yield self.detail

    def on_mount(self) -> None:
        """Load in a thread which rules read which facts, and follow the app's reading."""
        self.watch(self.app, "reading", self._show_unread)
        if self.doctor.work.used_by:
            run_in_thread(self.app, "used by", self.doctor.work.used_by, self._receive_infos)

    def _show_unread(self) -> None:
        """Show in the empty table why nothing is listed, as long as there is no diagnosis."""
        if self.doctor.diagnosis is None:
            self.table.empty = self._empty_message(NO_FACTS, self._filter)
            self.table.refresh()

    def _receive_infos(self, infos: Mapping[str, FactInfo] | BaseException) -> None:
        """Keep what is declared of the facts and search again, or show a message why it is not known."""
        if isinstance(infos, BaseException):
            self.doctor.say("which rules read a fact is not known: {error}", error=error_text(infos))
            return
        self._infos = infos
        self._last_search = (NO_FACTS, Filter(), ())
        self._search()

    def show(self, diagnosis: Diagnosis) -> None:
        """List the facts of this diagnosis; once it is complete, compare again if another machine is compared."""
        self._facts = Facts(diagnosis.snapshot, diagnosis.findings)
        if self.doctor.reading.over:
            self.beside.again()
        self._search()

    def selected(self) -> tuple[str, ...]:
        """Ids of the findings that rest on the fact under the cursor, each once; none without a fact."""
        item = self.table.item
        return tuple(dict.fromkeys(finding.id for finding in item.findings)) if item else ()

    # which facts

    @property
    def _listing(self) -> Listing:
        """The facts listed: all, or those that differ from the other machine's while one is compared."""
        return self._facts if self.beside.listing is None else self.beside.listing

    def _search(self) -> None:
        """Search the listing with the current filter and show the matches; in a thread if facts are many.

        A search still running is given up. If the words only grew longer, only the last matches are searched.
        """
        listing, filter_ = self._listing, self._filter
        searched, last_filter, matches = self._last_search
        narrower = searched is listing and filter_.narrows(last_filter)
        candidates = matches if narrower else filter_.candidates(listing, self._infos)
        self._search_number += 1
        number = self._search_number

        def receive(matches: Sequence[int] | BaseException) -> None:
            """Show the matches; ignored if another search has begun, or after an exception."""
            if number == self._search_number and not isinstance(matches, BaseException):
                self._show_matches(listing, filter_, matches)

        def search() -> Sequence[int]:
            """Positions that match the filter; only those found so far once another search has begun."""
            return listing.search(filter_.words, candidates, lambda: number != self._search_number)

        if filter_.text and len(candidates) > _BACKGROUND_SEARCH_SIZE:
            self.table.border_subtitle = Content(say("searching {count:,} facts…", count=len(candidates)))
            run_in_thread(self.app, "search", search, receive)
        else:
            receive(search())

    def _show_matches(self, listing: Listing, filter_: Filter, matches: Sequence[int]) -> None:
        """Show the facts at these positions of the listing, and the filter's conditions in the table's frame."""
        self._last_search = (listing, filter_, matches)
        beside = self.beside.listing
        conditions = filter_.conditions()
        if beside and beside.difference.moving:
            moving = "D leaves out what always differs" if self.beside.moving else "D adds what always differs"
            conditions.append(say(moving))
        self.table.border_subtitle = Content(one_line(" · ".join(conditions)))
        self.table.title = _ALL if beside is None else _DIFFERING
        self.table.empty = self._empty_message(listing, filter_)
        basis = replace(filter_, words="").candidates(listing, self._infos) if filter_.text else matches
        self.table.words = tuple(filter_.words.lower().split())
        self.table.put(listing, matches, basis, (say("here"), self.beside.name))
        self.reframe()

    def _empty_message(self, listing: Listing, filter_: Filter) -> str:
        """The message for a table without rows: nothing read yet, rules being looked up, or nothing that matches."""
        looking_up = "looking up what {rules} reads…" if len(filter_.about) == 1 else "looking up what {rules} read…"
        if filter_.about and not self._infos and self.doctor.work.used_by:
            return say(looking_up, rules=filter_.rules)
        if not self.doctor.reading.over and not len(listing):
            return say("nothing was read yet: what is read is shown as it comes in")
        return filter_.empty_message(listing)

    def _set_filter(self, filter_: Filter) -> None:
        """Set the filter and search; if it has no words, close the search line and focus the table."""
        if not filter_.words:
            self.search.close()
            self.table.focus()
        self._filter = filter_
        self._search()

    def go(self, name: str) -> bool:
        """Put the cursor on the fact of that name (``gpu.5.name``); False if there is no such fact.

        If there is one, comparison and filter end first.
        """
        place = self._facts.position_named(name)
        if place is not None:
            self.beside.end()
            self._set_filter(Filter())
            self.table.cursor = place
        return place is not None

    def look_at(self, *rules: str) -> None:
        """Show only the facts that findings of these rules rest on, or, without such findings, that the rules read."""
        self._set_filter(Filter(about=rules))

    # the fact under the cursor

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the fact under the cursor in the detail pane: value, source, meaning and rules."""
        item, diagnosis = self.table.item, self.doctor.diagnosis
        if event.rows is not self.table:
            return
        if item is None or diagnosis is None:
            self.detail.put("Where it came from", [])
            return
        info = fact.info_of(item.fact, self._infos)
        read = fact.read_time(diagnosis, self.doctor.reading, info)
        about = fact.rule_uses(item, diagnosis, self._infos)
        self.detail.put("Where it came from", list(fact.blocks(item, self._listing, about, info, read)))

    async def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Open the fact's first finding or unjudged rule, or the page of a rule that passed; a message without one."""
        item, diagnosis = self.table.item, self.doctor.diagnosis
        if event.rows is not self.table or item is None or diagnosis is None:
            return
        about = fact.rule_uses(item, diagnosis, self._infos)
        if not about:
            self.doctor.say("no rule reads {name}", name=item.name)
        elif about[0].rule in diagnosis.passed:  # perhaps found on the other machine
            self.app.push_screen(ExplainScreen(about[0].rule))
        else:
            (await self.visit("diagnosis")).go(about[0].rule)

    def action_explain(self) -> None:
        """Open the page that explains the fact under the cursor; does nothing without one."""
        if item := self.table.item:
            self.app.push_screen(ExplainScreen(item.fact))

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for actions on letter keys while the search line has the focus; else as on every screen."""
        return not (self.search.field.has_focus and action in _LETTER_ACTIONS) and super().check_action(
            action, parameters
        )

    def action_search(self) -> None:
        """Open and focus the search line."""
        self.search.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search for what was typed so far."""
        if event.value != self._filter.words:
            self._filter = replace(self._filter, words=event.value)
            self._search()

    def action_to_list(self) -> None:
        """Move from the search line to the table; an empty search line closes."""
        self.table.focus()
        if not self.search.field.value:
            self.search.close()

    def action_only(self, kind: str) -> None:
        """Show only facts of that kind (``unread``, ``absent``, ``proof``); all again if they were shown already."""
        self._set_filter(replace(self._filter, only="" if self._filter.only == kind else kind, about=()))

    def action_all(self) -> None:
        """Show every fact: remove words, kind and rules from the filter."""
        self._set_filter(Filter())

    def action_leave(self) -> None:
        """Esc: remove the first there is of: search line with its words, message, filter, comparison; else as on every
        screen.

        A filter by rules that another screen asked for goes together with the return to that screen.
        """
        if self.search.opened:
            self._set_filter(replace(self._filter, words=""))
        elif self.doctor.message:
            super().action_leave()
        elif self._filter and not (self._filter.about and self.back):
            self._set_filter(Filter())
        elif self.beside.name:
            self.beside.end()
        else:
            if self._filter:
                self._set_filter(Filter())
            super().action_leave()

    def action_copy(self) -> None:
        """Copy name, value and source of the fact under the cursor, at most `_MOST_COPIED` characters."""
        item = self.table.item
        if item is None:
            self.doctor.say("no fact to copy here")
            return
        text = fact.clipboard_line(item)
        self.app.copy_to_clipboard(text[:_MOST_COPIED])
        cut = (
            say(" the first {most:,} of {count:,} characters", most=_MOST_COPIED, count=len(text))
            if len(text) > _MOST_COPIED
            else ""
        )
        self.doctor.say("copied{cut}: {text}", cut=cut, text=text[:200])

    # another machine

    def action_compare(self) -> None:
        """Ask for a file in a dialog, then list the facts in which its machine differs; a message if not possible."""
        self.beside.ask()

    def action_moving(self) -> None:
        """Show or hide, in a comparison, the facts that differ between any two machines or moments."""
        self.beside.toggle_moving()

    def _show_comparison(self) -> None:
        """Search again after a comparison changed; without a filter if it began or ended."""
        if (self._last_search[0] is self._facts) == (self.beside.listing is None):
            self._search()
        else:
            self._set_filter(Filter())

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: how to search or what is compared, and counts of facts, absent and unread ones."""
        listing, name = self._listing, self.beside.name
        if self.doctor.diagnosis is None or not self.doctor.reading.over:
            return super().status()
        narrow = self.app.size.width < NARROW
        hint = say("/ search" if narrow else "/ searches names, values and sources as you type")
        hint = say("beside {name} · esc ends it", name=name) if name else hint
        missing = say(
            "{count:,} absent (-) · {count2:,} not read (u)", count=len(listing.absent), count2=len(listing.unread)
        )
        counted = say("{count} differ" if name else "{count} facts", count=f"{len(listing):,}")
        return hint, f"{counted} · {missing}", missing


# ---- Another machine beside this one ----


class Comparison:
    """Another machine compared with this one, read from a file; `changed` is called whenever the listing changes."""

    def __init__(self, app: BaseApp, changed: Callable[[], None]) -> None:
        self._app = app
        self._changed = changed
        self._other: tuple[str, Diagnosis] | None = None
        self.listing: Compared | None = None
        """What differs; None where nothing is compared, or not yet."""
        self.moving = False
        """Whether what always differs is listed, too."""

    @property
    def name(self) -> str:
        """File name of the other machine, without folders; empty if none is compared."""
        whole = self._other[0].replace("\\", "/").rstrip("/") if self._other else ""
        return one_line(whole.rpartition("/")[2])

    def ask(self) -> None:
        """Ask for a file in a dialog and compare with it; only a message if that is not possible now."""
        work = self._app.work
        if not work.open or not work.compare:
            self._app.say("nothing to compare with can be opened here")
        elif self._app.diagnosis is None or not self._app.reading.over:
            self._app.say("not while this machine is being read")
        else:
            self._app.push_screen(OpenFile("Compare with", work.open), self._receive_other)

    def _receive_other(self, answer: tuple[str, Diagnosis] | None) -> None:
        """Compare with the diagnosis of the file that was opened; does nothing if the dialog was cancelled (None)."""
        if answer:
            self._other = answer
            self.again()

    def again(self) -> None:
        """Compare this machine's current diagnosis with the other's in a thread; nothing if one of them is missing."""
        compare, here, other = self._app.work.compare, self._app.diagnosis, self._other
        if other and compare and here:
            receive = partial(self._receive_difference, other)
            run_in_thread(self._app, "compare", lambda: compare(here, other[1]), receive)

    def _receive_difference(self, other: tuple[str, Diagnosis], difference: Difference | BaseException) -> None:
        """List the difference from `other`, or show a message and end the comparison after an exception.

        Ignored if `other` is no longer the machine that is compared.
        """
        if self._other is not other:
            return
        if isinstance(difference, BaseException):
            self._app.say("cannot compare: {error}", error=error_text(difference))
            self.end()
        else:
            self.listing = Compared(difference, self.moving)
            self._changed()

    def toggle_moving(self) -> None:
        """Show or hide the facts that differ between any two machines or moments, such as temperatures and serial
        numbers; only a message if nothing is compared.
        """
        if self.listing is None:
            self._app.say("D goes with a comparison: d opens a file to compare with")
            return
        self.moving = not self.moving
        self.listing = Compared(self.listing.difference, self.moving)
        self._changed()

    def end(self) -> None:
        """End the comparison, and call `changed`."""
        self._other = self.listing = None
        self._changed()

"""Many hosts: what each check says of each, how fast every two are, who is suspect, who may train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fleet import Fleet, Pairwise, Suspect
from gpudoctor.core.language import say
from gpudoctor.views._terminal import one_line, plural
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import Band, FramedScreen
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.matrix import Matrix, headings
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import fleets
from gpudoctor.views.tui.work import error_text, run_in_thread

FILE = "sound-hosts.txt"
"""Where the hosts that may train are written, for whoever starts the job."""


_ALONE = "Only this machine is known: there is nothing to compare it with."


class ClusterScreen(FramedScreen):
    """A fleet: hosts × checks, pairs, suspects; `c` copies the drain command, `w` writes the sound hosts to a file."""

    NAME = "cluster"
    AUTO_FOCUS = "#suspects"
    CSS = """
    #cluster { layout: grid; grid-size: 2 3; grid-columns: 3fr 2fr; grid-rows: auto auto 1fr; height: 1fr; }
    #maps { column-span: 2; }
    #checks { width: auto; min-width: 40; height: 100%; }
    #pairs { width: 1fr; height: 100%; }
    #suspects { height: auto; min-height: 3; max-height: 24vh; }
    #host { row-span: 2; height: 1fr; }
    .-narrow #cluster { layout: vertical; }
    .-narrow #suspects { max-height: 25vh; }
    .-narrow #host { min-height: 3; }
    .-narrow #checks { width: 1fr; }
    .-narrow #drain, .-narrow #pairs, #cluster.-none > *, #cluster.-pairs #checks { display: none; }
    #cluster.-none, #cluster.-pairs { layout: vertical; }
    #cluster.-none #host { display: block; }
    #cluster.-pairs #pairs { display: block; }
    #cluster.-pairs #suspects, #cluster.-pairs #drain { display: none; }
    #cluster.-pairs #host { height: 8; }
    #cluster.-pairless #pairs { display: none; }
    #cluster.-pairless #checks { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous bad cell", show=False),
        Binding("b", "pairs", "bandwidth"),
        Binding("c", "copy", "copy drain"),
        Binding("w", "write", "write sound"),
        Binding("a", "everyone", "all hosts", show=False),
        Binding("R", "again", "Check the fleet again", show=False),
    ]

    def body(self) -> Iterable[Widget]:
        """Both heat maps, below them the suspects, the detail, and which hosts may train."""
        self.suspects, self.drain, self.detail = (
            SuspectsTable(),
            Pane("Who may train", id="drain"),
            Pane("Cluster", id="host"),
        )
        self.checks, self.pairs = Matrix(id="checks"), Matrix(id="pairs")
        self.checks.wide, self.checks.border_title = True, say("Hosts × checks")
        self.fleet: Fleet | None = None
        self._shows_all_hosts = False
        self.maps = Horizontal(self.checks, self.pairs, id="maps")
        with Container(id="cluster", classes="-none"):
            yield self.maps
            yield self.suspects
            yield self.detail
            yield self.drain

    def on_resize(self) -> None:
        """Reorder and resize the panes for the width: suspects first on narrow screens, without their evidence."""
        narrow = self.app.size.width < NARROW
        self.suspects.shorten(narrow)
        cluster = self.query_one("#cluster")
        if narrow:
            cluster.move_child(self.maps, after=self.suspects)
        else:
            cluster.move_child(self.maps, before=self.suspects)
        self._update_layout()

    def on_mount(self) -> None:
        """Load the fleet in a thread, if one can be asked for; else show the diagnosis's or how to check one."""
        self.action_again()

    def show(self, diagnosis: Diagnosis) -> None:
        """Show the diagnosis's fleet; does nothing if it has none."""
        if diagnosis.fleet is not None:
            self._show_fleet(diagnosis.fleet)

    def action_again(self) -> None:
        """Ask for the fleet again in a thread; if that is not possible, show the diagnosis's, or how to check one."""
        ask = self.doctor.work.cluster
        diagnosis = self.doctor.diagnosis
        if ask is None and diagnosis and diagnosis.fleet is not None:
            self.show(diagnosis)
            return
        if ask is None:
            self._show_empty()
            return
        if self.fleet is None:
            self.detail.put("Cluster", [Block(plain(say("Asking the fleet …")))])
        run_in_thread(self.app, "cluster", ask, self._receive_fleet)

    def _receive_fleet(self, answer: Fleet | BaseException | None) -> None:
        """Show the fleet, that there is none (None), or the error: as a message if a fleet is on the screen already."""
        if isinstance(answer, Fleet):
            self._show_fleet(answer)
        elif answer is None:
            self._show_empty()
        elif self.fleet is None:
            self._show_empty(say("The fleet's answer cannot be read: {error}", error=error_text(answer)))
        else:
            self.doctor.say("not checked again: {error}", error=error_text(answer))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for actions on hosts while no fleet with hosts is shown; else as on every screen."""
        if action in ("next", "pairs", "copy", "write", "everyone") and not (self.fleet and self.fleet.hosts):
            return False
        return super().check_action(action, parameters)

    def _show_empty(self, message: str = _ALONE) -> None:
        """Show `message`, and how to check a fleet; the pane gets the focus."""
        self.detail.put("Cluster", list(fleets.no_fleet_blocks(message)))
        self.detail.focus()

    def _show_fleet(self, fleet: Fleet) -> None:
        """Show this fleet in all panes; the heat maps' cursors stay on the cell that the user chose, the suspects' on
        its position in their order.
        """
        self.fleet = fleet
        self.refresh_bindings()
        cluster = self.query_one("#cluster")
        cluster.set_class(len(fleet.hosts) == 0, "-none")
        cluster.set_class(fleet.pairwise is None, "-pairless")
        self.suspects.put(fleets.suspects_of(fleet))
        self.drain.put("Who may train", list(fleets.drain_blocks(fleet)), keep=True)
        self._show_checks()
        if pairwise := fleet.pairwise:
            self._show_pairs(pairwise)
        self._update_layout()
        if not self.focused or self.focused is self.detail:
            self.suspects.focus()
        self._show_detail(self.suspects)
        self.reframe()

    def _show_checks(self) -> None:
        """Draw the heat map of hosts × checks: all hosts, or of many only those with something other than ok."""
        fleet = self.fleet
        assert fleet
        hosts = fleets.shown_hosts(fleet, self._shows_all_hosts)
        cells = [[fleets.result_mark(fleet.result(host.name, check.id)) for check in fleet.checks] for host in hosts]
        self.checks.put([host.name for host in hosts], [check.short for check in fleet.checks], cells)
        more = len(fleet.hosts) - len(hosts)
        self.checks.border_subtitle = Content(
            say("+ {hosts} all sound (a)", hosts=plural(more, "host")) if more else ""
        )

    def _show_pairs(self, pairwise: Pairwise) -> None:
        """Draw the heat map of the measured share of the expected bandwidth from each host to each other."""
        names = pairwise.names
        cells = [[fleets.pair_mark(pairwise.pair(source, target)) for target in names] for source in names]
        self.pairs.border_title = Content(one_line(pairwise.title))
        unit = one_line(f"{pairwise.expected:g} {pairwise.unit}")
        self.pairs.border_subtitle = Content(
            say("· from 90 %, digits tenths of {unit}, x wrong, ? not read", unit=unit)
        )
        self.pairs.put(names, headings(names), cells)

    def _update_layout(self) -> None:
        """Set the height of the heat maps: what they need, at most half the screen; all of it with pairs alone."""
        lines = max((matrix.lines for matrix in (self.checks, self.pairs) if matrix.display), default=0)
        height = min(lines + 2, max(self.app.size.height // 2 - 1, 4))
        self.maps.styles.height = "1fr" if self.query_one("#cluster").has_class("-pairs") else height
        self.query_one("#cluster").styles.grid_rows = f"{height} auto 1fr"

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the suspect under the cursor in the detail, if the suspects have the focus."""
        self._show_detail(event.rows)

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        """Show the host or pair under the heat map's cursor in the detail, if that map has the focus."""
        self._show_detail(event.matrix)

    def on_descendant_focus(self) -> None:
        """Show what is under the cursor of the pane that got the focus, unless it is the detail itself."""
        if self.focused is not self.detail:
            self._show_detail(self.focused)

    def _show_detail(self, about: Widget | None) -> None:
        """Show the suspect, host or pair under the cursor of that widget; does nothing unless it has the focus."""
        fleet = self.fleet
        if fleet is None or about is not self.focused:
            return
        suspect = self.suspects.suspect
        if about is self.suspects and suspect:
            self.detail.put(fleets.suspect_label(suspect), list(fleets.suspect_blocks(suspect)))
        elif about is self.suspects:
            message = say("Nobody is suspect. {conclusion} tab goes to the maps.", conclusion=fleets.conclusion(fleet))
            self.detail.put("Cluster", [Block(plain(message))])
        elif about is self.checks and self.checks.mark:
            row, col = self.checks.at
            self._show_host(self.checks.rows[row], fleet.checks[col].id)
        elif about is self.pairs and fleet.pairwise:
            names = fleet.pairwise.names
            source, target = (names[at] for at in self.pairs.at)
            self.detail.put(f"{source} → {target}", list(fleets.pair_blocks(fleet.pairwise, source, target)))

    def _show_host(self, name: str, check: str = "") -> None:
        """Show the host of that name in the detail, the check with the id `check` first; nothing if it is unknown."""
        fleet = self.fleet
        host = next((host for host in fleet.hosts if host.name == name), None) if fleet else None
        if fleet and host:
            self.detail.put(host.name, list(fleets.host_blocks(fleet, host, check)))

    def on_rows_chosen(self, _: Rows.Chosen) -> None:
        """Move from the suspect to its first host in the heat map of checks; nothing if that is not shown there."""
        suspect = self.suspects.suspect
        if suspect and suspect.names[0] in self.checks.rows:
            self.checks.go_to(suspect.names[0])
            self.checks.focus()

    def on_matrix_chosen(self, event: Matrix.Chosen) -> None:
        """Show all that is known of the chosen cell's host in the detail, and focus that."""
        self._show_host(event.matrix.rows[event.matrix.at[0]])
        self.detail.focus()

    def action_next(self, by: int) -> None:
        """Focus the heat map of checks, and move to its next bad cell, wrapping round; `by` -1: the previous."""
        self.checks.focus()
        self.checks.action_next(by)

    def action_pairs(self) -> None:
        """Show the heat map of pairs alone, or the checks again; only a message if no bandwidth was measured."""
        if not self.fleet or not self.fleet.pairwise:
            self.doctor.say("no bandwidth was measured between hosts")
            return
        alone = not self.query_one("#cluster").has_class("-pairs")
        self.query_one("#cluster").set_class(alone, "-pairs")
        self._update_layout()
        (self.pairs if alone else self.checks).focus()

    def action_everyone(self) -> None:
        """Switch between all hosts and only those with something other than ok."""
        if self.fleet:
            self._shows_all_hosts = not self._shows_all_hosts
            self._show_checks()
            self._update_layout()

    def action_leave(self) -> None:
        """Esc: back from the pairs or the detail, else as on every screen."""
        if self.query_one("#cluster").has_class("-pairs"):
            self.action_pairs()
        elif self.fleet and self.focused is self.detail and not self.doctor.message:
            self.checks.focus()
        else:
            super().action_leave()

    def action_copy(self) -> None:
        """Copy the command that drains the bad hosts; a message says which, or that no host is to be drained."""
        command = fleets.drain_command(self.fleet) if self.fleet else ""
        if command:
            self.app.copy_to_clipboard(command)
        self.doctor.say(say("copied: {command}", command=command) if command else "no host is to be taken out")

    def action_write(self) -> None:
        """Write the sound hosts' names to `FILE` in a thread, a line each, replacing the file; a message says how it
        went. Only a message if there are none or no file can be written.
        """
        save, fleet = self.doctor.work.save, self.fleet
        if fleet is None or save is None:
            self.doctor.say("no file can be written from here")
            return
        if not fleet.sound:
            self.doctor.say("no host is sound: nothing was written")
            return
        names = fleet.sound

        def report(answer: BaseException | None) -> None:
            """Show a message: the file was written (None), or why not."""
            message = say("{hosts} written to {file}", hosts=plural(len(names), "sound host"), file=FILE)
            self.doctor.say(message if answer is None else say("not written: {error}", error=error_text(answer)))

        run_in_thread(self.app, "save", lambda: save("".join(f"{name}\n" for name in names), FILE), report)

    def band(self) -> Band:
        """The first line: the fleet's verdict and headline; without a fleet as on every screen."""
        if self.fleet is None:
            return super().band()
        glyph, word, look = fleets.VERDICT[self.fleet.verdict]
        return Band(look, f"{glyph} {word}", fleets.headline(self.fleet), tuple(fleets.size_lines(self.fleet)))

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: the fleet's counts, and when it was checked; without a fleet as on every screen."""
        fleet = self.fleet
        if fleet is None:
            return super().status()
        return fleets.counts_line(fleet), say("checked {at}", at=one_line(fleet.at)) if fleet.at else ""


# ---- The suspects: who, what, and on what evidence ----

_WIDEST = 20


class SuspectsTable(Rows):
    """The suspects, the likeliest first, each with its evidence in the rows below."""

    empty = "Nobody is suspect."

    def __init__(self) -> None:
        super().__init__(id="suspects", classes="pane")
        self.border_title = say("Suspects, the likeliest first")
        self._suspects: Sequence[Suspect] = ()
        self._lines: list[tuple[int, str]] = []
        """Which suspect each row is about, and its evidence; none in the row that names it."""
        self._brief = False

    def shorten(self, brief: bool) -> None:
        """Leave the evidence out (`brief`), or show it."""
        if brief != self._brief:
            self._brief = brief
            self.put(self._suspects)

    def put(self, suspects: Sequence[Suspect]) -> None:
        """Show these suspects; the cursor stays on the same position in their order."""
        here = self._lines[self.cursor][0] if self._lines else 0
        self._suspects = suspects
        self._lines = [
            (at, text)
            for at, suspect in enumerate(suspects)
            for text in ("", *(() if self._brief else suspect.evidence))
        ]
        self.fill(len(self._lines))
        self._move_to(min(here, max(len(suspects) - 1, 0)))

    @property
    def suspect(self) -> Suspect | None:
        """The suspect under the cursor, also from its evidence; None if there are none."""
        return self._suspects[self._lines[self.cursor][0]] if self._lines else None

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row: a suspect's number, severity, names, title, confidence; or a piece of its evidence."""
        at, evidence = self._lines[index]
        width = min(max(len(fleets.suspect_label(suspect)) for suspect in self._suspects), _WIDEST)
        if evidence:
            return [(f"{'':<{width + 7}}→ ", "dim"), (one_line(evidence), "dim")]
        suspect = self._suspects[at]
        glyph = marks.SEVERITY[suspect.severity][0] if suspect.severity != "info" else marks.UNREAD
        return [
            (f"{at + 1:<2} ", "dim"),
            (f"{glyph} ", suspect.severity),
            (f"{fleets.suspect_label(suspect):<{width}}  ", "bold"),
            (one_line(suspect.title), ""),
            (f"  {say(suspect.confidence)}  {one_line(suspect.id)}", "dim"),
        ]

    def validate_cursor(self, cursor: int) -> int:
        """The row that names the suspect to which row `cursor` belongs: the cursor is never on evidence."""
        while 0 < cursor < len(self._lines) and self._lines[cursor][1]:
            cursor -= 1
        return cursor

    def action_move(self, by: int) -> None:
        """Move the cursor by so many suspects, up to the first or last."""
        if self._lines:
            self._move_to(min(max(self._lines[self.cursor][0] + by, 0), len(self._suspects) - 1))

    def _move_to(self, suspect: int) -> None:
        """Put the cursor on the row that names the suspect at that position; on row 0 if there is none."""
        self.cursor = next((row for row, (at, text) in enumerate(self._lines) if at == suspect and not text), 0)

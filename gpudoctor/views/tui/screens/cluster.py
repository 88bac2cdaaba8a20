"""Many hosts: what each check says of each, how fast every two are, who is suspect, who may train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fleet import Fleet
from gpudoctor.model.pairwise import Pairwise
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background
from gpudoctor.views.tui.screens.place import Band, Place
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.matrix import Matrix
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.widgets.suspects import Suspects
from gpudoctor.views.tui.words import fleets, pairs
from gpudoctor.views.tui.words.cells import headings

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp


class ClusterScreen(Place):
    """Hosts × checks, pairs, suspects; `c` copies what takes the bad hosts out, `w` writes the sound ones to a file."""

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
        """Both maps, below them the suspects and what is under the cursor; suspects first where it is narrow."""
        self.suspects, self.drain, self.detail = (
            Suspects(),
            Pane("Who may train", id="drain"),
            Pane("Cluster", id="host"),
        )
        self.checks, self.pairs = Checks(), Pairs()
        self.fleet: Fleet | None = None
        self._everyone = False
        self.maps = Horizontal(self.checks, self.pairs, id="maps")
        with Container(id="cluster", classes="-none"):
            yield self.maps
            yield self.suspects
            yield self.detail
            yield self.drain

    def on_resize(self) -> None:
        """Where it is narrow the suspects come first."""
        super().on_resize()
        narrow = self.app.size.width < NARROW
        self.suspects.brief = narrow
        cluster = self.query_one("#cluster")
        if narrow:
            cluster.move_child(self.maps, after=self.suspects)
        else:
            cluster.move_child(self.maps, before=self.suspects)
        self._room()

    def on_mount(self) -> None:
        """What the fleet said, if there is one."""
        super().on_mount()
        self.action_again()

    def show(self, diagnosis: Diagnosis) -> None:
        """What it says of its hosts, where it is of many; while they are asked it grows."""
        if diagnosis.fleet is not None:
            self._put(diagnosis.fleet)

    def action_again(self) -> None:
        """Ask the fleet, or the file that speaks of it."""
        ask = self.doctor.work.cluster
        diagnosis = self.doctor.diagnosis
        if ask is None and diagnosis and diagnosis.fleet is not None:
            self.show(diagnosis)
            return
        if ask is None:
            self._nothing()
            return
        if self.fleet is None:
            self.detail.put("Cluster", [Block(plain("Asking the fleet …"))])
        background.start(self.app, "cluster", ask, self._answered)

    def _answered(self, answer: Fleet | BaseException | None) -> None:
        if isinstance(answer, Fleet):
            self._put(answer)
        elif answer is None:
            self._nothing()
        elif self.fleet is None:
            self._nothing(f"The fleet's answer cannot be read: {background.words(answer)}")
        else:
            self.doctor.say(f"not checked again: {background.words(answer)}")

    def _nothing(self, said: str = "Only this machine is known: there is nothing to compare it with.") -> None:
        """An empty screen in words."""
        self.detail.put("Cluster", list(fleets.nothing(said)))
        self.detail.focus()

    def _put(self, fleet: Fleet) -> None:
        """Show it; cursors stay on the names they were put on."""
        self.fleet = fleet
        cluster = self.query_one("#cluster")
        cluster.set_class(len(fleet.hosts) == 0, "-none")
        cluster.set_class(fleet.pairwise is None, "-pairless")
        self.suspects.put(fleets.suspects(fleet))
        self.drain.put("Who may train", list(fleets.drain_blocks(fleet)), keep=True)
        self._checks()
        if pairwise := fleet.pairwise:
            self.pairs.show(pairwise)
        self._room()
        if not self.focused or self.focused is self.detail:
            self.suspects.focus()
        self._detail(self.suspects)
        self.reframe()

    def _checks(self) -> None:
        fleet = self.fleet
        assert fleet
        self.checks.show(fleet, self._everyone)

    def _room(self) -> None:
        """The maps are as high as they need to be, and at most half of the screen; the pairs alone take all."""
        lines = max((matrix.lines for matrix in (self.checks, self.pairs) if matrix.display), default=0)
        height = min(lines + 2, max(self.app.size.height // 2 - 1, 4))
        self.maps.styles.height = "1fr" if self.query_one("#cluster").has_class("-pairs") else height
        self.query_one("#cluster").styles.grid_rows = f"{height} auto 1fr"

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail follows the cursor in use."""
        self._detail(event.rows)

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        """The detail follows the cursor in use."""
        self._detail(event.matrix)

    def on_descendant_focus(self) -> None:
        """The detail follows the cursor in use."""
        if self.focused is not self.detail:
            self._detail(self.focused)

    def _detail(self, about: Widget | None) -> None:
        fleet = self.fleet
        if fleet is None or about is not self.focused:
            return
        suspect = self.suspects.suspect
        if about is self.suspects and suspect:
            self.detail.put(fleets.who(suspect), list(fleets.suspect_blocks(suspect)))
        elif about is self.suspects:
            said = f"Nobody is suspect. {fleets.conclusion(fleet)} tab goes to the maps."
            self.detail.put("Cluster", [Block(plain(said))])
        elif about is self.checks and self.checks.mark:
            row, col = self.checks.at
            self._host(self.checks.rows[row], fleet.checks[col].id)
        elif about is self.pairs and fleet.pairwise:
            names = fleet.pairwise.names
            source, target = (names[at] for at in self.pairs.at)
            self.detail.put(f"{source} → {target}", list(pairs.blocks(fleet.pairwise, source, target)))

    def _host(self, name: str, check: str = "") -> None:
        fleet = self.fleet
        host = next((host for host in fleet.hosts if host.name == name), None) if fleet else None
        if fleet and host:
            self.detail.put(host.name, list(fleets.host_blocks(fleet, host, check)))

    def on_rows_chosen(self, _: Rows.Chosen) -> None:
        """Enter on a suspect: to its first host in the map."""
        suspect = self.suspects.suspect
        if suspect and suspect.names[0] in self.checks.rows:
            self.checks.go_to(suspect.names[0])
            self.checks.focus()

    def on_matrix_chosen(self, event: Matrix.Chosen) -> None:
        """Enter on a cell: all that is known of its host."""
        self._host(event.matrix.rows[event.matrix.at[0]])
        self.detail.focus()

    def action_next(self, by: int) -> None:
        """From the suspects to the next bad cell."""
        self.checks.focus()
        self.checks.action_next(by)

    def action_pairs(self) -> None:
        """The pairs alone, as large as there is room for; again, back to the checks."""
        if not self.fleet or not self.fleet.pairwise:
            self.doctor.say("no bandwidth was measured between hosts")
            return
        alone = not self.query_one("#cluster").has_class("-pairs")
        self.query_one("#cluster").set_class(alone, "-pairs")
        self._room()
        (self.pairs if alone else self.checks).focus()

    def action_everyone(self) -> None:
        """All hosts, or only those with something to see."""
        if self.fleet:
            self._everyone = not self._everyone
            self._checks()
            self._room()

    def action_leave(self) -> None:
        """Esc: from the pairs or the detail back to the maps, else as everywhere."""
        if self.query_one("#cluster").has_class("-pairs"):
            self.action_pairs()
        elif self.fleet and self.focused is self.detail and not self.doctor.message:
            self.checks.focus()
        else:
            super().action_leave()

    def action_copy(self) -> None:
        """What takes the bad hosts out, all in one line."""
        command = fleets.drain_command(self.fleet) if self.fleet else ""
        if command:
            self.app.copy_to_clipboard(command)
        self.doctor.say(f"copied: {command}" if command else "no host is to be taken out")

    def action_write(self) -> None:
        """The sound hosts, a line each, to a file."""
        save, fleet = self.doctor.work.save, self.fleet
        if fleet is None or save is None:
            self.doctor.say("no fleet, no list of hosts" if fleet is None else "no file can be written from here")
            return
        write(self.doctor, fleet.sound, save)

    def band(self) -> Band:
        """The fleet's verdict, where there is a fleet."""
        if self.fleet is None:
            return super().band()
        glyph, word, look = fleets.VERDICT[self.fleet.verdict]
        return Band(look, f"{glyph} {word}", fleets.about(self.fleet), tuple(fleets.sizes(self.fleet)))

    def status(self) -> Sequence[Content | str]:
        """Its counts, and when it was checked."""
        fleet = self.fleet
        if fleet is None:
            return super().status()
        return fleets.counts(fleet), f"checked {one_line(fleet.at)}" if fleet.at else ""


# ---- The hosts that may train, written to a file for whoever starts the job ----

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


# ---- A fleet as two maps ----
# Its hosts by checks, and by each other.


class Checks(Matrix):
    """A row a host, a column a check."""

    def __init__(self) -> None:
        super().__init__(id="checks")
        self.wide = True
        self.border_title = "Hosts × checks"

    def show(self, fleet: Fleet, everyone: bool) -> None:
        """These hosts: `everyone`, or of many those of which there is something to say."""
        hosts = fleets.shown_hosts(fleet, everyone)
        cells = [[fleets.mark(fleet.result(host.name, check.id)) for check in fleet.checks] for host in hosts]
        self.put([host.name for host in hosts], [check.short for check in fleet.checks], cells)
        more = len(fleet.hosts) - len(hosts)
        self.border_subtitle = Content(f"+ {more} hosts all sound (a)" if more else "")


class Pairs(Matrix):
    """Each host to each other one."""

    def __init__(self) -> None:
        super().__init__(id="pairs")

    def show(self, pairwise: Pairwise) -> None:
        """How fast each way is, as a share of what is expected."""
        names = pairwise.names
        cells = [[pairs.mark(pairwise.pair(source, target)) for target in names] for source in names]
        self.border_title = Content(one_line(pairwise.title))
        unit = one_line(f"{pairwise.expected:g} {pairwise.unit}")
        self.border_subtitle = Content(f"· from 90 %, digits tenths of {unit}, x wrong, ? not read")
        self.put(names, headings(names), cells)

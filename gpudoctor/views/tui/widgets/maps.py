"""A fleet as two maps: its hosts by checks, and by each other."""

from __future__ import annotations

from textual.content import Content

from gpudoctor.model.fleet import Fleet
from gpudoctor.model.pairwise import Pairwise
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.matrix import Matrix
from gpudoctor.views.tui.words import fleets, pairs
from gpudoctor.views.tui.words.cells import headings


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

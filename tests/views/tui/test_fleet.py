"""A fleet in the interface: it opens on the cluster, grows while hosts answer, and a saved one shows the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.app import interactive
from gpudoctor.cluster.fleet.asking import FleetQuery, ReplySource
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.fleet.remote import OnReply
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.views import document as view
from gpudoctor.views.tui.screens.cluster import ClusterScreen
from tests.cluster.fleet_documents import BOOK, LOST, document, folded, hosts
from tests.views.tui.conftest import WIDE, Opened, settled, shown, until


async def test_a_saved_fleet_shows_its_hosts(opened: Opened, tmp_path: Path) -> None:
    diagnosis = folded([*hosts(7, n3=LOST), "Killed"], FleetContext(scheduler="slurm"))
    (tmp_path / "fleet.json").write_text(view.render(diagnosis))
    async with opened(interactive.of_files([str(tmp_path / "fleet.json")], ()), WIDE) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "NO-GO" in shown(pilot)[0])
        assert "1 host to take out, 1 unreachable" in shown(pilot)[0]
        await pilot.press("c")
        assert "NodeName=n3" in pilot.app.clipboard
        await pilot.press("f")
        await pilot.pause()
        assert "repaired one by one" in shown(pilot)[1]


async def test_it_opens_on_the_cluster_and_grows_while_hosts_answer(opened: Opened) -> None:
    more = threading.Event()

    def ask(on_reply: OnReply) -> None:
        for text in hosts(3):
            on_reply(Reply(text))
        more.wait(120)
        on_reply(Reply(document("n4", LOST)))

    def watch() -> Iterator[Diagnosis]:
        return FleetQuery(ReplySource(ask), FleetFold(BOOK), FleetContext()).watch()

    async with opened(interactive.of_fleet(watch, ()), WIDE, settle=False) as pilot:

        def said(words: str) -> bool:
            return any(words in line for line in shown(pilot)[:2])

        await until(pilot, lambda: isinstance(pilot.app.screen, ClusterScreen) and said("3 of 3 hosts"))
        more.set()
        await settled(pilot)
        await until(pilot, lambda: said("4 of 4 hosts answered"))
        assert "NO-GO" in shown(pilot)[0]

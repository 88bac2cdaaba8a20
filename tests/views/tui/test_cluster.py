"""The cluster: checks and pairs as heat maps, suspects, hosts to take out; it grows while hosts answer."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.app import demos, interactive
from gpudoctor.app.interactive import work_on
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.fleet.remote import OnReply
from gpudoctor.cluster.fleet.sources import FleetQuery, ReplySource
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fleet import OK, Check, Fleet, Host, Pairwise, Result
from gpudoctor.views import document as view
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.cluster import ClusterScreen
from gpudoctor.views.tui.words import fleets
from gpudoctor.views.tui.work import Work
from tests import measured
from tests.cluster.fleet_documents import BOOK, LOST, document, folded, hosts
from tests.views.tui.conftest import NARROW, SIZES, WIDE, Opened, opened_by, settled, shown, until
from tests.views.tui.test_kernels import sound


def work(fleet: Fleet | None = None) -> Work:
    """A sound machine of that fleet."""
    return replace(work_on("node01", lambda _: iter([sound()])), cluster=lambda: fleet)


async def cluster(pilot: Pilot[None]) -> ClusterScreen:
    """The screen, with the fleet's answer on it."""
    return await opened_by("5", ClusterScreen, pilot, "Asking the fleet …")


async def test_c_copies_the_drain_and_w_writes_the_sound_hosts(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(work(measured.rack()), WIDE) as pilot:
        await cluster(pilot)
        await pilot.press("c")
        assert pilot.app.clipboard == (
            "scontrol update NodeName=node04 State=DRAIN 'Reason=gpudoctor: nccl.slow' && "
            "scontrol update NodeName=node07 State=DRAIN 'Reason=gpudoctor: fleet.differs'"
        )
        await pilot.press("w")
        await until(pilot, lambda: "5 sound hosts written to sound-hosts.txt" in shown(pilot)[1])
    assert (tmp_path / "sound-hosts.txt").read_text("utf-8").split() == [f"node0{at}" for at in (1, 2, 3, 5, 8)]


async def test_of_one_sound_host_it_speaks_in_the_singular(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = {f"n{at}": {"driver": Result("error")} for at in range(1, fleets.MOST_ROWS + 1)}
    names = tuple(Host(f"n{at}") for at in range(fleets.MOST_ROWS + 1))
    fleet = Fleet("", names, (Check("driver", "driver", "drv"),), {"n0": {"driver": OK}, **bad}, "no-go")
    async with opened(work(fleet), WIDE) as pilot:
        screen = await cluster(pilot)
        assert any("+ 1 host all sound (a)" in line for line in shown(pilot))
        assert "1 of 33 hosts is sound and may train." in screen.drain.prose.text
        await pilot.press("w")
        await until(pilot, lambda: "1 sound host written to sound-hosts.txt" in shown(pilot)[1])


def focus(screen: ClusterScreen) -> str:
    """The id of what has it."""
    return (screen.focused and screen.focused.id) or ""


async def test_where_it_is_narrow_one_key_shows_the_pairs(opened: Opened) -> None:
    async with opened(work(measured.rack()), NARROW) as pilot:
        await cluster(pilot)
        for key, hosts, pairs in (("b", False, True), ("escape", True, False)):
            await pilot.press(key)
            assert [any(words in line for line in shown(pilot)) for words in (CHECKS, PAIRS)] == [hosts, pairs]
        await pilot.resize_terminal(160, 48)
        await pilot.pause()
        assert all(words in shown(pilot)[3] for words in (CHECKS, PAIRS))


CHECKS, PAIRS = "Hosts × checks", "NCCL send and receive"


@pytest.mark.parametrize("size", SIZES)
async def test_n_goes_to_the_bad_cells_and_says_why(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work(measured.rack()), size) as pilot:
        screen = await cluster(pilot)
        await pilot.press("n")
        assert focus(screen) == "checks"
        assert "all-reduce with the others: 19.9 of 48 GB/s" in screen.detail.prose.text
        await pilot.press("n")
        assert str(screen.detail.border_title) == "node07"
        assert "570.124.06" in screen.detail.prose.text
        await pilot.press("N")
        assert str(screen.detail.border_title) == "node04"


async def test_a_pair_tells_its_both_ways_and_whose_fault_it_looks_like(opened: Opened) -> None:
    async with opened(work(measured.rack())) as pilot:
        screen = await cluster(pilot)
        await pilot.press("b")
        said = screen.detail.prose.text
        assert "node01 → node04" in said
        assert "node04 → node01" in said
        assert "2 of 12 ways below 90 %\n" in said
        assert "12 of 12 ways below 90 %  ← the host, not one link" in said
        await pilot.press("home", "down", "down", "down", "down", "down")
        said = screen.detail.prose.text
        assert "node06 → node01" in said
        assert said.count("not measured") == 2


async def test_enter_opens_a_host_and_esc_returns(opened: Opened) -> None:
    async with opened(work(measured.rack())) as pilot:
        screen = await cluster(pilot)
        await pilot.press("enter")  # on the first suspect
        await pilot.pause()
        assert focus(screen) == "checks"
        assert screen.checks.rows[screen.checks.at[0]] == "node04"
        await pilot.press("enter")
        assert focus(screen) == "host"
        assert "eth2 negotiated 100 of 200 Gb/s" in screen.detail.prose.text
        assert "8 of 10 checks passed" in screen.detail.prose.text
        await pilot.press("escape")
        assert focus(screen) == "checks"


async def test_the_cursor_goes_from_suspect_to_suspect_over_their_evidence(opened: Opened) -> None:
    async with opened(work(measured.rack()), WIDE) as pilot:
        screen = await cluster(pilot)
        assert any("→ its own link: eth2 negotiated" in line for line in shown(pilot))
        for name in ("node07", "node06", "node06"):
            await pilot.press("down")
            assert screen.suspects.suspect
            assert screen.suspects.suspect.names == (name,)
            assert str(screen.detail.border_title) == name
        await pilot.press("up", "up", "up")
        assert screen.suspects.suspect
        assert screen.suspects.suspect.names == ("node04",)


async def test_a_list_that_cannot_be_written_is_said_in_words(opened: Opened) -> None:
    def full(*_: str) -> None:
        raise OSError("[Errno 28] No space left on device")

    async with opened(replace(work(measured.rack()), save=full)) as pilot:
        await cluster(pilot)
        await pilot.press("w")
        await until(pilot, lambda: "not written: OSError: [Errno 28]" in shown(pilot)[1])


@pytest.mark.parametrize("size", SIZES)
async def test_one_machine_alone_is_told_how_to_add_hosts(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work(), size) as pilot:
        screen = await cluster(pilot)
        assert any("gpudoctor fleet --hosts node[01-08]" in line for line in shown(pilot))
        assert not any(key in shown(pilot)[-1] for key in ("next bad", "bandwidth", "drain", "sound"))
        await pilot.press("c", "w", "b", "n", "N", "a", "enter", "escape", "R")
        assert screen.fleet is None


async def test_an_answer_that_cannot_be_read_is_said_in_words(opened: Opened) -> None:
    def broken() -> Fleet:
        raise DocumentError("hosts.0.name is not a text")

    async with opened(replace(work(), cluster=broken)) as pilot:
        screen = await cluster(pilot)
        assert "cannot be read: hosts.0.name is not a text" in screen.detail.prose.text


@pytest.mark.parametrize("size", SIZES)
async def test_of_many_hosts_only_those_with_something_show(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work(measured.cluster()), size) as pilot:
        screen = await cluster(pilot)
        assert screen.checks.rows == ("node07", "node19", "node33", "node41", "node52", "node58", "node60")
        assert any("+ 57 hosts all sound (a)" in line for line in shown(pilot))
        assert "64 hosts · 512 × H100" in shown(pilot)[0]
        await pilot.press("a")
        assert len(screen.checks.rows) == 64
        assert all(len(line) == size[0] for line in shown(pilot))


async def test_the_cursor_stays_while_the_fleet_is_asked_again(opened: Opened) -> None:
    answers = [measured.rack(), replace(measured.rack(), hosts=measured.rack().hosts[1:], verdict="unknown")]
    async with opened(replace(work(), cluster=lambda: answers.pop(0))) as pilot:
        screen = await cluster(pilot)
        await pilot.press("n", "n", "right", "R")
        await until(pilot, lambda: "UNKNOWN" in shown(pilot)[0])
        assert screen.checks.rows[screen.checks.at[0]] == "node07"
        assert screen.checks.at[1] == 1


async def test_a_fleet_without_pairs_and_without_trouble(opened: Opened) -> None:
    hosts = tuple(Host(f"n{at}", gpus=8, gpu="H100") for at in range(4))
    checks = (Check("driver", "driver", "drv"),)
    fleet = Fleet("", hosts, checks, {host.name: {"driver": OK} for host in hosts}, "go")
    async with opened(work(fleet), WIDE) as pilot:
        screen = await cluster(pilot)
        assert shown(pilot)[0].startswith(" ✓ GO  every host is sound")
        assert any("Nobody is suspect." in line for line in shown(pilot))
        assert "4 of 4 hosts are sound and may train." in screen.drain.prose.text
        await pilot.press("b", "c")
        assert "no host is to be taken out" in shown(pilot)[1]


def pairs(bad: dict[tuple[str, str], float], *names: str) -> Fleet:
    """A fleet of which nothing is known but its pairs."""
    rows = tuple(tuple(None if a == b else bad.get((a, b), 47.0) for b in names) for a in names)
    return Fleet("", tuple(map(Host, names)), (), {}, "unknown", Pairwise("", "GB/s", 48.0, names, rows))


def cross(*names: str) -> dict[tuple[str, str], float]:
    """Every pair with b is bad."""
    return {(one, two): 20.0 for one in names for two in names if "b" in (one, two)}


@pytest.mark.parametrize(
    ("names", "bad", "suspects", "title"),
    [
        ("abcd", cross(*"abcd"), [("host", ("b",))], "the host, not a link"),
        ("abcd", {("a", "c"): 20.0}, [("link", ("a", "c"))], "at 42 %"),
        (
            "abcde",
            {**cross(*"abcde"), ("d", "e"): 10.0, ("e", "d"): 11.0},
            [("host", ("b",)), ("link", ("d", "e"))],
            "",
        ),
        ("ab", {("a", "b"): 20.0, ("b", "a"): 20.0}, [("link", ("a", "b"))], ""),
    ],
    ids=["a row and a column", "one cell", "a host and a link", "two hosts"],
)
def test_what_is_bad_together_is_one_suspect(
    names: str, bad: dict[tuple[str, str], float], suspects: list[tuple[str, tuple[str, ...]]], title: str
) -> None:
    found = fleets.suspects_of(pairs(bad, *names))
    assert [(suspect.kind, suspect.names) for suspect in found] == suspects
    assert title in found[0].title


def test_a_host_whose_pairs_are_wrong_needs_no_expected_rate() -> None:
    names = ("n1", "n2", "n3", "n4")
    wrong = frozenset((one, other) for one in names for other in names if "n3" in (one, other) and one != other)
    rows = tuple(tuple(None if one == other else 1.0 for other in names) for one in names)
    fleet = Fleet("", tuple(map(Host, names)), (), {}, "unknown", Pairwise("", "GB/s", 0.0, names, rows, wrong))
    assert [(one.names, one.title) for one in fleets.suspects_of(fleet)] == [
        (("n3",), "most pairs with n3 carried wrong values: the host, not a link")
    ]


def test_the_demos_come_with_them() -> None:
    for name, node, fleet in (("hot-gpu", measured.node(), measured.rack()), ("sound", None, measured.cluster())):
        demo = demos.named(name).work()
        assert demo.measured
        assert demo.cluster
        assert (demo.measured(), demo.cluster()) == (node, fleet)


@pytest.mark.parametrize("size", SIZES)
def test_looks(snap_compare: Any, size: tuple[int, int]) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await cluster(pilot)

    assert snap_compare(DoctorApp(work(measured.rack())), terminal_size=size, run_before=there)


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

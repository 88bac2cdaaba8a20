"""How long a child is waited for, by a clock that is moved: while it works, up to a limit."""

from __future__ import annotations

import os
import subprocess
import sys

from gpudoctor.target.protocol import STILL, Waiting, Work, work_of


class World:
    """A clock, and a child that has done so much by now."""

    def __init__(self, most: float = 120.0, still: float = STILL) -> None:
        self.now, self.work = 1000.0, Work()
        self.waiting = Waiting(most, still, measure=lambda _: self.work, clock=lambda: self.now)
        self.waiting.pid = 1 << 30

    def pass_by(self, seconds: int, seconds_of_work: float = 0.0, read: int = 0, pages: int = 0) -> bool:
        """So many seconds, in each of which it does so much; whether it is waited for."""
        for _ in range(seconds):
            self.now += 1
            before = self.work
            self.work = Work(before.seconds + seconds_of_work, before.read + read, before.pages + pages)
            if not self.waiting(None) or self.waiting.why:
                return False
        return True


def test_what_computes_or_reads_is_waited_for_to_the_limit() -> None:
    for signs in ({"seconds_of_work": 0.05}, {"read": 4096}, {"pages": 1}):
        world = World()
        assert world.pass_by(119, **signs)
        assert not world.pass_by(3, **signs)
        assert world.waiting.why == "given up after 121 s, still at work"


def test_what_does_nothing_is_given_up_sooner() -> None:
    world = World()
    assert world.pass_by(20, seconds_of_work=1)
    assert world.pass_by(29)
    assert not world.pass_by(3)
    assert world.waiting.why == "given up after 51 s, the last 30 s without a sign of work"


def test_half_a_minute_without_a_sign_of_work_is_enough() -> None:
    assert World().pass_by(29)
    assert not World().pass_by(32)


def test_to_poll_in_sleep_is_no_sign_of_work() -> None:
    world = World()
    assert not world.pass_by(40, seconds_of_work=0.001, read=8)


def test_a_line_is_a_sign_of_work_and_a_step_has_seconds_of_its_own() -> None:
    world = World()
    assert world.pass_by(25)
    assert world.waiting("@gpudoctor {}")
    assert world.pass_by(25)
    world.waiting.begin(300.0, 200.0)
    assert world.pass_by(199)
    assert not world.pass_by(3)


def test_what_cannot_be_seen_has_all_its_time() -> None:
    world = World()
    world.work = None  # type: ignore[assignment]
    for _ in range(119):
        world.now += 1
        assert world.waiting(None)
    assert not world.waiting.why


def test_who_is_given_up_has_a_moment_to_say_where_it_is() -> None:
    world = World()
    assert not world.pass_by(32)
    assert world.waiting(None)
    world.now += 2
    assert not world.waiting(None)


def test_the_work_of_a_real_process_and_its_child() -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass\ninput()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        work = work_of(process.pid)
        while work and work.seconds < 0.2:
            work = work_of(process.pid)
        process.communicate(b"\n", timeout=600)
    assert work
    assert work.read > 0


def test_the_work_of_others_is_not_looked_at() -> None:
    assert work_of(os.getppid()) is None
    assert work_of(1 << 30) is None

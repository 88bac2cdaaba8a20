"""A process that checks machines again and again holds afterwards what it held before."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref

import pytest

from gpudoctor.app import pipeline
from gpudoctor.target.local import Local
from tests.needs import REPOSITORY
from tests.processes import until

pytestmark = pytest.mark.full


@pytest.mark.full
def test_forty_checks_leave_nothing_behind() -> None:
    """No process, thread or file, nor more memory than a soak of thousands may take, which is run by hand."""
    argv = [sys.executable, "-m", "tests.soak", "--checks", "20", "--warm", "20"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=600)
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert (done.returncode, told["checks"]) == (0, 40)
    assert {"asked", "killed", "replayed"} <= set(told["kinds"])


def test_a_target_goes_when_nobody_asks_it_any_more() -> None:
    target = Local("quick", sys.executable)
    pipeline.check(target=target)
    gone, target = weakref.ref(target), Local("quick", sys.executable)
    assert until(lambda: gc.collect() >= 0 and gone() is None)  # a probe that was given up may still be at it

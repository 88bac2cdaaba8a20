"""``gpudoctor setup driver``, ``cuda-toolkit`` and ``container``: a plan, or why there is none."""

from __future__ import annotations

import pytest

from gpudoctor.core import plan as plans
from tests.conftest import Program


def test_setup_driver_prints_the_whole_plan(called: Program) -> None:
    code, out, _ = called("setup", "driver", "--for", "distribution=debian 13,gpu=RTX 5090,arch=x86_64,os=linux")
    assert code == 0
    for words in (
        "Install the NVIDIA driver",
        "repos/debian13/x86_64/cuda-keyring_1.1-1_all.deb",
        "$ apt-get install --yes nvidia-open",
        "needs a reboot",
        "To undo",
        "nothing was changed",
    ):
        assert words in out


def test_as_json_it_is_a_plan(called: Program) -> None:
    ran = called("setup", "cuda-toolkit", "--cuda", "12.8", "--json", "--for", "distribution=rocky 9.5,arch=x86_64")
    plan = plans.from_json(ran.document)
    assert ran.code == 0
    assert ("dnf", "install", "--assumeyes", "cuda-toolkit-12-8") in [step.argv for step in plan.chosen]
    assert not plan.verifies


def test_where_no_way_is_known_it_says_what_is(called: Program) -> None:
    code, out, err = called("setup", "driver", "--for", "distribution=alpine 3.20,gpu=L4,os=linux")
    assert (code, out) == (1, "")
    assert "no way is known for alpine 3.20" in err
    assert "520" in err


@pytest.mark.parametrize(
    "words",
    [
        ("driver", "--for", "gpu=L4", "--apply"),
        ("driver", "--apply", "--dry-run"),
        ("driver", "--yes"),
        ("cuda-toolkit", "--cuda", "twelve"),
        ("driver", "--for", "colour=red"),
    ],
)
def test_misuse_is_refused(words: tuple[str, ...], called: Program) -> None:
    code, out, err = called("setup", *words)
    assert (code, out) == (2, "")
    assert err.startswith("gpudoctor: ")

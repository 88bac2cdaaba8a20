"""Windows' own Python runs tests of rooms: those of its processes, and those that touch no machine."""

from __future__ import annotations

import pytest

from tests.windows.rig import Windows

pytestmark = pytest.mark.full

ROOMS = (
    "windows/there",
    "core/test_model.py",
    "core/test_plan_model.py",
    "diagnosis/test_expression.py",
    "diagnosis/test_judge.py",
    "diagnosis/test_knowledge_drivers.py",
    "readers/test_reader_collect_env.py",
    "readers/test_reader_nvidia_smi.py",
)


@pytest.mark.parametrize("place", ROOMS)
def test_its_tests_pass(place: str, windows: Windows) -> None:
    windows.with_tests()
    windows.with_environment()
    own = "E:\\tests\\" + place.replace("/", "\\")
    options = ["-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-q", "-m"]
    ran = windows.python("-m", "pytest", *options, "not gpu and not full", own, env={"CI": ""})
    assert ran.code == 0, ran.out[-6000:] + ran.err[-2000:]
    assert " passed" in ran.out

"""nvidia-ml-py, over the simulated NVML, returns for every key of a scenario what the scenario says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim import clients, scenario

LINKS = (0, 3, 17)
ARGUMENTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "nvmlDeviceGetNvLinkState": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkVersion": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkRemoteDeviceType": tuple((link,) for link in LINKS),
    "nvmlDeviceGetP2PStatus": tuple(itertools.product((0, 1), range(5))),
    "nvmlDeviceGetTopologyCommonAncestor": ((0,), (1,)),
    "nvmlDeviceOnSameBoard": ((0,), (1,)),
    "nvmlDeviceGetMemoryErrorCounter": ((1, 1, 2),),
    "nvmlDeviceGetNvLinkErrorCounter": tuple(itertools.product(LINKS, range(4))),
    "nvmlDeviceGetNvLinkCapability": tuple(itertools.product(LINKS, range(6))),
    "nvmlDeviceGetTotalEccErrors": ((0, 0), (1, 1)),
    "nvmlDeviceGetMemoryAffinity": ((0,), (1,)),
    "nvmlDeviceGetCpuAffinityWithinScope": ((0,), (1,)),
}
"""Arguments with which to ask the functions that the scenario answers whatever they are."""


BETWEEN_GPUS = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceOnSameBoard")
LINK = "nvmlDeviceGetNvLink"


def questions(nvml: dict[str, Any]) -> Iterator[clients.Question]:
    """One for each key of the scenario at least, where it has the GPU that the key names."""
    gpus = range(nvml["system"].get("nvmlDeviceGetCount", len(nvml["gpus"])))
    for key in nvml["system"]:
        function, arguments = parsed(key)
        yield None, function, tuple(map(int, arguments))
    for gpu in gpus:
        for key in {**nvml["every"], **nvml["gpus"][gpu]}:
            function, arguments = parsed(key)
            among = list(itertools.product(*((LINKS if at == "*" else (int(at),)) for at in arguments)))
            for each in among if arguments else ARGUMENTS.get(function, ((),)):
                if key != "mig" and (function not in BETWEEN_GPUS or each[0] in gpus):
                    yield gpu, function, each


def parsed(key: str) -> tuple[str, list[str]]:
    """A key's function, and its arguments."""
    function, _, arguments = key.rstrip(")").partition("(")
    return function, arguments.split(",") if arguments else []


def expected(nvml: dict[str, Any], question: clients.Question) -> Any:
    """The scenario's answer, found as its format says: the GPU's own before every GPU's, the exact key first."""
    gpu, function, arguments = question
    if gpu is None:
        return nvml["system"][function + (f"({','.join(map(str, arguments))})" if arguments else "")]
    links = expected(nvml, (gpu, "nvmlDeviceGetFieldValues", (91,))) if function.startswith(LINK) else None
    if isinstance(links, int) and arguments[0] >= links:
        return {"code": 2}
    masks = sorted(itertools.product((0, 1), repeat=len(arguments)), key=lambda mask: (sum(mask), mask[::-1]))
    for section in (nvml["gpus"][gpu], nvml["every"]):
        for mask in masks:
            shown = ["*" if star else str(at) for star, at in zip(mask, arguments, strict=True)]
            while shown:
                if (key := f"{function}({','.join(shown)})") in section:
                    return {"code": 3} if section[key] is None else section[key]
                if shown.pop() != "*":
                    break
        if function in section:
            return {"code": 3} if section[function] is None else section[function]
    return {"code": 3}


def holds(got: Any, wanted: Any) -> bool:
    """Whether the answer is what is wanted; of an object, the members that the scenario gives."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(name in got and holds(got[name], value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        padded = wanted + [0] * (len(got) - len(wanted)) if wanted and isinstance(wanted[0], int) else wanted
        return len(got) >= len(padded) and all(map(holds, got, padded))
    return bool(got == wanted)


def wrongly_told(nvml: dict[str, Any], folder: Path) -> list[tuple[clients.Question, Any, Any]]:
    """Every question whose answer is not the scenario's: with what it is, and what it should be."""
    asked = [each for each in questions(nvml) if each[1] != "nvmlDeviceValidateInforom"]  # it tells by its code alone
    assert len(asked) > len(nvml["every"])
    told = clients.ask(asked, clients.environ(folder, nvml))
    wanted = [expected(nvml, each) for each in asked]
    return [found for found in zip(asked, told, wanted, strict=True) if not holds(*found[1:])]


@pytest.mark.parametrize("profile", scenario.names(scenario.PROFILES))
def test_every_answer_of_a_profile_is_the_profiles(profile: str, tmp_path: Path) -> None:
    nvml = scenario.load(scenario.PROFILES / f"{profile}.json").nvml
    assert nvml, "every profile has a driver"
    assert wrongly_told({"every": {}, **nvml}, tmp_path) == []

"""Scenarios: healthy profiles, and sick machines told as what differs from a profile.

A profile is a record (see `gpudoctor.target.record`) whose host may be told in words, ``machine``. A scenario names its
``profile`` and gives, under the same keys, what is different: objects are laid over the profile's, ``null`` takes
away, a list is replaced unless it is patched by index (``"gpus": {"3": {...}}``); ``host.without`` takes paths away.
GPUs that the driver no longer lists are still on the bus, as the profile has them. What CUDA and torch answer follows
from NVML's answers where nobody says otherwise; a ``cuda`` without ``system`` is laid over that.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpudoctor.target.record import Record, from_json
from tests.sim import answers, machine

FOLDER = Path(__file__).parent
PROFILES = FOLDER / "profiles"
SICK = FOLDER / "scenarios"


def names(folder: Path) -> list[str]:
    """The scenarios of a folder, by name."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load(path: Path) -> Record:
    """A whole machine from a scenario's file, or from a record; raises `DocumentError` for what is none."""
    raw = json.loads(path.read_text("utf-8"))
    return expanded(raw) if {"machine", "profile"} & set(raw) else from_json(raw)


def expanded(raw: Mapping[str, Any]) -> Record:
    """A whole machine: the profile under it, the host rendered from words, CUDA's and torch's answers."""
    told, bus = based(raw)
    words = told.pop("machine", {})
    nvml = told.get("nvml")
    own = told.pop("host", {})
    without = own.pop("without", [])
    rendered = machine.render(words, bus)
    for path in without:
        for kind in ("files", "bytes", "links", "devices"):
            for key in [key for key in rendered[kind] if key == path or key.startswith(f"{path}/")]:
                del rendered[kind][key]
    for kind in ("files", "bytes", "links", "devices"):  # a path has one kind: the scenario's
        for path in own.get(kind, {}):
            for other in ("files", "bytes", "links", "devices"):
                rendered[other].pop(path, None)
    told["host"] = merged(rendered, own)
    if nvml and "/usr/bin/nvidia-smi" in rendered["files"] and "commands" not in own:
        told["host"]["commands"] = answers.smi_of(nvml)
    torch = {**machine.DEFAULTS, **words}["torch"]
    if "cuda" in raw and raw["cuda"] is None:
        told["cuda"] = None
    elif nvml and "system" not in told.get("cuda", {}):
        told["cuda"] = merged(answers.cuda_of(nvml), told.get("cuda", {}))
    if "torch_child" not in told and torch:
        told["torch_child"] = {"out": list(answers.torch_of(torch, told.get("cuda")))}
    return from_json({"schema": "gpudoctor-record/1", **told})


def based(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The scenario laid over its profile, which may lie over another one, and NVML's answers where it last had GPUs:
    they stay on the bus when the driver lists none.
    """
    told, bus = dict(raw), None
    if "profile" in told:
        below = json.loads((PROFILES / f"{told.pop('profile')}.json").read_text("utf-8"))
        profile, bus = based({key: value for key, value in below.items() if key != "expect"})
        words = merged(profile.get("machine", {}), told.get("machine", {}), keep=True)  # "driver": null is a word, too
        told = {**merged(profile, told), "machine": words}
    nvml = told.get("nvml")
    return told, nvml if nvml and nvml.get("gpus") else bus


def merged(base: Any, patch: Any, keep: bool = False) -> Any:
    """`patch` laid over `base`; `keep` says that a null is an answer: this GPU has not what every GPU has."""
    if isinstance(base, list) and isinstance(patch, Mapping):
        out = copy.deepcopy(base)
        for index, change in patch.items():
            out[int(index)] = merged(out[int(index)], change, keep=True)
        return out
    if not isinstance(base, Mapping) or not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    whole: dict[str, Any] = dict(base)
    for key, value in patch.items():
        if value is None and not keep:
            whole.pop(key, None)
        else:
            whole[key] = merged(whole.get(key), value, keep)
    return whole

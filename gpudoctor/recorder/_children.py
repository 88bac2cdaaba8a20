"""What the children of probes and ladders told, as the sections of a record that answer for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.target import Answer
from gpudoctor.target._transcripts import question
from gpudoctor.target.protocol import answers
from gpudoctor.target.record import Command

_MOST_OF_STDERR = 4000
_UNKNOWN_ERROR = 999
_LIBRARIES = {"ask_nvml.py": "nvml", "ask_cuda.py": "cuda"}


@dataclass
class Sections:
    """What our children told, put back into the sections of a record; everything else is a command."""

    nvml: dict[str, Any] | None = None
    cuda: dict[str, Any] | None = None
    torch: dict[str, Any] | None = None
    children: list[dict[str, Any]] = field(default_factory=list)
    """Of a ladder."""

    def take(self, answer: Answer) -> Command | None:
        """The command, or None where it was one of our children."""
        name = next((word.rpartition("/")[2] for word in answer.argv if word.endswith(".py")), "")
        if name == "ask_torch.py":
            self.torch = {"out": list(answers(answer.out)), "err": answer.err, "status": answer.status}
        elif name == "__main__.py" and (ask := question(answer.argv)):
            err = answer.err[-_MOST_OF_STDERR:]
            said = {"ask": ask, "out": list(answers(answer.out)), "err": err, "status": answer.status}
            self.children.append(said)
        elif name in ("ask_names.py", "ask_nccl.py"):
            return None  # they say nothing but addresses
        elif name in _LIBRARIES:
            section = _LIBRARIES[name]
            setattr(self, section, _told(answer, getattr(self, section)))
        else:
            hangs = answer.status is None
            return Command(answer.argv, answer.status or 0, answer.out, answer.err, hangs)
        return None


def _told(answer: Answer, before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A section of a native library from its child's lines; a later child adds to what an earlier one told."""
    section: dict[str, Any] = {"system": {}, "gpus": [], "faults": [], **(before or {})}
    asked: Mapping[str, Any] | None = None
    loaded = False
    for entry in answers(answer.out):
        call, gpu = entry.get("call"), entry.get("gpu")
        if "ask" in entry:
            asked = entry
            continue
        if not isinstance(call, str) or not isinstance(gpu, (int, type(None))):
            continue
        if call == "library":
            loaded = loaded or "is" in entry
            section.update({"library": entry["is"]} if "is" in entry else {})
            continue
        said = entry["is"] if "is" in entry else {key: entry[key] for key in ("code", "text") if key in entry}
        asked = None
        if call == "nvmlInit":
            failed = said if isinstance(said, dict) else {"code": 0}
            section.update({"init": failed["code"], "init_text": str(failed.get("text", ""))})
        elif answer.argv[-1] == "unmasked":  # the same calls, once more without CUDA_VISIBLE_DEVICES
            section["unmasked"] = {**section.get("unmasked", {}), call: said}
        else:
            _calls(section, gpu)[call] = said
    if not loaded and not before:
        return None
    if asked and (answer.status is None or answer.status < 0):
        call, gpu = str(asked["ask"]), asked.get("gpu")
        fault = {"call": call.partition("(")[0], "gpu": gpu, "do": "crash" if answer.status else "hang"}
        _calls(section, gpu).setdefault(call, {"code": _UNKNOWN_ERROR})  # the place where it fails
        section["faults"] = [*section["faults"], {key: value for key, value in fault.items() if value is not None}]
    return section


def _calls(section: dict[str, Any], gpu: int | None) -> dict[str, Any]:
    if gpu is None:
        return section["system"]  # type: ignore[no-any-return]
    section["gpus"] += [{} for _ in range(gpu + 1 - len(section["gpus"]))]
    return section["gpus"][gpu]  # type: ignore[no-any-return]

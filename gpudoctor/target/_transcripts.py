"""What our own child programs would have printed on a recorded machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.target import error_words
from gpudoctor.target.protocol import MARK
from gpudoctor.target.record import Command, Record

_NOT_SUPPORTED = 3


def transcript(record: Record, argv: Sequence[str]) -> Command | None:
    """The answer of the child in `argv`; None where it runs none of our children."""
    name = next((word.rpartition("/")[2] for word in argv if word.endswith(".py")), "")
    if name == "ask_torch.py":
        return _torch(record, argv)
    if name == "ask_nvml.py":
        return _library(record.nvml, argv, "nvmlInit", "libnvidia-ml.so.1")
    if name == "__main__.py" and (ask := question(argv)):
        return _kernels(record, argv, ask)
    if name == "ask_cuda.py":
        return _library(record.cuda, argv, "cuInit", "libcuda.so.1")
    return None


def _torch(record: Record, argv: Sequence[str]) -> Command:
    said = record.torch_child
    if said is None:
        return Command(tuple(argv), out=_line({"step": "start"}) + _line({"missing": True}))
    out = "".join(_line(entry) for entry in said.get("out", ()))
    status = said.get("status", 0)
    return Command(tuple(argv), status or 0, out, str(said.get("err", "")), status is None)


def question(argv: Sequence[str]) -> Mapping[str, Any] | None:
    """What a child of a ladder was asked, whatever its program is called there; None where it is another program."""
    try:
        asked = json.loads(argv[-1])
    except ValueError:
        return None
    return asked if isinstance(asked, dict) and "family" in asked else None


_ASKED = ("family", "device", "kernels")


def _kernels(record: Record, argv: Sequence[str], ask: Mapping[str, Any]) -> Command:
    """The child that was asked the same; a kernel that the record knows nothing of was not run."""
    for child in (record.kernels or {}).get("children") or ():
        asked = child.get("ask") or {}
        if all(asked.get(key) == ask.get(key) for key in _ASKED):
            out = "".join(_line(entry) for entry in child.get("out") or () if isinstance(entry, dict))
            status = child.get("status")
            return Command(tuple(argv), status or 0, out, str(child.get("err", "")), status is None)
    return Command(tuple(argv), out=_line({"closed": "the record has no answer to this", "failed": False}))


def _library(section: Mapping[str, Any] | None, argv: Sequence[str], init: str, library: str) -> Command:
    lines: list[str] = [_line({"ask": "library", "gpu": None})]
    if section is None:
        text = f"{library}: cannot open shared object file: No such file or directory"
        lines.append(_line({"gpu": None, "call": "library", "text": text, "code": None}))
        return Command(tuple(argv), out="".join(lines))
    lines.append(_line({"gpu": None, "call": "library", "is": section.get("library", library)}))
    faults = [fault for fault in section.get("faults") or () if not str(fault["do"]).startswith("sleep")]
    left_out = _left_out(argv[-1])
    if argv[-1] == "unmasked" and "unmasked" in section:
        section = {**section, "system": section["unmasked"], "gpus": ()}
    for gpu, call, told in _answers(section, init):
        if not left_out.isdisjoint({(gpu, call), (gpu, "*"), (None, call.partition("(")[0])}):
            continue
        fault = _fault(faults, gpu, call)
        if isinstance(fault, str):
            lines.append(_line({"ask": call, "gpu": gpu}))
            return Command(tuple(argv), -11, "".join(lines), hangs=fault != "crash")
        answer = told if fault is None else {"code": fault}
        if isinstance(answer, Mapping) and "code" in answer and answer.keys() <= {"code", "text"}:
            if answer["code"] != _NOT_SUPPORTED:
                named = error_words.NVML.get(answer["code"]) if init == "nvmlInit" else None
                words = answer.get("text", named or f"code {answer['code']}")
                lines.append(_line({"gpu": gpu, "call": call, "code": answer["code"], "text": words}))
            if call == init and answer["code"]:
                lines += [_line({"done": True})] if init == "cuInit" else []  # NVML's child just ends
                return Command(tuple(argv), out="".join(lines))
        else:
            lines.append(_line({"gpu": gpu, "call": call, "is": answer}))
    lines.append(_line({"done": True}))
    return Command(tuple(argv), out="".join(lines))


def _answers(section: Mapping[str, Any], init: str) -> Iterator[tuple[int | None, str, Any]]:
    code = section.get("init", 0)
    words = {"text": section["init_text"]} if section.get("init_text") else {}
    system, every = section.get("system") or {}, section.get("every") or {}  # null is as good as nothing
    if init not in system:
        yield None, init, {"code": code, **words} if code else None
    for call, answer in system.items():
        yield None, call, answer
    for index, own in enumerate(section.get("gpus") or ()):
        for call, answer in {**every, **own}.items():
            if answer is not None:
                yield index, call, answer


def _left_out(word: str) -> set[tuple[int | None, str]]:
    """Calls that the child is told not to make, for an earlier one did not survive them."""
    try:
        options = json.loads(word)
    except ValueError:
        return set()
    return {(gpu, call) for gpu, call in options.get("left_out", ())} if isinstance(options, dict) else set()


def _fault(faults: Sequence[Mapping[str, Any]], gpu: int | None, call: str) -> str | int | None:
    bare = call.partition("(")[0]
    for fault in faults:
        if fault.get("gpu") in (None, gpu) and fault["call"] in ("*", bare) and fault.get("from", 1) == 1:
            do = fault["do"]
            return do if isinstance(do, (int, str)) else None
    return None


def _line(entry: Mapping[str, Any]) -> str:
    return f"{MARK}{json.dumps(entry)}\n"

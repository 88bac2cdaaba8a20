"""The target's own libnccl, asked in a child process where it would let the ranks of a job meet.

No GPU and no driver is needed: `ncclGetUniqueId` only chooses an interface and listens on it. The library is loaded
alone, not by torch; it takes some 20 ms, of which most are the interpreter's start.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._child import script
from gpudoctor.probes._libraries.copies import copies
from gpudoctor.probes._python.site import Site, site_of
from gpudoctor.probes._python.torch_load import loaded_torch
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import answers, patience, printable, text_rows

FACTS = (
    fact("libnccl.path", "text", "the libnccl.so.2 that torch in the target interpreter would load, else the first"),
    fact("libnccl.state", "text", "ok, or how far it comes: unusable, failed, hung, crashed; absent without libnccl"),
    fact("libnccl.version", "version", "its version, by its own word, such as 2.27.5"),
    fact("libnccl.interface", "text", "network interface that it chooses for the ranks to meet, such as eth0"),
    fact("libnccl.address", "text", "address on it that it announces to the other ranks"),
    fact("libnccl.error", "text", "its words, where it finds no place to meet; absent where it does"),
)

LEVEL = "standard"
TIMEOUT = patience("GPUDOCTOR_NCCL_TIMEOUT", 5.0)
"""Seconds for the child: resolving NCCL_COMM_ID may ask a name server that does not answer."""
DEADLINE = TIMEOUT + 1.5

_USING = re.compile(r"Bootstrap ?: ?Using (?P<interface>[^\s:]+):(?P<address>\[?[0-9a-f.:]+\]?)(?:%\w+)?<\d+>")
_NAMES = tuple(spec.name for spec in FACTS)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """What the child told; all facts are absent where the target has no libnccl."""
    path = _library(target)
    if not isinstance(path, str):
        yield from ((name, path) for name in _NAMES)
        return
    yield "libnccl.path", Known(path, path)
    try:
        answer = _ask(target, path)
    except OSError as error:
        why = Unread(f"the child that asks libnccl could not be started: {error.strerror or error}")
        yield from ((name, why) for name in _NAMES[1:])
        return
    yield from _told(answer, path)


def _library(target: Target) -> str | Absent | Unread:
    """What torch would load; without torch, the environment's own copy, then the loader's."""
    loader = loaded_torch(target)
    taken = loader.loaded.get("libnccl.so.2")
    if taken:
        return taken.path
    site = site_of(target)
    found = [one for one in copies(target, loader, site if isinstance(site, Site) else None) if one.name == "libnccl"]
    if found:
        return found[0].path
    return Unread(site.why) if isinstance(site, Unread) else Absent("no libnccl.so.2 here")


def _ask(target: Target, path: str) -> Answer:
    """In the target's interpreter; NCCL's own log is asked for, whatever the session wants of it. Raises `OSError`."""
    env = {name: value for name, value in target.environ.items() if not name.startswith("NCCL_DEBUG")}
    env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET", "NCCL_DEBUG_FILE": ""}
    return target.run(
        [target.python or sys.executable, "-I", "-S", *script("ask_nccl.py"), path], timeout=TIMEOUT, env=env
    )


def _told(answer: Answer, path: str) -> Iterator[tuple[str, Fact | Rows]]:
    entries = list(answers(answer.out))
    said = {str(entry.get("call")): entry for entry in entries if "call" in entry}
    if not entries:
        why = Unread(f"the child that asks libnccl did not start: {printable(_last(answer))}")
        yield from ((name, why) for name in _NAMES[1:])
        return
    using = _USING.search(answer.err)
    state = _state(answer, said)
    yield "libnccl.state", Known(state, path)
    yield "libnccl.version", _version(said.get("ncclGetVersion", {}).get("is"), state, path)
    met = said.get("ncclGetUniqueId", {}).get("is") is True
    for part in ("interface", "address"):
        spoken = Known(using[part].strip("[]"), f"{path}, NCCL_DEBUG=INFO") if using and met else None
        yield f"libnccl.{part}", spoken or Unread(_error(answer, said) or "this release does not print it")
    words = _error(answer, said)
    yield "libnccl.error", Known(words, path) if words else Absent("it found a place to meet")
    if words:
        yield "text", text_rows("\n".join(line for line in answer.err.splitlines() if "NCCL WARN" in line), "libnccl")


def _state(answer: Answer, said: dict[str, dict[str, object]]) -> str:
    if "is" not in said.get("library", {"is": None}):
        return "unusable"
    if answer.status is None:
        return "hung"
    if answer.status != 0:
        return "crashed"
    return "ok" if said.get("ncclGetUniqueId", {}).get("is") is True else "failed"


def _error(answer: Answer, said: dict[str, dict[str, object]]) -> str:
    """NCCL's last warning, else the failed call's own words, else how the child ended; empty where nothing failed."""
    failed = next((entry for entry in said.values() if "code" in entry), None)
    if failed:
        return printable(failed.get("text") or failed.get("name") or f"code {failed['code']}")
    return "" if answer.ok else printable(f"the child that asks libnccl was {answer.how}")


def _version(number: object, state: str, path: str) -> Fact:
    """22705 is 2.27.5; up to 2.8 the numbers had one digit less (2804 is 2.8.4)."""
    if not isinstance(number, int) or number <= 0:
        return Unread(f"libnccl is {state}")
    major = 10000 if number >= 10000 else 1000
    return Known(f"{number // major}.{number % major // 100}.{number % 100}", path)


def _last(answer: Answer) -> str:
    return (answer.err.strip().splitlines() or [answer.how])[-1]

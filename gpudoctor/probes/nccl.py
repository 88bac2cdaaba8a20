"""The target's own libnccl, asked in a child process where it would let the ranks of a job meet.

No GPU and no driver is needed: `ncclGetUniqueId` only chooses an interface and listens on it. The library is loaded
alone, not by torch; it takes some 20 ms, of which most are the interpreter's start.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.versions import NCCL_WIDE, numbered
from gpudoctor.probes._loader import library_copies
from gpudoctor.probes._reading import as_unread
from gpudoctor.probes._site import Site, site_of
from gpudoctor.probes._torch_files import loaded_torch
from gpudoctor.probes.children import script
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import answers, patience, printable, text_rows

ONLY = "linux"
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
    """Yields the ``libnccl`` facts, by a child that calls libnccl; absent if the target has none."""
    path = _library_path(target)
    if not isinstance(path, str):
        yield from ((name, path) for name in _NAMES)
        return
    yield "libnccl.path", Known(path, path)
    try:
        answer = _run_child(target, path)
    except OSError as error:
        why = Unread(f"the child that asks libnccl could not be started: {error.strerror or error}")
        yield from ((name, why) for name in _NAMES[1:])
        return
    yield from _answer_facts(answer, path)


def _library_path(target: Target) -> str | Absent | Unread:
    """Path of the libnccl that torch would load; without torch, the environment's copy, else the loader's.

    Absent if there is none; unread if there is none and the environment is unread.
    """
    loader = loaded_torch(target)
    taken = loader.loaded.get("libnccl.so.2")
    if taken:
        return taken.path
    site = site_of(target)
    found = [
        copy
        for copy in library_copies(target, loader, site if isinstance(site, Site) else None)
        if copy.name == "libnccl"
    ]
    if found:
        return found[0].path
    return as_unread(site) if isinstance(site, Unread) else Absent("no libnccl.so.2 here")


def _run_child(target: Target, path: str) -> Answer:
    """Run ask_nccl.py for the library at `path`, with NCCL's own log on stderr; raises `OSError`."""
    env = {name: value for name, value in target.environ.items() if not name.startswith("NCCL_DEBUG")}
    env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET", "NCCL_DEBUG_FILE": ""}
    return target.run(
        [target.python or sys.executable, "-I", "-S", *script("ask_nccl.py"), path], timeout=TIMEOUT, env=env
    )


def _answer_facts(answer: Answer, path: str) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``libnccl`` facts but the path, and ``text`` on an error, from the child's output and stderr.

    All unread if the child did not start; interface and address if NCCL does not print them.
    """
    entries = list(answers(answer.out))
    by_call = {str(entry.get("call")): entry for entry in entries if "call" in entry}
    if not entries:
        why = Unread(f"the child that asks libnccl did not start: {printable(answer.complaint or answer.how)}")
        yield from ((name, why) for name in _NAMES[1:])
        return
    using = _USING.search(answer.err)
    state = _state(answer, by_call)
    yield "libnccl.state", Known(state, path)
    yield "libnccl.version", _version_fact(by_call.get("ncclGetVersion", {}).get("is"), state, path)
    has_unique_id = by_call.get("ncclGetUniqueId", {}).get("is") is True
    for part in ("interface", "address"):
        announced = Known(using[part].strip("[]"), f"{path}, NCCL_DEBUG=INFO") if using and has_unique_id else None
        yield (
            f"libnccl.{part}",
            announced or Unread(_error_message(answer, by_call) or "this release does not print it"),
        )
    error = _error_message(answer, by_call)
    yield "libnccl.error", Known(error, path) if error else Absent("it found a place to meet")
    if error:
        yield "text", text_rows("\n".join(line for line in answer.err.splitlines() if "NCCL WARN" in line), "libnccl")


def _state(answer: Answer, by_call: dict[str, dict[str, object]]) -> str:
    """The value of `libnccl.state`: ok, unusable, failed, hung or crashed."""
    if "is" not in by_call.get("library", {"is": None}):
        return "unusable"
    if answer.status is None:
        return "hung"
    if answer.status != 0:
        return "crashed"
    return "ok" if by_call.get("ncclGetUniqueId", {}).get("is") is True else "failed"


def _error_message(answer: Answer, by_call: dict[str, dict[str, object]]) -> str:
    """Why the first call that failed did so, in NCCL's words (in the loader's, where libnccl cannot be loaded), else
    how the child was ended; empty if nothing failed.

    `by_call` has the child's answers by name of the call.
    """
    failed = next((entry for entry in by_call.values() if "code" in entry), None)
    if failed:
        return printable(failed.get("text") or failed.get("name") or f"code {failed['code']}")
    return "" if answer.ok else printable(f"the child that asks libnccl did not answer: {answer.how}")


def _version_fact(number: object, state: str, path: str) -> Fact:
    """The version number as text, 22705 as 2.27.5, up to 2.8 with a digit less (2804: 2.8.4); unread without one."""
    if not isinstance(number, int) or number <= 0:
        return Unread(f"libnccl is {state}")
    return Known(numbered(number, NCCL_WIDE), path)

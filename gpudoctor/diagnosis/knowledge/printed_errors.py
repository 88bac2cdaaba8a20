"""What errors print: numbers (Xid and SXid of the kernel log, codes of NVML and CUDA), and symbols that are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge
from gpudoctor.diagnosis.knowledge._tables import TableRow, lookup, table, text


def code_number(value: object, what: str) -> int:
    """An error code given as number or text, as int; raises `CannotJudge` for anything else."""
    written = text(value, what)
    if not written.isascii() or not written.isdigit() or len(written) > 9:
        raise CannotJudge(what, f"{written[:40]!r} is no code")
    return int(written)


@lru_cache(maxsize=8)
def _rows_by_code(group: str) -> Mapping[int, TableRow]:
    """Rows by error code of that group of the tables: ``xid``, ``sxid``, ``nvml``, ``cuda`` or ``nccl``; cached."""
    return {row["code"]: row for row in table("xid" if "xid" in group else "codes")[group]}


_MISSING = {
    "xid": ("Xid", "NVIDIA's catalogue does not describe it"),
    "sxid": ("SXid", "the fabric manager's guide does not describe it"),
}


def _row(group: str, code: object) -> TableRow:
    """The row of that code in the group ``xid``, ``sxid``, ``nvml`` or ``cuda``; raises `CannotJudge` without one."""
    what, why = _MISSING.get(group, (f"{group} code", "the table does not know it"))
    wanted = code_number(code, what)
    row = _rows_by_code(group).get(wanted)
    if row is None:
        raise CannotJudge(f"{what} {wanted}", why)
    return row


@lookup
def xid_name(code: object) -> str:
    """What the Xid is about, in NVIDIA's words: ``GPU has fallen off the bus`` for 79; `CannotJudge` if unknown."""
    row = _row("xid", code)
    return str(row.get("meaning") or row["name"])


@lookup
def xid_class(code: object) -> str:
    """memory, nvlink, bus, app, driver, hardware, consequence (follows another Xid) or other (unknown Xids too)."""
    row = _rows_by_code("xid").get(code_number(code, "Xid"))
    return str(row["class"]) if row else "other"


@lookup
def xid_action(code: object) -> str:
    """What NVIDIA's catalogue says to do at once on that Xid, in plain words; `CannotJudge` if it says nothing."""
    row = _row("xid", code)
    actions = {action["name"]: str(action["text"]) for action in table("xid")["action"]}
    if row.get("action") not in actions:
        raise CannotJudge(f"Xid {row['code']}", "NVIDIA's catalogue names no action")
    return actions[row["action"]]


@lookup
def xid_fatal(code: object) -> bool:
    """Whether the Xid is the GPU's own fault and needs more than a restart of the program, by NVIDIA's catalogue.

    False for what a program does wrong (13, 31), for consequences (45, 154), for events that only inform (63, 92) and
    contained errors (94). The catalogue names no action for its newest codes; there the table says it by itself. Raises
    `CannotJudge` for an Xid that it does not have.
    """
    row = _row("xid", code)
    if row["class"] in ("app", "consequence"):
        return False
    return bool(row.get("fatal", row.get("action") in _GPU_ACTIONS))


_GPU_ACTIONS = (
    "RESET_GPU",
    "RESTART_BM",
    "RESTART_VM",
    "CONTACT_SUPPORT",
    "CHECK_MECHANICALS",
    "UPDATE_SWFW",
    "WORKFLOW_XID_48",
    "WORKFLOW_NVLINK_ERR",
    "WORKFLOW_NVLINK5_ERR",
)


@lookup
def sxid_name(code: object) -> str:
    """What the NVSwitch error (SXid) is about: ``Minion Halt`` for 22003; raises `CannotJudge` if unknown."""
    return str(_row("sxid", code)["name"])


@lookup
def sxid_fatal(code: object) -> str:
    """Whether the NVSwitch error is fatal: ``no``, ``may be`` (to the GPUs behind it) or ``always`` (to the fabric).

    Raises `CannotJudge` if unknown.
    """
    return str(_row("sxid", code)["fatal"])


@lookup
def nvml_name(code: object) -> str:
    """NVML's name of its return code: ``NVML_ERROR_GPU_IS_LOST`` for 15; raises `CannotJudge` if unknown."""
    return str(_row("nvml", code)["name"])


@lookup
def nvml_says(code: object) -> object:
    """What an NVML return code means in practice; absent where its name says it all, `CannotJudge` where unknown."""
    return _row("nvml", code).get("means", NOTHING)


@lookup
def cuda_error_name(code: object) -> str:
    """The CUDA runtime's name of an error: ``cudaErrorSystemNotReady`` for 802; raises `CannotJudge` if unknown."""
    return str(_row("cuda", code)["name"])


@lookup
def cuda_error_says(code: object) -> object:
    """What a CUDA error means in practice; absent where its name says it all, `CannotJudge` where unknown."""
    return _row("cuda", code).get("means", NOTHING)


# ---- Symbols ----
# Their library, the release that brought or dropped them, the C++ ABI they want.

_NEW_ABI = pattern(r"7__cxx11|B5cxx11")
_SKIPPED = pattern(r"S[0-9A-Z]*_|L[a-z]n?\d+E|(\d+)")
_ABI_SAYS = {
    "cxx11": "it wants a torch with the C++11 ABI (wheels from 2.7 on, and 2.6 for CUDA 12.6)",
    "pre-cxx11": "it wants a torch with the old C++ ABI (wheels up to 2.6, but not 2.6 for CUDA 12.6)",
}


@lookup
def symbol_says(symbol: object) -> str:
    """In words what the missing symbol tells: which releases have it, which C++ ABI it wants, whose it is.

    Raises `CannotJudge` where the table does not know it.
    """
    written = _bare_symbol(symbol)
    words = [row["says"].format_map(match.groupdict()) for row, match in _matching_symbols(written)]
    if not words:
        raise CannotJudge(f"symbol {written[:60]}", "the table does not know it")
    words.insert(-1, _ABI_SAYS.get(_abi_of(written), ""))
    return "; ".join(word for word in words if word)


@lookup
def symbol_library(symbol: object) -> str:
    """The library that should define the symbol: torch, libnccl, libcublas, ...; raises `CannotJudge` if unknown."""
    written = _bare_symbol(symbol)
    for row, _ in _matching_symbols(written):
        if "library" in row:
            return str(row["library"])
    raise CannotJudge(f"symbol {written[:60]}", "the table does not know it")


@lookup
def symbol_abi(symbol: object) -> str:
    """The C++ ABI that a mangled name wants: ``cxx11``, ``pre-cxx11``, or ``any`` where it has no strings in it."""
    return _abi_of(_bare_symbol(symbol))


def _matching_symbols(symbol: str) -> Iterator[tuple[TableRow, re.Match[str]]]:
    """Rows of the symbol table whose pattern is found in the symbol, with the match."""
    for row in table("symbols")["symbol"]:
        if match := re.search(row["match"], symbol):
            yield row, match


def _bare_symbol(symbol: object) -> str:
    """The symbol alone: without quotes, version (``@GLIBC_2.34``) and text behind it; raises `CannotJudge` for none."""
    words = text(symbol, "symbol").strip("'\"`,;:()").split()
    if not words:
        raise CannotJudge("symbol", "there is none")
    return words[0].rstrip(",.").partition("@")[0][:1000]


def _abi_of(symbol: str) -> str:
    """The C++ ABI of a mangled name: ``cxx11``, ``pre-cxx11``, or ``any`` without strings in it."""
    if not symbol.startswith("_Z"):
        return "any"
    if _NEW_ABI.search(symbol):
        return "cxx11"
    return "pre-cxx11" if "Ss" in _without_identifiers(symbol) else "any"


def _without_identifiers(symbol: str) -> str:
    """A mangled symbol (``_Z...``) without length-prefixed names and substitutions: its types and operators."""
    kept, place = [], 2
    while place < len(symbol):
        if skipped := _SKIPPED.match(symbol, place):
            place = skipped.end() + int(skipped[1] or 0)
        else:
            kept.append(symbol[place])
            place += 1
    return "".join(kept)

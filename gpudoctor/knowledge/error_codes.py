"""Numbers that stand for errors: Xid and SXid of the kernel log, return codes of NVML and of the CUDA runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gpudoctor.knowledge._tables import TableRow, lookup, table, text
from gpudoctor.model.values import NOTHING, CannotJudge


def number(value: object, what: str) -> int:
    """A code given as number or text; raises `CannotJudge`."""
    written = text(value, what)
    if not written.isascii() or not written.isdigit() or len(written) > 9:
        raise CannotJudge(what, f"{written[:40]!r} is no code")
    return int(written)


@lru_cache(maxsize=8)
def _codes(group: str) -> Mapping[int, TableRow]:
    return {row["code"]: row for row in table("xid" if "xid" in group else "codes")[group]}


def _row(code: object) -> TableRow:
    wanted = number(code, "Xid")
    row = _codes("xid").get(wanted)
    if row is None:
        raise CannotJudge(f"Xid {wanted}", "NVIDIA's catalogue does not describe it")
    return row


@lookup
def xid_name(code: object) -> str:
    """What the Xid is about, in NVIDIA's words: ``GPU has fallen off the bus`` for 79."""
    row = _row(code)
    return str(row.get("meaning") or row["name"])


@lookup
def xid_class(code: object) -> str:
    """memory, nvlink, bus, app, driver, hardware, consequence (follows another Xid) or other (unknown codes too)."""
    row = _codes("xid").get(number(code, "Xid"))
    return str(row["class"]) if row else "other"


@lookup
def xid_action(code: object) -> str:
    """What NVIDIA's catalogue says to do at once, in plain words."""
    row = _row(code)
    actions = {action["name"]: str(action["text"]) for action in table("xid")["action"]}
    if row.get("action") not in actions:
        raise CannotJudge(f"Xid {row['code']}", "NVIDIA's catalogue names no action")
    return actions[row["action"]]


@lookup
def xid_fatal(code: object) -> bool:
    """Whether the Xid is the GPU's own fault and needs more than a restart of the program, by NVIDIA's catalogue.

    False for what a program does wrong (13, 31), for consequences (45, 154), for events that only inform (63, 92) and
    contained errors (94). The catalogue names no action for its newest codes; there the table says it by itself.
    """
    row = _row(code)
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
    """What the NVSwitch error is about: ``Minion Halt`` for 22003."""
    return str(_switch(code)["name"])


@lookup
def sxid_fatal(code: object) -> str:
    """Whether the NVSwitch error is fatal: ``no``, ``may be`` (to the GPUs behind it) or ``always`` (to the fabric)."""
    return str(_switch(code)["fatal"])


def _switch(code: object) -> TableRow:
    wanted = number(code, "SXid")
    row = _codes("sxid").get(wanted)
    if row is None:
        raise CannotJudge(f"SXid {wanted}", "the fabric manager's guide does not describe it")
    return row


@lookup
def nvml_name(code: object) -> str:
    """NVML's name of its return code: ``NVML_ERROR_GPU_IS_LOST`` for 15."""
    return str(_returned("nvml", code)["name"])


@lookup
def nvml_says(code: object) -> object:
    """What an NVML return code means in practice; absent where its name says it all."""
    return _returned("nvml", code).get("means", NOTHING)


@lookup
def cuda_error_name(code: object) -> str:
    """The CUDA runtime's name of an error: ``cudaErrorSystemNotReady`` for 802."""
    return str(_returned("cuda", code)["name"])


@lookup
def cuda_error_says(code: object) -> object:
    """What a CUDA error means in practice; absent where its name says it all."""
    return _returned("cuda", code).get("means", NOTHING)


def _returned(group: str, code: object) -> TableRow:
    wanted = number(code, f"{group} code")
    row = _codes(group).get(wanted)
    if row is None:
        raise CannotJudge(f"{group} code {wanted}", "the table does not know it")
    return row

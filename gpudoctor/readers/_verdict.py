"""Whether people's words say that a thing is there and works: ``fine``, ``not there``, ``lists both GPUs``."""

from __future__ import annotations

from gpudoctor.readers._pattern import Pattern

_BAD = Pattern(
    r"\b(?:not|cannot|can.?t|won.?t|isn.?t|doesn.?t|does ?n.t|didn.?t|wasn.?t|fails?|failed|failing|failure"
    r"|errors?|refus\w+|reject\w+"
    r"|no longer|unable|never|broken|inactive|dead|down|stopped|absent|missing|gone|empty|nothing|none|disabled"
    r"|off|false"
    r"|masked|unloaded|skipped|hangs?|crash\w*|mismatch\w*|denied|unavailable|zero|lacking|removed|uninstalled"
    r"|without)\b|^\W*no\b",
    2,
)
_GOOD = Pattern(
    r"\b(?:works?|worked|working|ok|okay|fine|good|healthy|normal|loads?|loaded|running|active|present|there"
    r"|yes|true|on|enabled"
    r"|installed|built|lists?|listed|shows?|shown|sees?|succeeds?|success\w*|passes|passed|detected"
    r"|recogni[sz]ed|visible"
    r"|available|correct\w*|fixed|all (?:\w+ )?gpus?)\b",
    2,
)
_NO_FAULT = Pattern(r"\b(?:no|without(?: any)?|zero|not any) (?:errors?|problems?|issues?|faults?|failures?)\b", 2)


_PAST = Pattern(
    r"^\W*(?:earlier|previous\w*|formerly|yesterday|last (?:week|night|month|time)|in the past|at first|once"
    r"|(?:it )?used to)"
    r"\b[^:\n]{0,30}:",
    2,
)


_GONE = Pattern(
    r"(?:mismatch|error|nvml|driver|xid)\b[^\n]{0,12}\b(?:is |are |was |has |have )?(?:now |since )?"
    r"(?:gone|resolved|fixed|solved|disappear\w*|went away|cured|no longer (?:there|shown|seen|appears))\b",
    2,
)


def past(line: str) -> bool:
    """Whether the line says of itself that it tells of another time."""
    return bool(_PAST.match(line) or _GONE.search(line))


def verdict(text: str) -> bool | None:
    """True for well, False for not, None where the words do not tell. A denial anywhere counts more than praise."""
    if _NO_FAULT.search(text):
        return True
    if _BAD.search(text):
        return False
    return True if _GOOD.search(text) else None

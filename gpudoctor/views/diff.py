"""What differs between two machines or moments, for a person: the cause in the first lines, the noise in the last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gpudoctor.model.difference import Change, Difference, OneSided
from gpudoctor.model.fact import Absent, Fact, Known, Unread, Value
from gpudoctor.views._since import sentence
from gpudoctor.views._terminal import Style, one_line, value, wrapped

_COLOURS = {"error": "red", "warning": "yellow", "info": "green"}
_MOST = 8
"""Facts shown under a finding."""
_MOST_IN_LAYER = 20
_MOST_NAMES = 12
_LONGEST_NAME = 28


def render(difference: Difference, names: tuple[str, str], style: Style | None = None) -> str:
    """The whole text, ending without a newline; `names` are what A and B were called on the command line."""
    style = style or Style()
    blocks = ["\n".join(_findings(difference, names, style))]
    if difference.both:
        blocks.append("\n".join(wrapped(f"Found on both: {', '.join(difference.both)}", hang=2)))
    if difference.packages:
        blocks.append("\n".join(_packages(difference, style)))
    if difference.layers:
        blocks.append("\n".join(_facts(difference, style)))
    blocks.append("\n".join(_folded(difference)))
    return "\n\n".join(block for block in blocks if block)


def document(difference: Difference) -> str:
    """The same as JSON, on one line."""
    return json.dumps(difference.to_json(), ensure_ascii=True, separators=(",", ":"))


def _findings(difference: Difference, names: tuple[str, str], style: Style) -> Iterator[str]:
    """A and B in a line, and at once what one has and the other has not."""
    sides = zip("AB", names, (difference.a, difference.b), strict=True)
    yield "gpudoctor diff: " + ", ".join(
        f"{side} = {_short(name)} ({diagnosis.verdict})" for side, name, diagnosis in sides
    )
    if difference.equal:
        yield "Nothing differs" + (" but what always does." if difference.moving else ".")
    elif not difference.findings:
        yield "Both have the same findings" + ("; facts differ." if difference.layers else ".")
    grave = [item for item in difference.findings if item.finding.severity != "info"]
    shown = groupby(grave or difference.findings, key=lambda item: (item.side, item.finding.id, item.finding.severity))
    for number, (_, same) in enumerate(shown):
        if number:
            yield ""
        yield from _finding(list(same), style)
    for side in "AB" if grave else "":
        ids = [item.finding.id for item in difference.findings if item.side == side and item not in grave]
        if ids:
            yield from ("", *wrapped(f"Only on {side}, for information: {', '.join(dict.fromkeys(ids))}", hang=2))


def _finding(same: list[OneSided], style: Style) -> Iterator[str]:
    """One finding, or the same one about several GPUs, with the facts that differ."""
    first = same[0]
    finding = first.finding
    guess = "possibly " if finding.confidence == "possible" else ""
    head = f"Only on {first.side}: {finding.severity.upper()}  {finding.id}: "
    lines = wrapped(f"{head}{guess}{finding.title}", hang=4)
    yield style.paint(lines[0], "bold", _COLOURS[finding.severity])
    yield from lines[1:]
    for other in same[1:]:
        yield from wrapped(f"also: {other.finding.title}", 4, 6)
    if finding.severity == "info":
        return
    changes = list({change.name: change for item in same for change in item.changes}.values())
    yield from _changes(changes, _MOST, _proof)
    other_side = "A" if first.side == "B" else "B"
    yield from wrapped(f"On {other_side}: {first.other}.", 4, 6)


def _packages(difference: Difference, style: Style) -> Iterator[str]:
    yield style.paint("Packages exchanged between A and B, the newest first", "bold")
    for one in difference.packages[:_MOST_IN_LAYER]:
        yield from wrapped(sentence(one), 4, 8)
    if (more := len(difference.packages) - _MOST_IN_LAYER) > 0:
        yield f"    and {more} more; --json lists them"


def _facts(difference: Difference, style: Style) -> Iterator[str]:
    yield style.paint("What else differs (A -> B)", "bold")
    for layer, changes in difference.layers.items():
        yield f"  {layer}"
        yield from _changes(changes, _MOST_IN_LAYER, _brief)


def _changes(changes: Sequence[Change], most: int, say: Callable[[Change], str]) -> Iterator[str]:
    """A line for each; one for all rows of a group in which the same changed in the same way."""
    lines: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        text = say(change)
        alone = change.row if change.fact == "text" else ""
        lines.setdefault((change.fact, text, alone), []).append(change)
    for (_, text, _), same in list(lines.items())[:most]:
        name = same[0].name if len(same) == 1 else _several(same)
        yield from wrapped(f"{text}: {same[0].row}" if same[0].fact == "text" else f"{name}: {text}", 4, 8)
    if len(lines) > most:
        yield f"    and {len(lines) - most} more; --json lists them"


def _several(changes: Sequence[Change]) -> str:
    """``gpu[0-7].vbios``, ``pci[0000:3b:00.0,0000:5e:00.0].name``."""
    rows = [change.row for change in changes]
    first = int(rows[0]) if rows[0].isdecimal() else -1
    if rows == [str(first + place) for place in range(len(rows))]:
        return Change(changes[0].fact, f"{rows[0]}-{rows[-1]}", None, None).name
    more = f" and {len(rows) - _MOST} more" if len(rows) > _MOST else ""
    return Change(changes[0].fact, ",".join(rows[:_MOST]) + more, None, None).name


def _brief(change: Change) -> str:
    """Both values."""
    a, b = change.a, change.b
    if a is None or b is None:
        return f"only on {'B' if a is None else 'A'}{_row(b or a)}"
    if isinstance(a, Known) and isinstance(b, Known) and (said := _lists(a.value, b.value)):
        return said
    return " -> ".join((value(state) or "empty") if isinstance(state, Known) else "none" for state in (a, b))


def _proof(change: Change) -> str:
    """Both values, and where they were read."""
    a, b = change.a, change.b
    if a is None or b is None or (isinstance(a, Known) and isinstance(b, Known)):
        where = [(side, state.source) for side, state in (("A", a), ("B", b)) if isinstance(state, Known)]
        alike = len({source for _, source in where}) == 1
        told = where[0][1] if alike else "; ".join(f"{side}: {source}" for side, source in where)
        return f"{_brief(change)}  ({told})"
    return f"{_state(a, 'A')} -> {_state(b, 'B')}"


def _lists(a: Value, b: Value) -> str:
    """Of two lists, what one has and the other has not; empty for anything else, and where only the order differs."""
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        return ""
    gone, new = [item for item in a if item not in b], [item for item in b if item not in a]
    if not a or not b or not (gone or new):
        return ""
    parts = [("only on A", gone), ("only on B", new)]
    return "; ".join(f"{side} {value(Known(tuple(items), ''))}" for side, items in parts if items)


def _row(state: Fact | None) -> str:
    """What a row says beside its name."""
    if not isinstance(state, Known) or not isinstance(state.value, Mapping) or not state.value:
        return ""
    columns = (f"{name} {value(Known(item, ''))}" for name, item in list(state.value.items())[:4])
    return f" ({', '.join(columns)})"


def _state(state: Fact, side: str) -> str:
    if isinstance(state, Known):
        return f"{value(state) or 'empty'} ({state.source})"
    if isinstance(state, Absent):
        return f"none ({state.why})"
    return f"not read on {side} ({state.why})"


def _folded(difference: Difference) -> Iterator[str]:
    """What says little: a line for what only one side could read, a line for what always differs."""
    for side in ("A", "B"):
        missing = [change for change in difference.unread if change.unread == side]
        if missing:
            yield from wrapped(f"Not read on {side} ({len(missing)}): {_names(missing)}; {_reason(missing)}", hang=2)
    if difference.moving:
        what = f"Left out, as they differ between any two machines or moments ({len(difference.moving)})"
        yield from wrapped(f"{what}: {_names(difference.moving)}", hang=2)


def _names(changes: Iterable[Change]) -> str:
    names = list(dict.fromkeys(change.fact for change in changes))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _reason(changes: Sequence[Change]) -> str:
    """The commonest reason why they were not read."""
    reasons = [state.why for change in changes for state in (change.a, change.b) if isinstance(state, Unread)]
    most = max(set(reasons), key=reasons.count)
    return most if len(set(reasons)) == 1 else f"most because: {most}"


def _short(name: str) -> str:
    """A file's name, its last part where it is long."""
    name = one_line(name)
    return name if len(name) <= _LONGEST_NAME else "..." + name[3 - _LONGEST_NAME :]

"""What differs between two machines or moments, for a person: the cause in the first lines, the noise in the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gpudoctor.core.difference import Change, Difference, OneSided
from gpudoctor.core.fact import Absent, Fact, Known, Unread, Value, known, value_of
from gpudoctor.core.language import phrase, say
from gpudoctor.views._report import SEVERITY_COLOURS, change_sentence, headline
from gpudoctor.views._terminal import PLAIN, Style, one_line, value, wrapped
from gpudoctor.views.document import line

_MOST_FACTS = 8
"""Facts shown under a finding."""
_MOST_IN_LAYER = 20
_MOST_NAMES = 12
_LONGEST_NAME = 28


def render(difference: Difference, names: tuple[str, str], style: Style = PLAIN) -> str:
    """The difference as text, ending without a newline; `names` are what A and B were called on the command line."""
    blocks = ["\n".join(_findings(difference, names, style))]
    if difference.both:
        blocks.append("\n".join(wrapped(say("Found on both: {ids}", ids=", ".join(difference.both)), hang=2)))
    if difference.packages:
        blocks.append("\n".join(_package_changes(difference, style)))
    if difference.layers:
        blocks.append("\n".join(_fact_changes(difference, style)))
    blocks.append("\n".join(_left_out(difference)))
    return "\n\n".join(block for block in blocks if block)


def document(difference: Difference) -> str:
    """The difference as a JSON document on one line."""
    return line(difference.to_json())


def _findings(difference: Difference, names: tuple[str, str], style: Style) -> Iterator[str]:
    """Lines that name A and B with their verdicts, then the findings of only one side, those for information last."""
    sides = zip("AB", names, (difference.a, difference.b), strict=True)
    named = (
        say("{side} = {name} ({verdict})", side=side, name=_shortened(name), verdict=say(diagnosis.verdict))
        for side, name, diagnosis in sides
    )
    yield f"gpudoctor diff{say(': ')}{say(', ').join(named)}"
    if difference.equal:
        yield say("Nothing differs but what always does." if difference.moving else "Nothing differs.")
    elif not difference.findings:
        same = "Both have the same findings; facts differ." if difference.layers else "Both have the same findings."
        yield say(same)
    serious = [item for item in difference.findings if item.finding.severity != "info"]
    groups = groupby(
        serious or difference.findings, key=lambda item: (item.side, item.finding.id, item.finding.severity)
    )
    for number, (_, group) in enumerate(groups):
        if number:
            yield ""
        yield from _finding(list(group), style)
    for side in "AB" if serious else "":
        ids = [item.finding.id for item in difference.findings if item.side == side and item not in serious]
        if ids:
            known = say("Only on {side}, for information: {ids}", side=side, ids=", ".join(dict.fromkeys(ids)))
            yield from ("", *wrapped(known, hang=2))


def _finding(group: list[OneSided], style: Style) -> Iterator[str]:
    """Lines of findings of one rule on one side: title, the facts that differ, and what the other side has.

    For severity ``info`` the titles alone.
    """
    first = group[0]
    finding = first.finding
    head = say("Only on {side}: {severity}", side=first.side, severity=say(finding.severity.upper()))
    lines = wrapped(f"{head}  {say('{title}: {text}', title=finding.id, text=headline(finding))}", hang=4)
    yield style.paint(lines[0], "bold", SEVERITY_COLOURS[finding.severity])
    yield from lines[1:]
    for other in group[1:]:
        yield from wrapped(say("also: {title}", title=other.finding.title), 4, 6)
    if finding.severity == "info":
        return
    changes = list({change.name: change for item in group for change in item.changes}.values())
    yield from _changes(changes, _MOST_FACTS, _values_with_sources)
    other_side = "A" if first.side == "B" else "B"
    yield from wrapped(say("On {side}: {what}.", side=other_side, what=phrase(first.other)), 4, 6)


def _package_changes(difference: Difference, style: Style) -> Iterator[str]:
    """A heading and lines with the package versions that differ, the newest change first, at most `_MOST_IN_LAYER`."""
    yield style.paint(say("Packages exchanged between A and B, the newest first"), "bold")
    for change in difference.packages[:_MOST_IN_LAYER]:
        yield from wrapped(change_sentence(change), 4, 8)
    if (more := len(difference.packages) - _MOST_IN_LAYER) > 0:
        yield say("    and {count} more; --json lists them", count=more)


def _fact_changes(difference: Difference, style: Style) -> Iterator[str]:
    """A heading and lines with the facts that differ and are not shown under an error or warning (`difference.layers`),
    by layer, at most `_MOST_IN_LAYER` entries each.
    """
    yield style.paint(say("What else differs (A -> B)"), "bold")
    for layer, changes in difference.layers.items():
        yield f"  {say(layer)}"
        yield from _changes(changes, _MOST_IN_LAYER, _values)


def _changes(changes: Sequence[Change], most: int, describe: Callable[[Change], str]) -> Iterator[str]:
    """At most `most` entries, one per change as `describe` words it, as wrapped lines, and how many more there are.

    Rows of a group that changed in the same way share an entry.
    """
    lines: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        text = describe(change)
        own_line = change.row if change.fact == "text" else ""
        lines.setdefault((change.fact, text, own_line), []).append(change)
    for (_, text, _), group in list(lines.items())[:most]:
        name = group[0].name if len(group) == 1 else _joined_rows(group)
        yield from wrapped(f"{text}: {group[0].row}" if group[0].fact == "text" else f"{name}: {text}", 4, 8)
    if len(lines) > most:
        yield say("    and {count} more; --json lists them", count=len(lines) - most)


def _joined_rows(changes: Sequence[Change]) -> str:
    """Name of a fact in several rows: ``gpu[0-7].vbios``, ``pci[0000:3b:00.0,0000:5e:00.0].name``."""
    rows = [change.row for change in changes]
    first = int(rows[0]) if rows[0].isdecimal() else -1
    if rows == [str(first + place) for place in range(len(rows))]:
        return Change(changes[0].fact, f"{rows[0]}-{rows[-1]}", None, None).name
    more = say(" and {count} more", count=len(rows) - _MOST_FACTS) if len(rows) > _MOST_FACTS else ""
    return Change(changes[0].fact, ",".join(rows[:_MOST_FACTS]) + more, None, None).name


def _values(change: Change) -> str:
    """Both values: ``550.90 -> 580.95``; of two lists what only one has; ``only on A`` for a fact of one side.

    An absent or unread value is ``none``.
    """
    a, b = change.a, change.b
    if a is None or b is None:
        return say("only on {side}", side="B" if a is None else "A") + _row_columns(b or a)
    changed = _list_difference(value_of(a), value_of(b))
    return changed or " -> ".join(_value_text(side) for side in (a, b))


def _values_with_sources(change: Change) -> str:
    """Both values and where they were read, or why there is none: ``580.95 (NVML) -> not read on B (denied)``."""
    a, b = change.a, change.b
    if a is None or b is None or (known(a) and known(b)):
        read_from = [(side, fact.source) for side, state in (("A", a), ("B", b)) if (fact := known(state))]
        is_same = len({source for _, source in read_from}) == 1
        each = (say("{title}: {text}", title=side, text=phrase(source)) for side, source in read_from)
        sources = phrase(read_from[0][1]) if is_same else say("; ").join(each)
        return f"{_values(change)}  ({sources})"
    return f"{_state_text(a, 'A')} -> {_state_text(b, 'B')}"


def _value_text(state: Fact) -> str:
    """A fact's value; ``empty`` if it has no text, ``none`` if it is not known."""
    return (value(fact) or say("empty")) if (fact := known(state)) else say("none")


def _list_difference(a: Value, b: Value) -> str:
    """Items that only one of two lists has; empty if either is no list or is empty, or only the order differs."""
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        return ""
    only_a, only_b = [item for item in a if item not in b], [item for item in b if item not in a]
    if not a or not b or not (only_a or only_b):
        return ""
    parts = [
        f"{say('only on {side}', side=side)} {value(Known(tuple(items), ''))}"
        for side, items in (("A", only_a), ("B", only_b))
        if items
    ]
    return say("; ").join(parts)


def _row_columns(state: Fact | None) -> str:
    """The first four columns of a row: `` (name H100, uuid ...)``; empty if the fact is no row."""
    row = value_of(state)
    if not isinstance(row, Mapping) or not row:
        return ""
    columns = (f"{name} {value(Known(item, ''))}" for name, item in list(row.items())[:4])
    return f" ({', '.join(columns)})"


def _state_text(state: Fact, side: str) -> str:
    """A fact's value and source; why it is absent: ``none (WHY)``; or why it was not read: ``not read on A (WHY)``."""
    if isinstance(state, Known):
        return f"{_value_text(state)} ({phrase(state.source)})"
    if isinstance(state, Absent):
        return f"{say('none')} ({phrase(state.why)})"
    return say("not read on {side} ({why})", side=side, why=phrase(state.why))


def _left_out(difference: Difference) -> Iterator[str]:
    """Lines for each side on the facts unread there and not on the other side, with the main reason; then lines on the
    facts that always differ. Nothing without either.
    """
    for side in ("A", "B"):
        unread = [change for change in difference.unread if change.unread == side]
        if unread:
            names, why = _fact_names(unread), _main_reason(unread)
            sentence = "Not read on {side} ({count}): {names}; {why}"
            yield from wrapped(say(sentence, side=side, count=len(unread), names=names, why=why), hang=2)
    if difference.moving:
        sentence = "Left out, as they differ between any two machines or moments ({count}): {names}"
        names = _fact_names(difference.moving)
        yield from wrapped(say(sentence, count=len(difference.moving), names=names), hang=2)


def _fact_names(changes: Iterable[Change]) -> str:
    """Names of the changed facts, each once, at most `_MOST_NAMES`, and how many more there are."""
    names = list(dict.fromkeys(change.fact for change in changes))
    more = say(" and {count} more", count=len(names) - _MOST_NAMES) if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _main_reason(changes: Sequence[Change]) -> str:
    """The commonest reason why these facts were not read, behind ``most because:`` if there are others.

    Raises ValueError if none of them is unread.
    """
    reasons = Counter(state.why for change in changes for state in (change.a, change.b) if isinstance(state, Unread))
    ((most, _),) = reasons.most_common(1)
    return phrase(most) if len(reasons) == 1 else say("most because: {why}", why=phrase(most))


def _shortened(name: str) -> str:
    """The name on one line; of a long one its end behind ``...``, `_LONGEST_NAME` characters in all."""
    name = one_line(name)
    return name if len(name) <= _LONGEST_NAME else "..." + name[3 - _LONGEST_NAME :]

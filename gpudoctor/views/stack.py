"""A torch stack as text: what to type first, then why that and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpudoctor.core.language import say
from gpudoctor.core.stack import Reason, Stack, Wishes, to_json
from gpudoctor.views._terminal import Style, command, has_wide, one_line, padded, width, wrapped

_MOST_REASONS = 6
"""Reasons of one standing that are shown; the JSON document has all."""
_WIDEST_CANDIDATE = 24
"""Columns up to which a candidate has its reason beside it, not below."""

_NEEDS = {"code": "Needs code {needed}", "libc": "Needs Linux with {needed}"}


def render(stack: Stack, tool: str, style: Style) -> str:
    """The stack as text, with commands for the installer `tool`; if nothing fits, what would have to change."""
    return "\n".join(_stack_lines(stack, tool, style) if stack.torch else _no_stack_lines(stack, style))


def document(stack: Stack) -> str:
    """The stack as indented JSON; its schema is printed by ``gpudoctor schema stack``."""
    return json.dumps(to_json(stack), indent=2)


def machine_text(wishes: Wishes) -> str:
    """The machine of the wishes: ``8 × H100, driver 535.183.06, Python 3.12.3, linux x86_64``.

    ``a GPU that is not known`` or ``a driver that is not known`` if it is not, ``any Python`` without a version; other
    parts are left out.
    """
    parts = [f"{gpu.count} × {gpu.name}" if gpu.count > 1 else gpu.name for gpu in wishes.gpus]
    parts = parts or [say("a GPU that is not known")]
    parts.append(say("driver {version}", version=wishes.driver) if wishes.driver else say("a driver that is not known"))
    parts.append(f"Python {wishes.python}" if wishes.python else say("any Python"))
    parts.append(" ".join(filter(None, (wishes.os, wishes.arch))))
    return one_line(say(", ").join(filter(None, parts)))


def _stack_lines(stack: Stack, tool: str, style: Style) -> Iterator[str]:
    """Lines for a stack that fits: packages, commands of `tool`, needs, libraries, remarks, reasons, sources."""
    names = ", ".join(f"{name} {version}" for name, version in stack.packages)
    yield style.paint(one_line(names), "bold")
    yield from wrapped(say("for {machine}", machine=machine_text(stack.wishes)), 2, 2)
    yield ""
    commands = stack.commands.get(tool, ())
    for argv in commands:
        yield f"    $ {command(argv)}"
    if not commands:
        yield from wrapped(
            say("There is no command of {tool} for it: --emit pip or --emit uv gives one.", tool=tool), 4, 4
        )
    yield ""
    for need in stack.needs:
        label = style.paint(say("has"), "green") if need.met else style.paint(say("not met, has"), "red")
        needs = one_line(say(_NEEDS.get(need.what, "Needs {what} {needed}"), what=say(need.what), needed=need.needed))
        if need.because:
            needs = say("{needs}, for {because}", needs=needs, because=one_line(need.because))
        have = one_line(need.have)
        yield say("{needs}: {label} {have}", needs=needs, label=label, have=have) if have else needs
    if stack.libraries:
        yield from wrapped(say("Brings {libraries}", libraries=", ".join(map(" ".join, stack.libraries))), 0, 2)
    yield from _remark_lines(stack)
    yield from _reason_lines("Why", stack, "chosen", style)
    yield from _reason_lines("Also fits", stack, "fits", style)
    yield from _reason_lines("Rejected", stack, "rejected", style)
    yield from _source_lines(stack)


def _no_stack_lines(stack: Stack, style: Style) -> Iterator[str]:
    """Lines if nothing fits: what was wanted, the smallest changes that would help, remarks, reasons, sources."""
    wanted = ", ".join((*([f"torch {stack.wishes.torch}"] if stack.wishes.torch else []), *stack.wishes.wants))
    yield style.paint(say("Nothing fits."), "bold", "red")
    yield from wrapped(f"{one_line(wanted)} {say('for {machine}', machine=machine_text(stack.wishes))}".strip(), 2, 2)
    leads = [say("It would with"), say("or with")]
    column = max(map(width, leads)) + (0 if has_wide(leads[0]) else 2)
    for number, remedy in enumerate(stack.smallest):
        if number == 0:
            yield ""
        yield from wrapped(f"{padded(leads[min(number, 1)], column)}{remedy.text}", 0, column)
    if driver := next((remedy for remedy in stack.smallest if remedy.commands), None):
        yield from ("", say("For driver {version}, and then torch:", version=driver.value))
        yield from (f"    $ {command(argv)}" for argv in driver.commands)
        if driver.installs:
            yield say("By the tables, the second will give:")
            yield from (f"    $ {command(argv)}" for argv in driver.installs)
    yield from _remark_lines(stack)
    yield from _reason_lines("Rejected", stack, "rejected", style)
    yield from _source_lines(stack)


def _reason_lines(title: str, stack: Stack, standing: str, style: Style) -> Iterator[str]:
    """A blank line, a heading and at most `_MOST_REASONS` reasons of that standing; nothing if there are none."""
    matching = [reason for reason in stack.reasons if reason.standing == standing]
    if matching:
        yield from ("", style.paint(say(title), "bold"))
        yield from _reason_table(matching[:_MOST_REASONS])
        if len(matching) > _MOST_REASONS:
            yield say("  and {count} more: --json has them all", count=len(matching) - _MOST_REASONS)


def _reason_table(reasons: Sequence[Reason]) -> Iterator[str]:
    """Lines of candidates with their reasons beside them, or below if one is wider than `_WIDEST_CANDIDATE`."""
    longest = max(width(one_line(reason.candidate)) for reason in reasons)
    for reason in reasons:
        candidate, because = one_line(reason.candidate), one_line(reason.because)
        if longest <= _WIDEST_CANDIDATE:
            yield from wrapped(f"{padded(candidate, longest)}  {because}", 2, longest + 4)
        else:
            yield from (*wrapped(candidate, 2, 4), *wrapped(because, 6, 6))


def _remark_lines(stack: Stack) -> Iterator[str]:
    """A blank line and the remarks: what was assumed or left unjudged; nothing without remarks."""
    if stack.remarks:
        yield ""
    for remark in stack.remarks:
        yield from wrapped(one_line(remark), 0, 2)


def _source_lines(stack: Stack) -> Iterator[str]:
    """A blank line and the names of the stack's sources; nothing without sources."""
    if stack.sources:
        yield ""
        yield from wrapped(say("Sources: {names}", names=one_line(say("; ").join(stack.sources))), 0, 2)

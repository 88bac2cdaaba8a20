"""A torch stack as text: what to type first, then why that and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.stack import GPU, Reason, Stack, Wishes
from gpudoctor.model.stack_json import to_json
from gpudoctor.views._columns import padded, width
from gpudoctor.views._terminal import Style, command, one_line, wrapped

_MOST = 6
"""Reasons of one standing that are told; the document has them all."""
_WIDEST = 24
"""Columns of a candidate that its reason still stands beside."""


def render(stack: Stack, tool: str, style: Style) -> str:
    """The stack for that tool, or what would have to change where nothing fits."""
    return "\n".join(_fits(stack, tool, style) if stack.torch else _nothing(stack, style))


def document(stack: Stack) -> str:
    """As JSON; its schema is printed by ``gpudoctor schema stack``."""
    return json.dumps(to_json(stack), indent=2)


def machine(wishes: Wishes) -> str:
    """``8 × H100, driver 535.183.06, Python 3.12.3, linux x86_64``, as far as it is known."""
    words = [_gpu(gpu) for gpu in wishes.gpus] or [say("a GPU that is not known")]
    words.append(say("driver {version}", version=wishes.driver) if wishes.driver else say("a driver that is not known"))
    words.append(f"Python {wishes.python}" if wishes.python else say("any Python"))
    words.append(" ".join(filter(None, (wishes.os, wishes.arch))))
    return one_line(", ".join(filter(None, words)))


def _gpu(gpu: GPU) -> str:
    return f"{gpu.count} × {gpu.name}" if gpu.count > 1 else gpu.name


def _fits(stack: Stack, tool: str, style: Style) -> Iterator[str]:
    names = ", ".join(f"{name} {version}" for name, version in stack.packages)
    yield style.paint(one_line(names), "bold")
    yield from wrapped(say("for {machine}", machine=machine(stack.wishes)), 2, 2)
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
        mark = style.paint(say("has"), "green") if need.met else style.paint(say("not met, has"), "red")
        have = f": {mark} {one_line(need.have)}" if need.have else ""
        yield say("Needs {what}", what=one_line(f"{say(need.what)} {need.needed}")) + have
    yield from _libraries(stack)
    yield from _remarks(stack)
    yield from _reasons("Why", stack, "chosen", style)
    yield from _reasons("Also fits", stack, "fits", style)
    yield from _reasons("Rejected", stack, "rejected", style)
    yield from _sources(stack)


def _libraries(stack: Stack) -> Iterator[str]:
    if stack.libraries:
        yield from wrapped(say("Brings {libraries}", libraries=", ".join(map(" ".join, stack.libraries))), 0, 2)


def _nothing(stack: Stack, style: Style) -> Iterator[str]:
    wanted = ", ".join((*([f"torch {stack.wishes.torch}"] if stack.wishes.torch else []), *stack.wishes.wants))
    yield style.paint(say("Nothing fits."), "bold", "red")
    yield from wrapped(f"{one_line(wanted)} {say('for {machine}', machine=machine(stack.wishes))}".strip(), 2, 2)
    for number, remedy in enumerate(stack.smallest):
        lead = say("or with" if number else "It would with")
        if number == 0:
            yield ""
        yield from wrapped(f"{padded(lead, 14)} {remedy.text}", 0, 15)
    yield from _remarks(stack)
    yield from _reasons("Rejected", stack, "rejected", style)
    yield from _sources(stack)


def _reasons(title: str, stack: Stack, standing: str, style: Style) -> Iterator[str]:
    found = [reason for reason in stack.reasons if reason.standing == standing]
    if found:
        yield from ("", style.paint(say(title), "bold"))
        yield from _table(found[:_MOST])
        if len(found) > _MOST:
            yield say("  and {count} more: --json has them all", count=len(found) - _MOST)


def _table(reasons: Sequence[Reason]) -> Iterator[str]:
    longest = max(width(one_line(reason.candidate)) for reason in reasons)
    for reason in reasons:
        candidate, because = one_line(reason.candidate), one_line(reason.because)
        if longest <= _WIDEST:
            yield from wrapped(f"{padded(candidate, longest)}  {because}", 2, longest + 4)
        else:
            yield from (*wrapped(candidate, 2, 4), *wrapped(because, 6, 6))


def _remarks(stack: Stack) -> Iterator[str]:
    """What was assumed or left unjudged: it stands before the reasons, for these rest on it."""
    if stack.remarks:
        yield ""
    for remark in stack.remarks:
        yield from wrapped(one_line(remark), 0, 2)


def _sources(stack: Stack) -> Iterator[str]:
    if stack.sources:
        yield ""
        yield from wrapped(say("Sources: {names}", names=one_line("; ".join(stack.sources))), 0, 2)

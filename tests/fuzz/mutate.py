"""Seeded mutilation: the same number always makes the same bytes."""

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.seeds import Kind, seeds
from tests.fuzz.strange import CONTROLS, LENGTHS, NUMBERS, ODD, RUNS

_RECORDS, _SNAPSHOTS = 0.003, 0.3
"""Shares of the kinds; a record is a whole machine and takes a hundred times as long as a paste."""
_LONGEST = 200_000
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
Dice = random.Random


def case(seed: int, number: int) -> tuple[Kind, bytes]:
    """The bytes of one case."""
    dice = Dice(f"{seed}:{number}")
    chance = dice.random()
    kind: Kind = "record" if chance < _RECORDS else "snapshot" if chance < _RECORDS + _SNAPSHOTS else "report"
    text = dice.choice(seeds().of(kind))
    structured = kind != "report" and dice.random() < 0.9
    strokes = dice.choice((1, 1, 1, 2, 3) if structured else (1, 1, 2, 2, 3, 4, 6, 10, 16))
    if structured:
        whole = json.loads(text)
        for _ in range(strokes):
            _in_document(whole, dice)
        text = json.dumps(whole, ensure_ascii=dice.random() < 0.5)
    else:
        for _ in range(strokes):
            text = mutilated(text, dice)
    return kind, _encoded(text, dice)


def mutilated(text: str, dice: Dice) -> str:
    """The text with one thing wrong."""
    return dice.choice(_STROKES)(text, dice)[:_LONGEST]


def _span(text: str, dice: Dice) -> tuple[int, int]:
    start = dice.randrange(len(text) + 1)
    return start, min(len(text), start + int(dice.expovariate(1 / 20)))


def _cut(text: str, dice: Dice) -> str:
    start, end = _span(text, dice)
    return text[:start] + text[end:]


def _cut_short(text: str, dice: Dice) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] if dice.random() < 0.5 else text[at:]


def _insert(text: str, dice: Dice) -> str:
    start, _ = _span(text, dice)
    return text[:start] + _strange(dice) + text[start:]


def _replace(text: str, dice: Dice) -> str:
    start, end = _span(text, dice)
    return text[:start] + _strange(dice) + text[end:]


def _renumber(text: str, dice: Dice) -> str:
    places = list(_NUMBER.finditer(text[:20_000]))
    if not places:
        return text + dice.choice(NUMBERS)
    place = dice.choice(places)
    return text[: place.start()] + dice.choice(NUMBERS) + text[place.end() :]


def _revalue(text: str, dice: Dice) -> str:
    """Another value behind a label: a run, a word that some rule looks for, anything."""
    colons = [match.end() for match in re.finditer(r"[:=|] ?", text[:20_000])]
    at = dice.choice(colons) if colons else len(text)
    end = text.find("\n", at)
    value = dice.choice(seeds().words) if dice.random() < 0.3 else _strange(dice)
    return text[:at] + value + text[end if end >= 0 and dice.random() < 0.5 else at :]


def _repeat(text: str, dice: Dice) -> str:
    start, end = _span(text, dice)
    times = dice.choice((2, 2, 3, 3, 10, 10, 100, 1000))
    return text[:start] + text[start:end] * times + text[end:]


def _lines(act: Callable[[list[str], Dice], Sequence[str]]) -> Callable[[str, Dice], str]:
    return lambda text, dice: "\n".join(act(text.split("\n"), dice))


def _swap_lines(lines: list[str], dice: Dice) -> Sequence[str]:
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return lines


def _shuffle_lines(lines: list[str], dice: Dice) -> Sequence[str]:
    dice.shuffle(lines)
    return lines


def _drop_lines(lines: list[str], dice: Dice) -> Sequence[str]:
    return [line for line in lines if dice.random() < 0.8]


def _repeat_line(lines: list[str], dice: Dice) -> Sequence[str]:
    at = dice.randrange(len(lines))
    return lines[:at] + [lines[at][:300]] * dice.choice((2, 2, 3, 3, 20, 20, 200, 2000)) + lines[at:]


def _splice(lines: list[str], dice: Dice) -> Sequence[str]:
    """Lines of another paste in between."""
    other = dice.choice(seeds().reports).split("\n")
    start = dice.randrange(len(other))
    at = dice.randrange(len(lines) + 1)
    return lines[:at] + other[start : start + dice.randrange(1, 12)] + lines[at:]


def _dress_lines(lines: list[str], dice: Dice) -> Sequence[str]:
    """Something before every line, as viewers, loggers and mail programs put it there."""
    head = dice.choice(
        ("> ", "    ", "\t", "[rank0]: ", "12:00:00 ", "  1 | ", "| ", "\x1b[0m", "$ ", "Mar  4 10:41:07 a k: ")
    )
    return [head + line for line in lines]


def _breaks(text: str, dice: Dice) -> str:
    return text.replace("\n", dice.choice(("\r\n", "\r", "\n\n", "\u2028", "\v", " ", "", "\\n", "\0\n")))


def _case(text: str, dice: Dice) -> str:
    return dice.choice((str.upper, str.lower, str.swapcase, str.title))(text)


def _strange(dice: Dice) -> str:
    chance = dice.random()
    if chance < 0.3:
        return dice.choice(CONTROLS)
    if chance < 0.5:
        return dice.choice(NUMBERS)
    if chance < 0.75:
        return dice.choice(ODD)
    if chance < 0.9:
        return dice.choice(seeds().words)
    return _run(dice)


def _run(dice: Dice) -> str:
    chance = dice.random()
    unit = dice.choice(RUNS if chance < 0.4 else seeds().words if chance < 0.6 else seeds().units)
    unit += dice.choice(("", "", " ", "\n"))
    length = dice.choices(LENGTHS, (12, 12, 6, 3, 1))[0]
    return (unit * (length // len(unit) + 1))[:length]


def _insert_run(text: str, dice: Dice) -> str:
    start, end = _span(text, dice)
    return text[:start] + _run(dice) + text[end:]


_STROKES: tuple[Callable[[str, Dice], str], ...] = (
    _cut,
    _cut_short,
    _insert,
    _insert,
    _replace,
    _replace,
    _renumber,
    _renumber,
    _revalue,
    _revalue,
    _repeat,
    _insert_run,
    _breaks,
    _case,
    _lines(_swap_lines),
    _lines(_shuffle_lines),
    _lines(_drop_lines),
    _lines(_repeat_line),
    _lines(_splice),
    _lines(_splice),
    _lines(_dress_lines),
)


def _in_document(whole: Any, dice: Dice) -> None:
    """Change one place of parsed JSON: walk down at random, then mutilate what is there."""
    bodies = [key for key in ("facts", "host", "nvml", "cuda", "torch_child") if key in whole]
    holder, key = whole, dice.choice(bodies if bodies and dice.random() < 0.95 else list(whole) or [""])
    while isinstance(holder[key], (dict, list)) and holder[key] and dice.random() < 0.97:
        holder = holder[key]
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
    old, chance = holder[key], dice.random()
    if chance < 0.1:
        del holder[key]
    elif chance < 0.2:
        holder[key] = dice.choice(_ENTRIES)(dice)
    elif isinstance(old, str):
        holder[key] = mutilated(old, dice)
    elif isinstance(old, list) and old:
        holder[key] = old * dice.choice((0, 2, 2, 50)) if chance < 0.6 else dice.sample(old, len(old))
    elif isinstance(old, dict) and chance < 0.6:
        holder[key] = {**old, _strange(dice)[:50]: dice.choice(_ENTRIES)(dice)}
    elif isinstance(old, (int, float)):
        holder[key] = dice.choice((0, -1, old + 1, -old, 1 << 31, 1 << 63, 10**29, 0.5, True, None))
    else:
        holder[key] = dice.choice(_ENTRIES)(dice)


_ENTRIES: tuple[Callable[[Dice], Any], ...] = (
    lambda _: None,
    lambda dice: dice.random() < 0.5,
    lambda dice: dice.choice((0, -1, 1 << 40, 3.5, 1e300)),
    _strange,
    lambda dice: [_strange(dice), 1],
    lambda dice: {"value": _strange(dice), "source": _strange(dice)},
    lambda dice: {"absent": _strange(dice)},
    lambda dice: {"unread": _strange(dice)},
    lambda _: {"value": [[], {}], "source": "x"},
    lambda dice: {"code": dice.choice((1, 3, 15, 999))},
    lambda _: [],
    lambda _: {},
)


def _encoded(text: str, dice: Dice) -> bytes:
    """Bytes as somebody's editor, shell or disk would have them."""
    chance = dice.random()
    if chance < 0.9:
        return text.encode("utf-8", "surrogatepass")
    if chance < 0.92:
        return text.encode("utf-16", "surrogatepass")
    if chance < 0.94:
        return text.encode("cp1252", "replace")
    if chance < 0.95:
        return gzip.compress(text.encode("utf-8", "surrogatepass"), 1, mtime=0)
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(dice.choice((1, 3, 200))):
        if raw:
            raw[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(raw)

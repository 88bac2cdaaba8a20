"""March and retention tests of a device's free memory: which words do not hold what is written, and in which way.

What is done to all of it, in blocks of 64-bit words, until the time is over (March C-: A. J. van de Goor, Testing
Semiconductor Memories, 1991; backgrounds: van de Goor and Tlili, March tests for word-oriented memories, DATE 1998):

1. March C- over the blocks with seven backgrounds, solid to halves of a word, then each word's own address; at last,
   while there is time, a walking one. Finds bits that are stuck, and addresses that answer for others.
2. Retention: written, left alone, read. Finds bits that leak.
3. For each bit of a word's number: half of the words keep a value while those on the other side of that bit turn over.
   Any two words differ in some bit, so that each that disturbs another is met; the bits at which a word was disturbed
   are the difference between its number and that of the word that disturbs it.

A wrong word is then written and read alone, with other memory read in between so that no cache answers for it: wrong at
once it is stuck, wrong after a wait it leaks, else it was disturbed; whether the word that was reckoned disturbs it is
tried, too. Addresses are those of this process.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .._kernel import CannotRun, Outcome, Spec, last_line, no_memory
from . import Context

KERNELS = (Spec("soak.memory", "march and retention", size="half of what is free", level="soak", seconds=60.0),)
_BLOCK, _BLOCK_CPU = 24, 12
"""Logarithm of the words of a block: 128 MiB on a GPU, more than its cache holds."""
_BLOCKS_CPU = 16
_EVICTED = 4
"""Blocks that are read so that no cache holds another word any more."""
_SOLID = (
    0,
    0x5555555555555555,
    0x3333333333333333,
    0x0F0F0F0F0F0F0F0F,
    0x00FF00FF00FF00FF,
    0x0000FFFF0000FFFF,
    0x00000000FFFFFFFF,
)
_MARCH_C = ((1, None, 0), (1, 0, 1), (1, 1, 0), (-1, 0, 1), (-1, 1, 0), (1, 0, None))
"""Elements of March C-: the order of blocks; what is read, then written: 0 the background, 1 its inverse."""
_MOST_PLACES, _MOST_READ = 4096, 64
"""Wrong words that are kept in all, and of one block at one read."""
_EXAMINED = 32
"""Wrong words that are told apart and listed."""
_LONGEST_WAIT_SECONDS = 10.0
_PLANTED_BIT = 1 << 41
_MASK = (1 << 64) - 1
STUCK, LEAKING, DISTURBED, ONCE = "stuck", "leaking", "disturbed", "once"
Place = Tuple[int, int]
"""A word: its block, and its place in it."""


class _Wrong(NamedTuple):
    """What is known of a wrong word: bits that were wrong in any read, and reads in which any was."""

    bits: int = 0
    reads: int = 0


def run(context: Context, _: Spec) -> Outcome:
    """Test half of the free GPU memory (on a CPU 512 KiB) for `Context.work` seconds, or until all tests are done."""
    test = _MarchTest(context, _allocate(context))
    until = time.perf_counter() + context.work
    test.check_that_faults_are_found()
    done = 0
    for part in test.parts():
        part()
        done += 1
        if time.perf_counter() > until:
            break
    return test.outcome(done)


def _allocate(context: Context) -> List[Any]:
    """Blocks of 64-bit words in half of the free memory, 16 on a CPU; raises `CannotRun` for fewer than two."""
    torch, words = context.torch, 1 << (_BLOCK_CPU if context.on_cpu else _BLOCK)
    count = _BLOCKS_CPU if context.on_cpu else context.free() // (8 * words)
    blocks: List[Any] = []
    try:
        blocks.extend(torch.zeros(words, dtype=torch.int64, device=context.device) for _ in range(count))
    except RuntimeError as error:  # free, but taken by another at this moment
        if not no_memory(last_line(error)):
            raise
        del blocks[-2:]  # to compare with
    if len(blocks) < 2:
        raise CannotRun("less than %d MiB of its memory may be taken: too little to test" % (16 * words >> 20))
    return blocks


class _MarchTest:
    """The blocks, and every word of them that was wrong in some read."""

    def __init__(self, context: Context, blocks: List[Any]) -> None:
        self.context, self.torch, self.blocks = context, context.torch, blocks
        self.words = int(blocks[0].numel())
        self.wait = min(_LONGEST_WAIT_SECONDS, context.work / 12)
        self.compared = self.differ = 0
        self.wrong: Dict[Place, _Wrong] = {}
        self.disturbed: Dict[Place, int] = {}
        """By word: the bits of its number across which another word disturbed it."""
        self.blind = ""
        """Why nothing that this test finds right can be believed."""
        self._numbers = self.torch.arange(self.words, device=context.device) * 8

    def check_that_faults_are_found(self) -> None:
        """Invert one bit on purpose; if it is not found `blind` says so, and other bits wrong in that word are kept."""
        place = (len(self.blocks) - 1, self.words // 3)
        block = self.blocks[place[0]]
        block.fill_(0)
        block[place[1]] ^= _PLANTED_BIT
        self._compare(place[0], block, 0)
        bits = self.wrong.pop(place, _Wrong()).bits
        if not bits & _PLANTED_BIT:
            self.blind = "a bit that was turned over on purpose at %s was not found" % self._address(place)
        if bits & ~_PLANTED_BIT:
            self.wrong[place] = _Wrong(bits & ~_PLANTED_BIT, 1)
        self.differ = len(self.wrong)

    def parts(self) -> Iterator[Any]:
        """Yield the tests in order, each a short call: March C- patterns, retention, disturbance, a walking one."""
        for word in _SOLID:
            yield lambda word=word: self._march(lambda _: word)
        yield lambda: self._march(self._addresses)
        for word in (-1, *_SOLID[:2]):
            yield lambda word=word: self._retain(word)
        for bit in range(self.words.bit_length() - 1 + (len(self.blocks) - 1).bit_length()):
            for word in (0, -1):
                yield lambda bit=bit, word=word: self._turn_across(bit, word)
        for step in range(0, 64, 16 if self.context.on_cpu else 1):
            yield lambda step=step: self._march(lambda block: self._walking(block, step))

    # ---- Patterns ----

    def _addresses(self, block: int) -> Any:
        """An int64 tensor with the address in bytes of each word of the block, from its data_ptr() on, 8 apart."""
        return self._numbers + self.blocks[block].data_ptr()

    def _walking(self, _: int, step: int) -> Any:
        """A tensor of words with a single one, from bit `step` on one bit further in each word."""
        return self.torch.bitwise_left_shift(self.torch.ones_like(self._numbers), ((self._numbers >> 3) + step) % 64)

    # ---- Tests ----

    def _march(self, pattern: Any) -> None:
        """Run March C- over all blocks with `pattern(block)`, its words or the one word of all, as the background."""
        for order, reads, writes in _MARCH_C:
            for block in range(len(self.blocks))[::order]:
                words = pattern(block)
                if reads is not None:
                    self._compare(block, self.blocks[block], ~words if reads else words)
                if writes is not None:
                    _put(self.blocks[block], ~words if writes else words)

    def _retain(self, word: int) -> None:
        """Write that word to all blocks, leave them alone for `wait` seconds, and compare."""
        self._fill(word)
        self.context.synchronize()
        time.sleep(self.wait)
        for block in range(len(self.blocks)):
            self._compare(block, self.blocks[block], word)

    def _turn_across(self, bit: int, word: int) -> None:
        """Invert the words whose number has that bit 0, then those with 1; the others must keep `word`."""
        for side in (0, 1):
            self._fill(word)
            self._fill(word)  # what the first one disturbed is right again
            for block in range(len(self.blocks)):
                if (turned := self._side(block, bit, side)) is not None:
                    turned.fill_(~word)
            for block in range(len(self.blocks)):
                if (kept := self._side(block, bit, 1 - side)) is not None:
                    self._compare(block, kept, word, bit, 1 - side)

    def _side(self, block: int, bit: int, side: int) -> Optional[Any]:
        """The words of a block whose number has that value of that bit: a view, or None where there are none."""
        inside = self.words.bit_length() - 1
        if bit >= inside:
            return self.blocks[block] if block >> (bit - inside) & 1 == side else None
        return self.blocks[block].view(-1, 2, 1 << bit)[:, side]

    def _fill(self, word: int) -> None:
        """Write one word to all blocks."""
        for block in self.blocks:
            block.fill_(word)

    def _compare(self, block: int, values: Any, expected: Any, bit: int = -1, side: int = 0) -> None:
        """Compare words of a block and note wrong ones; with `bit` they are those of `_side`, others were inverted."""
        self.compared += values.numel()
        wrong = values != expected
        count = int(wrong.sum())
        if not count:
            return
        self.differ += count
        at = wrong.flatten().nonzero()[:_MOST_READ, 0]
        found = values.flatten()[at].tolist()
        wanted = expected.flatten()[at].tolist() if hasattr(expected, "flatten") else [expected] * len(found)
        inside = 0 <= bit < self.words.bit_length() - 1
        for index, actual, word in zip(at.tolist(), found, wanted):
            # In a view of `_side` the bit is left out of the number.
            number = (index >> bit << 1 | side) << bit | index & ((1 << bit) - 1) if inside else index
            self._note((block, number), (actual ^ word) & _MASK, bit)

    def _note(self, place: Place, bits: int, across: int) -> None:
        """Keep a wrong word, 4096 at most; `across`: the bit of its number across which others were inverted, or -1."""
        if place not in self.wrong and len(self.wrong) >= _MOST_PLACES:
            return
        before = self.wrong.get(place, _Wrong())
        self.wrong[place] = _Wrong(before.bits | bits, before.reads + 1)
        if across >= 0:
            self.disturbed[place] = self.disturbed.get(place, 0) | 1 << across

    # ---- What kind of fault it is ----

    def _kinds(self, places: List[Place]) -> Dict[Place, str]:
        """Kind of each word's fault, tried by overwriting: STUCK at once, LEAKING after a wait, DISTURBED, or ONCE."""
        at_once = self._wrong_alone(places, 0.0)
        later = self._wrong_alone([place for place in places if place not in at_once], max(self.wait, 0.05))
        return {
            place: STUCK
            if place in at_once
            else LEAKING
            if place in later
            else DISTURBED
            if place in self.disturbed
            else ONCE
            for place in places
        }

    def _wrong_alone(self, places: List[Place], wait: float) -> Dict[Place, int]:
        """Wrong bits, by word, of words that are wrong when they alone are written and read `wait` seconds later."""
        wrong: Dict[Place, int] = {}
        for word in (0, -1):
            for block, number in places:
                self.blocks[block][number : number + 1].fill_(word)
            self.context.synchronize()
            if wait:
                time.sleep(wait)
            self._read_others({block for block, _ in places})
            for block, number in places:
                if bits := (int(self.blocks[block][number]) ^ word) & _MASK:
                    wrong[block, number] = wrong.get((block, number), 0) | bits
        return wrong

    def _read_others(self, without: Any) -> None:
        """Read up to four blocks that are not in `without`, so that no cache holds words of those any more."""
        for block in [at for at in range(len(self.blocks)) if at not in without][:_EVICTED]:
            self.blocks[block].sum()

    # ---- The answer ----

    def outcome(self, done: int) -> Outcome:
        """The outcome after `done` tests; details list wrong words by kind with their addresses."""
        details: Dict[str, Any] = {"bytes": 8 * self.words * len(self.blocks), "patterns": done}
        if not self.differ:
            return Outcome(right=not self.blind, differ=0, compared=self.compared, words=self.blind, details=details)
        places = sorted(self.wrong)
        kinds = self._kinds(places[:_EXAMINED])
        for kind in (STUCK, LEAKING, DISTURBED, ONCE):
            of_kind = [self._words(place, kind) for place in places if kinds.get(place) == kind]
            if of_kind:
                details[kind] = of_kind
        details["wrong_words"] = len(places)
        total = self.words * len(self.blocks)
        count = "%s%d of %d words" % ("at least " if len(places) >= _MOST_PLACES else "", len(places), total)
        words = "%s do not hold what is written, the first at %s" % (count, self._address(places[0]))
        return Outcome(right=False, differ=self.differ, compared=self.compared, words=words, details=details)

    def _words(self, place: Place, kind: str) -> str:
        """A wrong word as ``0x7f2a00000018 bit 3``; a disturbed one also with the one word that disturbs it, if any."""
        bits = [str(bit) for bit in range(64) if self.wrong[place].bits >> bit & 1]
        text = "%s bit%s %s" % (self._address(place), "" if len(bits) == 1 else "s", ", ".join(bits))
        if kind != DISTURBED:
            return text
        block, number = divmod((place[0] * self.words + place[1]) ^ self.disturbed[place], self.words)
        if block >= len(self.blocks) or not self._disturbs((block, number), place):
            return text  # several words disturb it
        return "%s by %s" % (text, self._address((block, number)))

    def _disturbs(self, other: Place, place: Place) -> bool:
        """Whether the word at `place` changes when the other one alone is inverted; overwrites both."""
        for word in (0, -1):
            for (block, number), written in ((other, word), (place, word), (other, ~word)):
                self.blocks[block][number : number + 1].fill_(written)
                self._read_others({other[0], place[0]})
            if int(self.blocks[place[0]][place[1]]) != word:
                return True
        return False

    def _address(self, place: Place) -> str:
        """Virtual address of a word, in hexadecimal."""
        start = int(self.blocks[place[0]].data_ptr())
        return hex(start + 8 * place[1])


def _put(block: Any, words: Any) -> None:
    """Write one word to all of a block, or a tensor of words."""
    if isinstance(words, int):
        block.fill_(words)
    else:
        block.copy_(words)

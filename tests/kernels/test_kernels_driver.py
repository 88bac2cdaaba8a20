"""The driver's kernels: their PTX run instruction by instruction, and every planted fault found by their checks."""

import struct

import pytest

from gpudoctor.kernels.child._kernel import CannotRun, Outcome
from gpudoctor.kernels.child.driver import Context, _ptx, add, compare_words, memory, reduction
from gpudoctor.kernels.child.driver._ptx import IllegalAddressError, Interpreter

SAMPLE = memory.KERNELS[0]


def context(machine: Interpreter | None = None, seed: int = 1) -> Context:
    return Context(machine or Interpreter(), seed)


class Stuck(Interpreter):
    """A device with a bit that is always the same, wherever in the n-th 64-bit word behind the first address."""

    def __init__(self, word: int, bit: int, value: int) -> None:
        super().__init__()
        self._place, self._bit, self._value = word * 8, 1 << bit, value
        self._first = 0

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self._first = self._first or address
        return address

    def write(self, address: int, data: bytes) -> None:
        super().write(address, data)
        self._stick()

    def launch(self, *words: object) -> None:
        super().launch(*words)  # type: ignore[arg-type]
        self._stick()

    def _stick(self) -> None:
        try:
            part, at = self._memory.at(self._first + self._place, 8)
        except IllegalAddressError:
            return
        (word,) = struct.unpack_from("<Q", part, at)
        struct.pack_into("<Q", part, at, word | self._bit if self._value else word & ~self._bit)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("bit", [0, 5, 31, 32, 63])
def test_a_stuck_bit_is_found_with_its_address_and_its_number(bit: int, value: int) -> None:
    machine = Stuck(word=150, bit=bit, value=value)  # the first ones hold the report
    outcome = memory.run(context(machine), SAMPLE)
    assert outcome.right is False
    assert outcome.details
    assert outcome.details["bits"] == [bit]
    assert int(outcome.details["first_address"], 16) == machine._first + 1200
    assert outcome.details["sweeps_with_errors"] == outcome.details["sweeps"] / 2  # written as one, and as nought


def test_two_words_behind_one_address_are_found() -> None:
    """As if an address line were dead: what is written to one word is read from another."""

    class Aliased(Interpreter):
        def launch(self, *words: object) -> None:
            super().launch(*words)  # type: ignore[arg-type]
            for base in list(self._memory.parts)[1:]:
                self.write(base + 16, self.read(base + 8, 8))

    outcome = memory.run(context(Aliased()), SAMPLE)
    assert outcome.right is False
    assert "words read are wrong" in outcome.words


def test_a_test_that_cannot_see_is_no_test() -> None:
    class Blind(Interpreter):
        """Its comparisons all come out equal."""

        def launch(self, *words: object) -> None:
            super().launch(*words)  # type: ignore[arg-type]
            self.write(words[3][5], struct.pack("<3Q", 0, (1 << 64) - 1, 0))  # type: ignore[index]

    outcome = memory.run(context(Blind()), SAMPLE)
    assert outcome.right is False
    assert "turned over on purpose" in outcome.words


@pytest.mark.parametrize("module", [add, reduction])
@pytest.mark.parametrize("bit", [0, 7, 22, 31])
def test_one_wrong_bit_of_one_result_is_found(module: object, bit: int) -> None:
    class Flips(Interpreter):
        """The last result that is read has one bit turned over."""

        def read(self, address: int, size: int) -> bytes:
            data = bytearray(super().read(address, size))
            data[-4 + bit // 8] ^= 1 << bit % 8
            return bytes(data)

    outcome: Outcome = module.run(context(Flips()), module.KERNELS[0])  # type: ignore[attr-defined]
    assert outcome.right is False
    assert f"bit {bit} is wrong" in outcome.words


@pytest.mark.parametrize("module", [add, reduction])
def test_a_kernel_that_does_nothing_is_not_taken_for_one_that_is_right(module: object) -> None:
    """Not even where the memory still holds the right answer of the run before."""

    class Idle(Interpreter):
        def launch(self, *_: object) -> None:
            pass

    outcome: Outcome = module.run(context(Idle()), module.KERNELS[0])  # type: ignore[attr-defined]
    assert outcome.right is False
    assert outcome.differ == outcome.compared


class Careless(Interpreter):
    """Runs another program than it is given."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def load(self, _: str) -> object:  # type: ignore[override]
        return super().load(self._program)


def test_the_interpreters_threads_and_addresses_are_those_of_a_gpu() -> None:
    """The programs need what they have: without its barrier the sum is wrong, past its arrays an addition ends."""
    unordered = Careless(_ptx.text("reduction").replace("bar.sync 0;", ""))
    assert reduction.run(context(unordered), reduction.KERNELS[0]).right is False
    beyond = Careless(_ptx.text("add").replace("@%outside ret;", ""))
    with pytest.raises(IllegalAddressError, match="illegal memory access"):
        add.run(context(beyond), add.KERNELS[0])


def test_the_patterns_reckoned_here_are_those_that_the_program_writes() -> None:
    machine = Interpreter()
    program = context(machine).program("memory")
    place, report = machine.allocate(8 * 70), machine.allocate(24)
    for kind, step in ((memory.WALKING, 3), (memory.ADDRESS, 0), (memory.DICE, 1 << 40)):
        program("sweep", 2, 4, place, 70, kind, step, memory.WRITE, report)
        written = struct.unpack("<70Q", machine.read(place, 560))
        assert written == tuple(memory.pattern(kind, place + 8 * at, step) for at in range(70))


def test_memory_that_others_hold_is_left_alone() -> None:
    """Half of what is free at most, and none where next to nothing is."""
    machine = Interpreter(size=1000)
    most = []

    class Watched(Interpreter):
        def allocate(self, size: int) -> int:
            address = super().allocate(size)
            most.append(self.memory_info()[0])
            return address

    assert memory.run(context(Watched(size=1000)), SAMPLE).right
    assert min(most) >= 500 - 24
    machine = Interpreter(size=100)
    with pytest.raises(CannotRun, match="too little to test"):
        memory.run(context(machine), SAMPLE)
    assert machine.memory_info() == (100, 100)


def test_a_difference_is_told_by_place_and_bits() -> None:
    good, bad = struct.pack("<3I", 1, 2, 3), struct.pack("<3I", 1, 2 ^ 0x21, 3)
    assert compare_words("sums", good, good).right is True
    assert (
        compare_words("sums", bad, good).words
        == "sums: 1 of 3 values is wrong, the first at 1, where bits 0, 5 are wrong"
    )
    assert compare_words("sums", bytes(12), b"\xff" * 12).words.endswith("32 bits are wrong")


@pytest.mark.parametrize("name", _ptx.programs())
def test_every_program_says_what_it_needs(name: str) -> None:
    text = _ptx.text(name)
    assert ".version 6.0\n.target sm_35\n.address_size 64\n" in text
    assert _ptx.entries(text)

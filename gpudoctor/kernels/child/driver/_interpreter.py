"""PTX run by Python, on a memory of Python's: what the programs of this folder do, shown without a GPU.

It knows the instructions that they use, and no more. A block's threads are generators that meet at ``bar.sync``; blocks
run one after another. Registers hold unsigned numbers, those of floats too: their bits. What lies outside every
allocation cannot be read or written, so that a program that reaches past its arrays fails here first.
"""

from __future__ import annotations

import operator
import re
import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from ._ptx import Entry, entries, size_of

Registers = Dict[str, Any]

_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*)", re.DOTALL)
_SHARED = re.compile(r"\.shared\s+\.align\s+\d+\s+\.(\w+)\s+(\w+)\[(\d+)\]")
_FIRST_ADDRESS = 0x7F0000000000
_ALIGNED = 512


class IllegalAddressError(Exception):
    """A program read or wrote where nothing is allocated."""


class Step(NamedTuple):
    """One instruction: ``@!%p add.u32 %r, %a, 1``; `guard`: the predicate that it needs, and what that must be."""

    guard: Tuple[str, bool]
    code: Tuple[str, ...]
    operands: Tuple[str, ...]


class Kernel:
    """An entry, ready to be run."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.steps: List[Step] = []
        self.labels: Dict[str, int] = {}
        self.shared: Dict[str, int] = {}
        self.shared_size = 0
        for statement in entry.body.split(";"):
            self._take(statement.strip())

    def _take(self, statement: str) -> None:
        while (match := re.match(r"(\w+):\s*", statement)) is not None:
            self.labels[match.group(1)] = len(self.steps)
            statement = statement[match.end() :]
        shared = _SHARED.match(statement)
        if shared:
            kind, name, count = shared.groups()
            self.shared[name] = self.shared_size
            self.shared_size += size_of(kind) * int(count)
        elif statement and not statement.startswith(".reg"):
            step = _STATEMENT.fullmatch(statement)
            assert step, statement
            inverted, guard, code, operands = step.groups()
            words = tuple(word.strip() for word in operands.split(",") if word.strip())
            self.steps.append(Step((guard or "", not inverted), tuple(code.split(".")), words))


class Memory:
    """What is allocated, by its address."""

    def __init__(self) -> None:
        self.parts: Dict[int, bytearray] = {}
        self._next = _FIRST_ADDRESS

    def allocate(self, size: int) -> int:
        """The address of so many bytes of noughts."""
        address, self._next = self._next, self._next + -(-size // _ALIGNED) * _ALIGNED + _ALIGNED
        self.parts[address] = bytearray(size)
        return address

    def at(self, address: int, size: int) -> Tuple[bytearray, int]:
        """The part that holds these bytes, and where in it they begin."""
        for base, part in self.parts.items():
            if base <= address and address + size <= base + len(part):
                return part, address - base
        raise IllegalAddressError("an illegal memory access was encountered: %d bytes at %#x" % (size, address))


def launch(memory: Memory, kernel: Kernel, blocks: int, threads: int, arguments: Sequence[int]) -> None:
    """Run it to its end."""
    parameters = dict(zip(kernel.entry.parameters, arguments))
    for block in range(blocks):
        shared = bytearray(kernel.shared_size)
        running: List[Iterator[None]] = []
        for thread in range(threads):
            place = {"%tid.x": thread, "%ntid.x": threads, "%ctaid.x": block, "%nctaid.x": blocks}
            running.append(_Thread(memory, shared, kernel, parameters, place).run())
        while running:  # each until it waits at the barrier, or has ended
            running = [one for one in running if next(one, _ENDED) is not _ENDED]


_ENDED: Any = object()


class _Thread:
    """Its registers, and what it does with them."""

    def __init__(
        self, memory: Memory, shared: bytearray, kernel: Kernel, parameters: Dict[str, int], place: Registers
    ) -> None:
        self.memory, self.shared, self.kernel, self.parameters = memory, shared, kernel, parameters
        self.registers = dict(place)

    def run(self) -> Iterator[None]:
        """Step by step; yields where it waits for the others of its block."""
        at = 0
        while at < len(self.kernel.steps):
            (guard, wanted), code, operands = self.kernel.steps[at]
            at += 1
            if guard and self.registers[guard] is not wanted:
                continue
            if code[0] == "ret":
                return
            if code[0] == "bra":
                at = self.kernel.labels[operands[0]]
            elif code[0] == "bar":
                yield
            elif code[0] in {"ld", "st", "red"}:
                self._move(code, operands)
            else:
                values = [self._value(word) for word in operands[1:]]
                self.registers[operands[0]] = _calculated(code, values)

    def _value(self, word: str) -> Any:
        if word.startswith("%"):
            return self.registers[word]
        return self.kernel.shared[word] if word in self.kernel.shared else int(word, 0)

    def _move(self, code: Tuple[str, ...], operands: Sequence[str]) -> None:
        """``ld``, ``st`` and ``red``, an atomic whose old value nobody wants."""
        deed, space, kind = code[0], code[1], code[-1]
        place = operands[1 if deed == "ld" else 0].strip("[]")
        if space == "param":
            self.registers[operands[0]] = self.parameters[place]
            return
        name, _, offset = place.partition("+")
        address = self._value(name) + int(offset or "0", 0)
        part, at = (self.shared, address) if space == "shared" else self.memory.at(address, size_of(kind))
        form = "<I" if size_of(kind) == 4 else "<Q"
        (held,) = struct.unpack_from(form, part, at)
        if deed == "ld":
            self.registers[operands[0]] = held
            return
        value = self._value(operands[1])
        struct.pack_into(form, part, at, value if deed == "st" else _calculated(code[2:], [held, value]))


def _calculated(code: Tuple[str, ...], values: List[Any]) -> Any:
    """What an instruction makes of its operands: ``add.u32``, ``mul.wide.u32``, ``setp.ge.u64``, ..."""
    name, kind = code[0], code[-1]
    if name == "setp":
        return _COMPARED[code[1]](*values)
    if name == "selp":
        return values[0] if values[2] else values[1]
    if kind == "f32":
        return _bits(_WHOLE[name](*map(_float, values)))
    width = (16 if "wide" in code else 8) * size_of(code[1] if name == "cvt" else kind)
    if name in {"shl", "shr"} and values[1] >= width:
        return 0
    return _WHOLE[name](*values) & ((1 << width) - 1)


_COMPARED: Dict[str, Callable[..., bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "ge": operator.ge,
}
_WHOLE: Dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "mad": lambda x, y, z: x * y + z,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "min": min,
    "mov": lambda x: x,
    "cvt": lambda x: x,
    "cvta": lambda x: x,
}


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


class Machine:
    """The interpreter as a device: what `_cuda.Machine` is for a GPU."""

    on_cpu = True
    spent = False

    def __init__(self, size: int = 1 << 20) -> None:
        self._memory = Memory()
        self._size = size

    def told(self) -> Dict[str, Any]:
        """What it is, for the protocol."""
        return {"name": "CPU", "driver": "interpreter"}

    def room(self) -> Tuple[int, int]:
        """Bytes that are free, and bytes in all."""
        return self._size - sum(map(len, self._memory.parts.values())), self._size

    def allocate(self, size: int) -> int:
        """The address of so many bytes."""
        return self._memory.allocate(size)

    def release(self, address: int) -> None:
        """Give them back."""
        del self._memory.parts[address]

    def write(self, address: int, data: bytes) -> None:
        """Copy to it."""
        part, at = self._memory.at(address, len(data))
        part[at : at + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        """Copy from it."""
        part, at = self._memory.at(address, size)
        return bytes(part[at : at + size])

    def load(self, program: str) -> Dict[str, Kernel]:
        """Its kernels by name."""
        return {name: Kernel(entry) for name, entry in entries(program).items()}

    def launch(self, kernel: Kernel, blocks: int, threads: int, arguments: Sequence[int]) -> None:
        """Run it to its end."""
        launch(self._memory, kernel, blocks, threads, arguments)

"""PTX programs as they lie beside this file: their entries, and an interpreter that shows without a GPU what they do.

The interpreter works on a memory of Python's. It knows the instructions that these programs use, and no more. A block's
threads are generators that meet at ``bar.sync``; blocks run one after another. Registers hold unsigned numbers, those
of floats too: their bits. What lies outside every allocation cannot be read or written, so that a program that reaches
past its arrays fails here first.
"""

from __future__ import annotations

import operator
import os
import re
import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)\s*\{(.*?)\n\}", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+\.(\w+)\s+(\w+)")
_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*)", re.DOTALL)
_SHARED = re.compile(r"\.shared\s+\.align\s+\d+\s+\.(\w+)\s+(\w+)\[(\d+)\]")
_FIRST_ADDRESS = 0x7F0000000000
_ALIGNED = 512
Registers = Dict[str, Any]


class Entry(NamedTuple):
    """A kernel's source: parameter types by name, in order, and its body as text."""

    name: str
    parameters: Dict[str, str]
    body: str


def text(name: str) -> str:
    """Source of the program ``name.ptx`` of this folder."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".ptx"), encoding="ascii") as file:
        return file.read()


def programs() -> List[str]:
    """Names of all programs of this folder, sorted."""
    here = os.listdir(os.path.dirname(os.path.abspath(__file__)))
    return sorted(name[:-4] for name in here if name.endswith(".ptx"))


def entries(program: str) -> Dict[str, Entry]:
    """The kernels in a PTX source, by name: parameters and body, comments removed."""
    bare = re.sub(r"//[^\n]*", "", program)
    return {
        name: Entry(name, {parameter: kind for kind, parameter in _PARAMETER.findall(parameters)}, body)
        for name, parameters, body in _ENTRY.findall(bare)
    }


def size_of(kind: str) -> int:
    """Bytes of a PTX type such as ``u32``, ``b64`` or ``f32``."""
    return int(kind[1:]) // 8


# ---- The interpreter ----


class Interpreter:
    """A CPU device with the methods of `_cuda.Machine`, which interprets the PTX; `size` is its memory in bytes."""

    on_cpu = True
    spent = False

    def __init__(self, size: int = 1 << 20) -> None:
        self._memory = Memory()
        self._size = size

    def description(self) -> Dict[str, Any]:
        """``name`` CPU and ``driver`` interpreter."""
        return {"name": "CPU", "driver": "interpreter"}

    def memory_info(self) -> Tuple[int, int]:
        """Bytes of its memory: free, total."""
        return self._size - sum(map(len, self._memory.parts.values())), self._size

    def allocate(self, size: int) -> int:
        """The address of `size` new zero bytes in the interpreter's memory."""
        return self._memory.allocate(size)

    def release(self, address: int) -> None:
        """Free the memory at `address`; raises `KeyError` where none was allocated."""
        del self._memory.parts[address]

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to `address`; raises `IllegalAddressError` outside of an allocation."""
        part, at = self._memory.at(address, len(data))
        part[at : at + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        """The `size` bytes at `address`; raises `IllegalAddressError` outside of an allocation."""
        part, at = self._memory.at(address, size)
        return bytes(part[at : at + size])

    def load(self, program: str) -> Dict[str, Kernel]:
        """The kernels of a PTX source by name, parsed."""
        return {name: Kernel(entry) for name, entry in entries(program).items()}

    def launch(self, kernel: Kernel, blocks: int, threads: int, arguments: Sequence[int]) -> None:
        """Interpret the kernel on the CPU: blocks one after another, a block's threads in turn from barrier to barrier.

        `arguments` are the kernel's parameters in order: numbers, or addresses in the interpreted memory.
        """
        parameters = dict(zip(kernel.entry.parameters, arguments))
        for block in range(blocks):
            shared = bytearray(kernel.shared_size)
            running: List[Iterator[None]] = []
            for thread in range(threads):
                place = {"%tid.x": thread, "%ntid.x": threads, "%ctaid.x": block, "%nctaid.x": blocks}
                running.append(_Thread(self._memory, shared, kernel, parameters, place).run())
            while running:  # each until it waits at the barrier, or has ended
                running = [thread for thread in running if next(thread, _ENDED) is not _ENDED]


class IllegalAddressError(Exception):
    """A program read or wrote where nothing is allocated."""


class Step(NamedTuple):
    """One instruction, ``@!%p add.u32 %r, %a, 1``; `guard`: the predicate register and the value it must have."""

    guard: Tuple[str, bool]
    code: Tuple[str, ...]
    operands: Tuple[str, ...]


class Kernel:
    """An entry parsed into instructions, labels and shared-memory offsets."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.steps: List[Step] = []
        self.labels: Dict[str, int] = {}
        self.shared: Dict[str, int] = {}
        self.shared_size = 0
        for statement in entry.body.split(";"):
            self._parse_statement(statement.strip())

    def _parse_statement(self, statement: str) -> None:
        """Add a label, a shared array or an instruction from one statement."""
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
    """Allocations by their address."""

    def __init__(self) -> None:
        self.parts: Dict[int, bytearray] = {}
        self._next = _FIRST_ADDRESS

    def allocate(self, size: int) -> int:
        """The address of `size` zero bytes, aligned to 512."""
        address, self._next = self._next, self._next + -(-size // _ALIGNED) * _ALIGNED + _ALIGNED
        self.parts[address] = bytearray(size)
        return address

    def at(self, address: int, size: int) -> Tuple[bytearray, int]:
        """The allocation that holds these bytes, and their offset in it; raises `IllegalAddressError` if none does."""
        for base, part in self.parts.items():
            if base <= address and address + size <= base + len(part):
                return part, address - base
        raise IllegalAddressError("an illegal memory access was encountered: %d bytes at %#x" % (size, address))


_ENDED: Any = object()


class _Thread:
    """One thread of a block: its registers, and the execution of its instructions."""

    def __init__(
        self, memory: Memory, shared: bytearray, kernel: Kernel, parameters: Dict[str, int], place: Registers
    ) -> None:
        self.memory, self.shared, self.kernel, self.parameters = memory, shared, kernel, parameters
        self.registers = dict(place)

    def run(self) -> Iterator[None]:
        """Execute the kernel; yields at each ``bar.sync``."""
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
                self.registers[operands[0]] = _compute(code, values)

    def _value(self, word: str) -> Any:
        """Value of an operand: a register, the offset of a shared array, or a number."""
        if word.startswith("%"):
            return self.registers[word]
        return self.kernel.shared[word] if word in self.kernel.shared else int(word, 0)

    def _move(self, code: Tuple[str, ...], operands: Sequence[str]) -> None:
        """Execute ``ld``, ``st`` or ``red`` (an atomic without a result)."""
        action, space, kind = code[0], code[1], code[-1]
        place = operands[1 if action == "ld" else 0].strip("[]")
        if space == "param":
            self.registers[operands[0]] = self.parameters[place]
            return
        name, _, offset = place.partition("+")
        address = self._value(name) + int(offset or "0", 0)
        part, at = (self.shared, address) if space == "shared" else self.memory.at(address, size_of(kind))
        layout = "<I" if size_of(kind) == 4 else "<Q"
        (current,) = struct.unpack_from(layout, part, at)
        if action == "ld":
            self.registers[operands[0]] = current
            return
        value = self._value(operands[1])
        struct.pack_into(layout, part, at, value if action == "st" else _compute(code[2:], [current, value]))


def _compute(code: Tuple[str, ...], values: List[Any]) -> Any:
    """Result of an arithmetic, comparison or selection instruction, wrapped to the width of its type."""
    name, kind = code[0], code[-1]
    if name == "setp":
        return _COMPARISONS[code[1]](*values)
    if name == "selp":
        return values[0] if values[2] else values[1]
    if kind == "f32":
        return _bits(_OPERATIONS[name](*map(_float, values)))
    width = (16 if "wide" in code else 8) * size_of(code[1] if name == "cvt" else kind)
    if name in {"shl", "shr"} and values[1] >= width:
        return 0
    return _OPERATIONS[name](*values) & ((1 << width) - 1)


_COMPARISONS: Dict[str, Callable[..., bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "ge": operator.ge,
}
_OPERATIONS: Dict[str, Callable[..., Any]] = {
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
    """The float with these 32 bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    """The 32 bits of a float."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])

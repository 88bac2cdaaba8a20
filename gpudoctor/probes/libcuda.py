"""The CUDA driver library, asked in a child process as a CUDA program of this session would load it.

At level quick the child only loads it and asks its version. `cuInit` belongs to level standard: it may load kernel
modules and make device files, and it takes seconds where GPUs sleep. No context is made at any level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._child import script
from gpudoctor.probes._libcuda.told import Told, understood
from gpudoctor.target import Answer, Target, Watch
from gpudoctor.target.protocol import answers, patience, printable
from gpudoctor.target.waiting import WAKING, seconds_to_wake

WAITS = True
FACTS = (
    fact(
        "cuda_driver.state",
        "text",
        "ok, or how far CUDA's driver library comes: library not found, library unusable, loaded (not yet initialised),"
        " failed, crashed, not finished (given up), hung (its process cannot be ended)",
    ),
    fact("cuda_driver.message", "text", "the loader's or the driver's words for it; absent where it is ok or loaded"),
    fact("cuda_driver.library", "text", "the file that a program asking for libcuda.so.1 really gets"),
    fact("cuda_driver.kind", "text", "what that file is: driver, stub, compat or wsl"),
    fact("cuda_driver.version", "version", "newest CUDA that this library serves, by its own word, such as 13.0"),
    fact("cuda_driver.init_code", "int", "what cuInit answers; 0 is success"),
    fact(
        "cuda_driver.init_name",
        "text",
        "the name of that code, such as CUDA_ERROR_SYSTEM_NOT_READY; absent for success",
    ),
    fact("cuda_driver.init_error", "text", "the driver's sentence for it, such as system not yet initialized"),
    fact("cuda_driver.count", "int", "devices that CUDA lists in this session, CUDA_VISIBLE_DEVICES obeyed"),
    fact(
        "cuda_driver.masked",
        "bool",
        "whether CUDA_VISIBLE_DEVICES alone keeps CUDA from every device; absent where it is not set",
    ),
    column("cuda_device.index", "int", "CUDA's number of the device in this session"),
    column("cuda_device.name", "text", "product name; of a MIG device with its profile"),
    column("cuda_device.uuid", "text", "GPU-... or MIG-..."),
    column("cuda_device.address", "text", "PCI address of its GPU, 0000:3b:00.0"),
    column("cuda_device.compute_capability", "version", "compute capability, such as 12.0"),
    column("cuda_device.memory_mib", "int", "total memory", "MiB"),
    column("cuda_device.sms", "int", "streaming multiprocessors"),
    column("cuda_device.clock_mhz", "int", "highest SM clock", "MHz"),
    column("cuda_device.memory_clock_mhz", "int", "highest memory clock", "MHz"),
    column("cuda_device.memory_bus_bits", "int", "width of the memory bus", "bit"),
    column("cuda_device.l2_kib", "int", "size of the L2 cache", "KiB"),
    column("cuda_device.shared_memory_kib", "int", "most shared memory that one block may ask for", "KiB"),
    column("cuda_device.integrated", "bool", "whether it shares the machine's memory"),
    column("cuda_device.ecc", "bool", "whether ECC is on"),
    column("cuda_device.compute_mode", "text", "Default, Exclusive_Process, Exclusive_Thread or Prohibited"),
    column("cuda_device.unified_addressing", "bool", "whether it shares one address space with the host"),
    column("cuda_device.managed_memory", "bool", "whether it can use managed memory"),
    column("cuda_device.concurrent_managed_access", "bool", "whether CPU and GPU may use managed memory at once"),
    column("cuda_device.pageable_memory_access", "bool", "whether it reads ordinary host memory (HMM or ATS)"),
    column("cuda_device.memory_pools", "bool", "whether cudaMallocAsync works"),
    column("cuda_device.gpudirect_rdma", "bool", "whether the driver offers GPUDirect RDMA (nvidia-peermem)"),
    column("cuda_device.dma_buf", "bool", "whether its memory can be handed to other devices as DMA-BUF"),
    column("cuda_device.fabric_handles", "bool", "whether memory can be shared over an NVLink fabric (IMEX)"),
    column("cuda_device.multicast", "bool", "whether NVLink SHARP multicast is supported"),
    column("cuda_device.mps", "bool", "whether contexts go through MPS"),
    column("cuda_device.peers", "list", "numbers of the devices whose memory it can reach directly, such as 1, 2"),
    column("cuda_device.error", "text", "why it does not answer; absent where it does"),
)

SECONDS = patience("GPUDOCTOR_CUDA_TIMEOUT", WAKING)
"""Seconds for each GPU on the bus: the library needs milliseconds where the driver stays loaded, seconds for each GPU
that it must wake.
"""

_TELL = 4.0
"""Seconds after which people are told what it is that takes so long."""
_MASK = "CUDA_VISIBLE_DEVICES"


def deadline(target: Target) -> float:
    """Seconds for all of it on this machine, with a child that takes its time to go."""
    return seconds_to_wake(target, SECONDS) + 8.0


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """What the child told; where CUDA lists nothing under a mask, also what it lists without."""
    started = time.monotonic()
    seconds = seconds_to_wake(target, SECONDS)
    told = _ask(target, "version" if target.level == "quick" else "devices", seconds)
    if isinstance(told, Unread):
        yield from ((spec.name, told) for spec in FACTS if not spec.group)
        yield "cuda_device", told
        return
    yield from told.facts.items()
    yield "cuda_device", told.rows
    if told.words:
        yield "text", ({"line": Known(told.words, told.source)},)
    yield "cuda_driver.masked", _masked(target, told, seconds - (time.monotonic() - started))


def _masked(target: Target, told: Told, seconds: float) -> Fact:
    """Where CUDA lists nothing under a mask, it is asked once more without."""
    if _MASK not in target.environ:
        return Absent(f"{_MASK} is not set")
    count = told.facts["cuda_driver.count"]
    if isinstance(count, (Absent, Unread)):
        return count
    if count.value != 0:
        return Known(False, count.source)
    if seconds < 0.5:
        return Unread("no time was left to ask again")
    second = _ask(target, "unmasked", seconds)
    if isinstance(second, Unread):
        return second
    found = second.facts["cuda_driver.count"]
    return Known(found.value != 0, f"{found.source}, without {_MASK}") if isinstance(found, Known) else found


def _ask(target: Target, depth: str, seconds: float) -> Told | Unread:
    """Run the child in the interpreter being diagnosed, whose loader a user's programs have, else in our own."""
    started = time.monotonic()
    why = ""
    for python in dict.fromkeys(name for name in (target.python, sys.executable) if name):
        argv = [python, "-I", "-S", *script("ask_cuda.py"), depth]
        try:
            left = max(0.1, seconds - (time.monotonic() - started))
            answer = target.run(argv, timeout=left, watch=_telling(target))
        except OSError as error:
            why = why or f"the child that asks libcuda could not be started: {error.strerror or error}"
            continue
        if next(answers(answer.out), None):
            return understood(answer, depth)
        why = why or f"the child that asks libcuda did not start: {_last(answer)}"
        if answer.status is None:
            break
    return Unread(why)


def _telling(target: Target) -> Watch:
    """Tells people which call it is that takes so long."""
    call, began = "the start of CUDA's driver library", time.monotonic()

    def watch(line: str | None) -> bool:
        nonlocal call
        for entry in answers(line) if line else ():
            call = str(entry.get("ask", call))
        if line is None and time.monotonic() - began > _TELL:
            target.listener("libcuda", f"{call} has not returned yet, {time.monotonic() - began:.0f} s")
        return True

    return watch


def _last(answer: Answer) -> str:
    last = (answer.err.strip().splitlines() or [""])[-1]
    return printable(f"{answer.how} {last}".strip())

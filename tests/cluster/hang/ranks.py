"""One rank of a real job of torch with Gloo: it trains, and from some step on one rank does what KIND says.

Runs in the interpreter with torch: ``ranks.py KIND FOLDER``. Each rank writes ``ready-RANK`` when it is about to go
astray, or to wait for the one that does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore] # another interpreter's
import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
from torch.utils.data import DataLoader, Dataset  # type: ignore[import-not-found,unused-ignore]

KIND, FOLDER = sys.argv[1:3]
RANK = int(os.environ["RANK"])
ASTRAY = [int(rank) for rank in os.environ.get("ASTRAY", "2").split(",")]
"""The ranks that do something else."""
SAMPLE = Path(os.environ.get("SAMPLE", f"{FOLDER}/sample"))
"""A file that is never there, for one that reads or writes."""


class Slow(Dataset):  # type: ignore[misc,unused-ignore]
    """Data of which one sample is never there: it is read from a FIFO that nobody writes, or from another file."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 8 and RANK in ASTRAY:
            return torch.tensor([float(len(SAMPLE.read_bytes()))])
        return torch.ones(1)


def load_data() -> None:
    """Train from a DataLoader with workers."""
    for batch in DataLoader(Slow(), batch_size=4, num_workers=2):
        reduce(batch.sum().reshape(1))


def sleep() -> None:
    time.sleep(3600)


def other_collective() -> None:
    dist.broadcast(torch.ones(4), src=0)


def lock_twice() -> None:
    """Two threads that take two locks in opposite order."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        with second:
            pass


def read_socket() -> None:
    """Wait for an answer that never comes."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.recv(1)


def read_file() -> None:
    SAMPLE.read_bytes()


def write_file() -> None:
    with SAMPLE.open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())


def compute() -> None:
    """Work on and on."""
    while True:
        torch.ones(64, 64) @ torch.ones(64, 64)


def dump_calls() -> None:
    """Write what torch's flight recorder holds, as its watchdog for NCCL does where a job hangs."""
    time.sleep(2)
    stem = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    Path(f"{stem}{RANK}").write_bytes(torch._C._distributed_c10d._dump_fr_trace(True, True, False))


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


ACTIONS: dict[str, Callable[[], None]] = {
    "data": load_data,
    "sleep": sleep,
    "other": other_collective,
    "lock": lock_twice,
    "socket": read_socket,
    "file": read_file,
    "write": write_file,
    "compute": compute,
    "stop": stop,
}


def reduce(value: torch.Tensor) -> None:
    """A collective of all ranks."""
    dist.all_reduce(value)


def main() -> None:
    """Train; go astray where that is this rank's part."""
    if KIND == "die" and RANK in ASTRAY:
        os._exit(3)
    Path(f"{FOLDER}/began-{RANK}").touch()
    dist.init_process_group("gloo")
    for _ in range(3):
        reduce(torch.ones(4))
    Path(f"{FOLDER}/ready-{RANK}").touch()
    if KIND == "sound":
        while True:
            reduce(torch.ones(4))
            time.sleep(0.2)
    if KIND == "data":
        load_data()
    elif KIND == "all-compute" or (RANK in ASTRAY and KIND in ACTIONS):
        ACTIONS[KIND.removeprefix("all-")]()
    elif KIND == "shapes":
        threading.Thread(target=dump_calls, daemon=True).start()
        reduce(torch.ones(4 if RANK not in ASTRAY else 2))
    while True:
        reduce(torch.ones(4))


main()

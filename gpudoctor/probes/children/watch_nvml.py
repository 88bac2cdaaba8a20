"""Ask NVML again and again what the GPUs do, until standard input ends.

Run as ``python -I -S watch_nvml.py OURS FOLDER SECONDS LEFT_OUT ALOUD``: OURS and FOLDER as in ask_nvml.py, the seconds
between two rounds, the GPUs that are not to be asked as a JSON list of indices, and ``aloud`` where each call is to be
told before it is made, since the child before died of one. Each line is ``@gpudoctor`` and a JSON object:

``{"seconds": unix clock, "gpus": {"0": {call: answer}}, "errors": {"2": why it does not answer}}`` after each round,
with what is new: an answer, null for what this GPU does not report, or NVML's ``{"code": ..., "text": ...}``;
``{"opened": how many GPUs}`` once, before the first; ``{"waits": call, "gpu": index, "seconds": ...}`` each second
while a call does not return; ``{"ask": call, "gpu": index}`` aloud; ``{"gpu": null, "call": ..., "code": ...,
"text": ...}`` where NVML does not start: then it ends.

nvml_rounds.py has what is asked in a round. Standard library and pynvml only; Python 3.8.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.probes.children.ask_nvml import binding, load
    from gpudoctor.probes.children.nvml_calls import protocol
    from gpudoctor.probes.children.nvml_rounds import Watcher
else:
    sys.path.insert(0, sys.argv[1])
    from ask_nvml import binding, load
    from nvml_calls import protocol
    from nvml_rounds import Watcher

PATIENCE = 1.0


def exit_at_end_of_input() -> None:
    """End the process when standard input ends."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def report_stuck_calls(watcher: Watcher) -> None:
    """Send once in a while which call has not returned for longer than PATIENCE seconds; never returns."""
    while True:
        time.sleep(PATIENCE / 2)
        step = watcher.step
        if step and time.monotonic() - step[2] > PATIENCE:
            line = {"waits": step[0], "gpu": step[1], "seconds": round(time.monotonic() - step[2], 1)}
            os.write(protocol, ("@gpudoctor %s\n" % json.dumps(line)).encode())


def main(folder: str, seconds: str, left_out: str, aloud: str) -> None:
    """Load NVML, initialise it, and ask in rounds every `seconds`; returns only if NVML does not start."""
    _thread.start_new_thread(exit_at_end_of_input, ())
    watcher = Watcher(None, aloud == "aloud")
    _thread.start_new_thread(report_stuck_calls, (watcher,))
    watcher.step = ("the load of the library", -1, time.monotonic())
    if not load(watcher):
        watcher.flush()
        return
    watcher.nvml = binding(folder)
    watcher.step = ("nvmlInit", -1, time.monotonic())
    if watcher.report(None, "nvmlInit", lambda: watcher.nvml.nvmlInit() or 0) is None:
        watcher.flush()
        return
    watcher.step = None
    watcher.open(int(watcher.machine("nvmlDeviceGetCount") or 0), json.loads(left_out))
    watcher.send(opened=len(watcher.handles))
    watcher.flush()
    number, due = 0, time.monotonic()
    while True:
        watcher.round(number)
        number += 1
        due = max(due + float(seconds), time.monotonic() + float(seconds) / 4)
        time.sleep(due - time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[2:])
    os._exit(0)

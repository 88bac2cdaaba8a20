"""Limits and counters of real control groups of version 2: what the readers say, as JSON; run by `test_probe_limits`.

It is the first process of a machine of its own. Each line that begins with ``@`` is a case and what was read in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpudoctor.core.fact import Known, value_of
from gpudoctor.probes import limits
from gpudoctor.probes._job.shared_resources import SharedResources
from gpudoctor.probes._job.waiting import is_frozen
from gpudoctor.target.local import Local

ROOT = Path("/sys/fs/cgroup")
STEP, TASK, SIBLING = ROOT / "step", ROOT / "step/task", ROOT / "step/sibling"
NEW_CGROUP_NAMESPACE = 0x02000000
FORK_REFUSED = "import os\nfor _ in range(64):\n  try: os.fork() or os._exit(0)\n  except BlockingIOError: break\n"
GROW = """
held, events = [], "/sys/fs/cgroup/step/{}/memory.events.local"
while "high 0" in open(events).read(): held.append(bytearray(b"x") * (1 << 20))
"""
EAT = "held = []\nwhile 1: held.append(bytearray(b'x') * (4 << 20))"


def mount() -> None:
    """What a machine has when it starts, and two groups below a step with a limit of its own."""
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("cgroup2", str(ROOT))):
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    (ROOT / "cgroup.subtree_control").write_text("+memory +pids")
    for folder in (STEP, TASK, SIBLING):
        folder.mkdir()
    (STEP / "cgroup.subtree_control").write_text("+memory +pids")
    (STEP / "memory.max").write_text(str(128 << 20))
    (STEP / "pids.max").write_text("16")
    (SIBLING / "memory.max").write_text(str(16 << 20))


def within(group: Path, code: str) -> int:
    """Exit status of Python code that runs in that group."""
    join = f"open('{group}/cgroup.procs', 'w').write('0')\n"
    return subprocess.run([sys.executable, "-S", "-c", join + code], check=False, timeout=600).returncode


def watched(code: str, of: Path = TASK) -> dict[str, Any]:
    """The facts ``run.*`` of code that runs in that group; this process, which looks, is in the task's."""
    shared = SharedResources.here(Local("quick"), "/")
    status = within(of, code)
    shared.look()
    facts = {name.removeprefix("run."): value_of(fact) for name, fact in shared.facts().items()}
    limits_of = ("memory_limit_mib", "memory_limit_at", "memory_high_mib")
    counters = ("oom_kills", "limit_reached", "forks_refused", "memory_throttled")
    return {"status": status, **{name: facts.get(name) for name in (*limits_of, *counters)}}


def limit() -> Any:
    """The fact ``limits.memory_mib`` of this process, where it was read, or which kind of no answer it is."""
    fact = dict(limits.probe(Local("quick")))["limits.memory_mib"]
    return [fact.value, fact.source] if isinstance(fact, Known) else type(fact).__name__


def say(case: str, what: Any) -> None:
    """Print one case, in one piece: the kernel prints to the same console."""
    os.write(1, f"\n@{json.dumps([case, what])}\n".encode())


def main() -> None:
    """All cases, one after the other."""
    mount()
    say("root", [limit(), type(SharedResources.here(Local("quick"), "/").facts()["run.memory_limit_mib"]).__name__])
    (TASK / "cgroup.procs").write_text("0")
    say("task", limit())
    say("killed", watched(EAT))
    say("sibling", watched(EAT, SIBLING))
    say("forks", watched(FORK_REFUSED))
    for group in (SIBLING, TASK):
        (group / "memory.high").write_text(str(8 << 20))
        say(f"{group.name} slowed", watched(GROW.format(group.name), group))
        (group / "memory.high").write_text("max")
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        (SIBLING / "cgroup.procs").write_text(str(sleeper.pid))
        before = is_frozen(sleeper.pid)
        (SIBLING / "cgroup.freeze").write_text("1")
        while "frozen 1" not in (SIBLING / "cgroup.events").read_text():
            os.sched_yield()
        say("frozen", [before, is_frozen(sleeper.pid)])
        sleeper.kill()
        (SIBLING / "cgroup.freeze").write_text("0")
    (STEP / "memory.max").write_text("max")
    (TASK / "memory.max").write_text(str(64 << 20))
    ctypes.CDLL(None).unshare(NEW_CGROUP_NAMESPACE)
    subprocess.run(["umount", str(ROOT)], check=True)
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(ROOT)], check=True)
    say("namespace", [Path("/proc/self/cgroup").read_text(), limit(), watched(EAT, ROOT)])
    subprocess.run(["sh", "-c", "echo o > /proc/sysrq-trigger"], check=False)


if __name__ == "__main__":
    main()

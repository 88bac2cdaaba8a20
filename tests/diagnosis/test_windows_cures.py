"""On Windows no page offers what only Linux has: a package manager, a kernel log, a POSIX shell, a path of Linux."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpudoctor.app.commands import rules
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.fact import Absent, Known
from gpudoctor.core.rule import Case
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from tests.fixes.specimens import BOOK, diagnosed

pytestmark = pytest.mark.full

LINUX_ONLY = ("host.package_manager", "host.distribution", "host.distribution_version", "host.wsl", "host.container")
"""Facts without a value on Windows; a case that gives one is of a Linux machine."""
LINUX_LAYERS = ("container", "nccl", "wsl", "cluster")
"""What they are about is not on Windows: NCCL is not made for it, `fleet` and `preflight` need POSIX."""
LINUX_PAGES = re.compile(
    r"driver\.(?:fabric-\w+|imex|init-failed|module-\S+|open-module-required|uvm|version-mismatch|vgpu-license)"
    r"|driver\.(?:device-nodes|nouveau|secure-boot)"
    r"|env\.(?:forward-compat|libc-too-old|library-path|stub-libcuda)|host\.(?:slurm-gpus|space)"
    r"|host\.(?:clock-\w+|cpu-clock|cpus-offline|huge-pages|memory-errors|memory-short|numa-balancing)"
    r"|gpu\.(?:fabric-split|mig\S*|nvlink-down|pcie-switch|peer-wrong|copies-slow)"
    r"|workload\.(?:killed|memory-high|oom-killed|processes-limit|rank-\w+|shm-full|slurm-ended)"
)
"""Pages whose facts only Linux gives: modules, device files, the dynamic loader, sysfs, kernel log, /proc, signals."""
PROGRAMS = re.compile(
    r"(?:sh|bash|env|apt-get|dnf|zypper|pacman|reboot|dmesg|journalctl|systemctl|modprobe|ldconfig|ldd|lspci|fuser|grep"
    r"|sysctl|dcgmi|chmod|rm|mount|nvidia-modprobe|nvidia-cuda-mps-control|powerprofilesctl|ls|cat|pgrep|ps|free"
    r"|vmstat|sudo|ulimit) "
)
WORDS = re.compile(
    r"\b(?:apt-get|dnf|zypper|pacman|modprobe|systemctl|dmesg|journalctl|ldconfig|mokutil)\b"
    r"|(?<![\w`])(?:export|unset) [A-Z]|~/\.|LD_LIBRARY_PATH|(?<![\w.])/(?:usr|etc|dev|proc|sys|var)/|\blib\w+\.so\b"
)
POSIX_SHELL = re.compile(
    r"\$(?!env:)[\w({]|2>|\|\||\|(?! findstr )|\\\""
    r"|(?:^|[;`] ?)(?:[A-Z_]+=\S* |export |unset |command -v |where |which |sudo |env )"
)
"""What PowerShell reads otherwise: variables, pipes to filters, an assignment before a command, ``where``."""
EITHER = {
    "ext.bitsandbytes": "says both ways in one sentence",
    "torch.mixed-installs": "its cases have Linux's folders",
}


def on_windows(case: Case) -> Snapshot | None:
    """The case's facts and text, on a Windows machine; None where they are of another system."""
    snapshot = rules.snapshot_of(case)
    platform = snapshot.facts.get("host.platform")
    elsewhere = isinstance(platform, Known) and platform.value != "windows"
    if elsewhere or any(isinstance(snapshot.facts.get(name), Known) for name in LINUX_ONLY):
        return None
    absent = dict.fromkeys(LINUX_ONLY, Absent("only Linux has it"))
    return replace(snapshot, facts={**absent, **snapshot.facts, "host.platform": Known("windows", "the platform")})


def found_on_windows() -> Iterator[tuple[Case, Finding]]:
    """Each case that gives its finding on a Windows machine, too."""
    for case in rulebook.cases():
        rule = BOOK.find(case.rule)
        of_linux = not rule or rule.layer in LINUX_LAYERS or LINUX_PAGES.fullmatch(case.rule)
        if of_linux or case.finds is None or case.scope != "machine":
            continue
        if snapshot := on_windows(case):
            yield from ((case, finding) for finding in diagnosed(snapshot).findings if finding.id == case.rule)


def foreign_line(line: str) -> bool:
    """Whether the line for a shell has a word of Linux, or of a shell that Windows does not have."""
    programs = any(PROGRAMS.match(f"{part.strip()} ") for part in line.split(";"))
    return programs or bool(WORDS.search(line) or POSIX_SHELL.search(line))


def test_no_cure_on_windows_is_of_linux() -> None:
    wrong = set()
    judged = set()
    for case, finding in found_on_windows():
        judged.add(case.rule)
        if foreign_line(finding.confirm):
            wrong.add(f"{case.rule}: to be sure: {finding.confirm}")
        wrong |= {f"{case.rule}: {fix.title}: undo: {fix.undo}" for fix in finding.fixes if foreign_line(fix.undo)}
        for fix in finding.fixes:
            for step in fix.steps:
                said = f"{' '.join(step.argv)} {step.text}"
                foreign = WORDS.search(said) or (step.argv and PROGRAMS.match(said))
                if case.rule not in EITHER and foreign:
                    wrong.add(f"{case.rule}: {fix.title}: {said[:120]}")
    assert sorted(wrong) == []
    assert len(judged) > 60, "cases are judged on Windows at all"

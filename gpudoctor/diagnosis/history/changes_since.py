"""What changed since a finding's rule last passed on this machine, of that which the finding's evidence rests on.

By knowledge, not by guess: facts rest on families of packages (`FAMILIES`). Where no kept run tells
when it worked, what the packages' logs have of the last `WINDOW_DAYS` days is said, as such.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from gpudoctor.core.diagnosis import Diagnosis, Finding, Since
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Fact, Known, known, listed, text_of, value_of
from gpudoctor.core.frozen import field, frozen, replace
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.history import Run, Shelf, Worked, interpreter_mark

WINDOW_DAYS = 14
"""Days."""
_DAY_SECONDS = 86400
_MOST_CHANGES = 6


def with_changes(diagnosis: Diagnosis, shelf: Shelf | None = None) -> Diagnosis:
    """The diagnosis with, as `since` of each finding, what changed before it; unchanged where nothing is known.

    Not of findings that are folded or mere information. `shelf` has this machine's kept runs, None for another one.
    """
    return _Past(diagnosis, shelf).annotated()


def keep_with_changes(diagnosis: Diagnosis, shelf: Shelf) -> Diagnosis:
    """The diagnosis as `with_changes` gives it, which is also stored on the shelf; failure to write is ignored."""
    past = _Past(diagnosis, shelf)
    diagnosis_with_changes = past.annotated()
    with suppress(OSError):
        shelf.keep(diagnosis_with_changes, diagnosis_with_changes.tool_version, past.worked())
    return diagnosis_with_changes


class _Past:
    """The runs before this diagnosis, newest first, and the package changes in the logs."""

    def __init__(self, diagnosis: Diagnosis, shelf: Shelf | None) -> None:
        self._diagnosis = diagnosis
        self._now = diagnosis.snapshot
        self._mark = interpreter_mark(diagnosis.snapshot.target.python)
        self._runs = shelf.runs() if shelf and diagnosis.findings else []
        self._entries = logged_changes(diagnosis.snapshot)
        self._clock = time.time()
        self._snapshot = cache(_snapshot_or_none)
        self._worked = cache(self._last_passed)

    def annotated(self) -> Diagnosis:
        """The diagnosis with `since` set on each finding that is neither folded nor mere information.

        Unchanged where no run is kept and no package change is logged.
        """
        if not self._runs and not self._entries:
            return self._diagnosis
        found = self._diagnosis.findings
        folded = {child for finding in found for child in finding.explains}
        silent = [finding.severity == "info" or finding.id in folded for finding in found]
        findings = (
            one if quiet else replace(one, since=self.changes_before(one))
            for one, quiet in zip(found, silent, strict=True)
        )
        return replace(self._diagnosis, findings=tuple(findings))

    def worked(self) -> Worked:
        """By rule id of each finding but for info, the ids of the runs it last passed in: (same interpreter, any).

        An id is empty where it never did.
        """
        ids = dict.fromkeys(finding.id for finding in self._diagnosis.findings if finding.severity != "info")
        pairs = {rule: (self._worked(rule, True), self._worked(rule, False)) for rule in ids}
        return {rule: (own.id if own else "", any_.id if any_ else "") for rule, (own, any_) in pairs.items()}

    def changes_before(self, finding: Finding) -> tuple[Since, ...]:
        """Changes that the finding's evidence may depend on, newest first, at most `_MOST_CHANGES`."""
        facts = [item.fact for item in finding.evidence]
        found: list[Since] = []
        for family in families_of(facts):
            run = self._worked(finding.id, family.inside)
            found += self._family_changes(family, run)
        if run := self._worked(finding.id, True):
            found += self._changed_variables(facts, run)
        return tuple(sorted(dict.fromkeys(found), key=lambda change: change.at or "", reverse=True)[:_MOST_CHANGES])

    def _last_passed(self, rule: str, inside: bool) -> Run | None:
        """The newest kept run in which the rule passed, by the runs or what they recorded; None where it never did,
        that run is kept no more, or nothing tells.

        `inside`: of the same interpreter only. Runs dated in the future, and those that cannot be read, are skipped.
        """
        for run in self._runs:
            if run.stamp > self._clock or (inside and run.mark != self._mark):
                continue
            try:
                if run.passed(rule):
                    return run
                if (known := run.worked(rule, inside)) is not None:
                    return next((earlier for earlier in self._runs if earlier.id == known), None)
            except DocumentError:
                continue
        return None

    def _family_changes(self, family: Family, run: Run | None) -> list[Since]:
        """Logged changes of the family's packages since that run, and its versions that differ from those then.

        Without a run (None), only what was logged in the last `WINDOW_DAYS` days.
        """
        most = self._clock - run.stamp if run else WINDOW_DAYS * _DAY_SECONDS
        own = [entry for entry in self._entries if entry.inside == family.inside and family.has(entry.name)]
        late = [entry for entry in own if entry.age <= most]
        changes = [replace(change, worked=run.time if run else None) for change in changes_of_family(late, family)]
        then = self._snapshot(run) if run else None
        if run is None or then is None:
            return changes
        for fact, what in family.versions.items():
            before, after = _text_or_none(then.get(fact)), _text_or_none(self._now.get(fact))
            if before and after and before != after:
                _add_version_change(changes, Since(what, before, after, self._boot_time(fact), None, fact, run.time))
        return changes

    def _changed_variables(self, facts: Sequence[str], run: Run) -> Iterator[Since]:
        """Environment variables among the facts whose value differs from that run."""
        names = [name for name in dict.fromkeys(facts) if name.startswith("env.")]
        if not names or (then := self._snapshot(run)) is None:
            return
        for name in names:
            before, after = _text_or_none(then.get(name)), _text_or_none(self._now.get(name))
            if before != after:
                yield Since(name.partition(".")[2], before, after, None, None, name, run.time)

    def _boot_time(self, fact: str) -> str | None:
        """For the fact ``host.kernel`` the time of the last boot, ISO 8601 in UTC, if known; None for other facts."""
        uptime_s = self._now.text("host.uptime_s")
        if fact != "host.kernel" or not uptime_s:
            return None
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._clock - float(uptime_s)))


def _add_version_change(changes: list[Since], version: Since) -> None:
    """Appends the version change, unless a logged change has the same new version, and the same old one or none: that
    only gets the old version.
    """
    for place, change in enumerate(changes):
        if change.after == version.after and change.before in (None, version.before):
            changes[place] = replace(change, before=version.before)
            return
    changes.append(version)


def _snapshot_or_none(run: Run) -> Snapshot | None:
    """The run's snapshot; None where it cannot be read."""
    try:
        return run.snapshot()
    except DocumentError:
        return None


def _text_or_none(fact: Fact) -> str | None:
    """The fact's value as text; None where it is not known."""
    return str(fact.value) if isinstance(fact, Known) else None


# ---- The rows of the group ``package_change``, and what many of them come to ----
# A driver is some twenty packages.

_ONE_ACTION_SECONDS = 3600
"""Seconds between the first and the last package of what was one action."""
_LEAST_AGE_SECONDS = -3600
"""Age in seconds: what is dated further after now than that was written by another clock."""
_REVISION = pattern(r"^\d+:|-[^-]*$")
"""What packagers add to a version: an epoch before it, their own revision after it."""


@frozen
class LoggedChange:
    """One package change from a log; `age` in seconds, texts empty where unknown."""

    name: str
    before: str
    after: str
    time: str
    age: int
    by: str
    user: str
    source: str

    @property
    def inside(self) -> bool:
        """Whether it is of a Python environment, not of the machine: its source is pip's RECORD or conda's history."""
        return self.source.endswith("/RECORD") or "/conda-meta/" in self.source


def logged_changes(snapshot: Snapshot) -> list[LoggedChange]:
    """The rows of ``package_change`` with a name and an age, newest first, without those dated in the future."""
    entries = []
    for row in listed(snapshot.rows("package_change")):
        name, age = known(row.get("name")), value_of(row.get("age_s"))
        if name and isinstance(age, int) and age >= _LEAST_AGE_SECONDS:
            before, after, at, by, user = (text_of(row.get(key)) for key in ("before", "after", "time", "by", "user"))
            entries.append(LoggedChange(str(name.value), before, after, at, age, by, user, name.source))
    return sorted(entries, key=lambda entry: entry.age)


def changes_of_family(entries: Sequence[LoggedChange], family: Family) -> Iterator[Since]:
    """For each action (see `_actions`) the change of the family's main package, nothing where its version stayed.

    Where no main package is among them, one change per package.
    """
    for action in _actions(entries):
        main = [entry for entry in action if family.leads(entry.name)]
        before = _common_version([entry.before for entry in main], family)
        after = _common_version([entry.after for entry in main], family)
        if before != after:
            yield _since(family.what, before, after, main[0])
        elif not main:
            yield from (_since(entry.name, entry.before, entry.after, entry) for entry in action)


def _actions(entries: Sequence[LoggedChange]) -> Iterator[list[LoggedChange]]:
    """The changes, newest first, in groups of one action each: same command and user, within an hour."""
    action: list[LoggedChange] = []
    for entry in entries:
        same = action and (entry.by, entry.user) == (action[0].by, action[0].user)
        if action and not (same and entry.age - action[0].age <= _ONE_ACTION_SECONDS):
            yield action
            action = []
        action.append(entry)
    if action:
        yield action


def _common_version(versions: Sequence[str], family: Family) -> str:
    """The most frequent version, without epoch and packaging revision unless the family keeps them; empty for none."""
    plain = versions if family.revision else [_REVISION.sub("", version) for version in versions]
    counted = Counter(filter(None, plain))
    return counted.most_common(1)[0][0] if counted else ""


def _since(what: str, before: str, after: str, entry: LoggedChange) -> Since:
    """The logged change as a `Since` named `what`, with these versions; empty texts become None."""
    by = f"{entry.by} ({entry.user})" if entry.by and entry.user else entry.by or entry.user
    return Since(what, before or None, after or None, entry.time or None, by or None, entry.source)


# ---- Which packages may have changed what a fact tells ----
# The driver's packages what ``driver.*`` says, and so on. Names of packages are those of Ubuntu, Debian, RHEL and
# Fedora (NVIDIA's repositories and RPM Fusion), SUSE, Arch, PyPI and conda, as of November 2025.


@frozen
class Family:
    """Packages of one thing, called `what`.

    `facts` are the beginnings of the names of facts that rest on them, `packages` a regular expression of their whole
    names. Those that `main` matches have the version of the whole thing; it is empty where each package is told by
    itself. `versions` are facts that hold versions, and what each is called. `revision`: what packagers add to a
    version is a part of it. `inside`: they are of the target's Python environment, not of the machine.
    """

    what: str
    facts: tuple[str, ...]
    packages: str
    main: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: bool = False
    inside: bool = False

    def has(self, package: str) -> bool:
        """Whether the package, by its whole name, belongs to the family."""
        return re.fullmatch(self.packages, package) is not None

    def leads(self, package: str) -> bool:
        """Whether the package's version is that of the whole family; False for all where `main` is empty."""
        return bool(self.main) and re.fullmatch(self.main, package) is not None


_DRIVER = (
    r"(?:lib)?nvidia-(?:driver|kernel|dkms|compute|utils|headless|firmware|open|lts|gl|cfg|decode|encode|extra|fbc|common"
    r"|persistenced|settings|ml|ptxjitcompiler|nvvm|cuda-mps|libcuda|modprobe|legacy|video)(?:$|[-_.\d].*)|nvidia|libcuda1"
    r"|(?:kmod|akmod)-nvidia.*|linux-modules-nvidia.*|(?:xorg-x11-drv|xserver-xorg-video)-nvidia.*|cuda-drivers.*"
)
_DRIVER_MAIN = (
    r"nvidia-(?:driver|kernel|dkms|utils|open|compute|headless)(?:$|[-_.\d].*)|libnvidia-compute.*|libcuda1|nvidia"
    r"|(?:kmod|akmod)-nvidia.*|xorg-x11-drv-nvidia(?:-cuda)?|cuda-drivers.*"
)

FAMILIES = (
    Family(
        "driver",
        ("driver.", "nvml.", "cuda_driver.", "cuda_device.", "node.", "kernel_log.", "xid.", "libs.libcuda"),
        _DRIVER,
        _DRIVER_MAIN,
        {"driver.library_version": "driver", "driver.version": "loaded driver"},
    ),
    Family(
        "kernel",
        (
            "host.kernel",
            "host.secure_boot",
            "host.module_signatures",
            "driver.module",
            "driver.headers",
            "driver.nouveau",
        ),
        r"linux(?:$|-(?!modules-nvidia).*)|kernel(?:$|-.*)|dkms|shim-signed|mokutil",
        r"linux-image-.*|linux(?:$|-(?:lts|zen|hardened))|kernel(?:$|-(?:core|default|longterm|uek))",
        {"host.kernel": "running kernel"},
        revision=True,
    ),
    Family(
        "fabric manager",
        ("fabric.", "imex.", "driver.fabric_manager", "driver.nvswitch", "gpu.fabric"),
        r"(?:cuda-drivers-|nvidia-)fabric-?manager.*|nvlsm|nvidia-imex.*",
        r"(?:cuda-drivers-|nvidia-)fabric-?manager.*|nvidia-imex.*",
        {"fabric.installed_version": "fabric manager", "imex.version": "IMEX"},
    ),
    Family(
        "container toolkit",
        ("container.",),
        r"(?:lib)?nvidia-container.*|docker.*|containerd.*|podman.*|cri-o.*|runc",
        versions={"container.toolkit_version": "NVIDIA Container Toolkit"},
    ),
    Family(
        "torch",
        (
            "torch.",
            "live.",
            "live_gpu.",
            "pin.",
            "python.",
            "package.",
            "triton.",
            "extension.",
            "libs.",
            "lib.",
            "nccl.",
            "libnccl.",
        ),
        r"(?:py)?torch(?:-.*|vision|audio)?|(?:pytorch-)?triton.*|nvidia-.*-cu\d\d|nvidia-(?:cublas|cudnn|nccl|cuda-).*"
        r"|flash-attn|xformers|vllm|cudatoolkit|libtorch",
        r"(?:py)?torch",
        {"torch.version": "torch", "python.version": "Python"},
        inside=True,
    ),
    Family(
        "CUDA toolkit",
        ("cuda.", "toolkit."),
        r"cuda(?!-drivers)(?:$|-.*)|libcu.*|libnv(?:jpeg|jitlink|rtc).*|nvidia-cuda-toolkit",
        r"cuda(?:-toolkit.*)?|nvidia-cuda-toolkit",
        {"cuda.nvcc_version": "nvcc"},
    ),
    Family(
        "NCCL",
        ("nccl.", "libnccl."),
        r"libnccl.*|nccl",
        r"libnccl2?|nccl",
        {"libnccl.version": "NCCL"},
    ),
    Family(
        "RDMA packages",
        ("rdma.", "interface."),
        r"rdma-core|libibverbs.*|mlnx.*|ofed.*|doca.*|ucx.*",
    ),
)


def families_of(names: Iterable[str]) -> Iterator[Family]:
    """Those of `FAMILIES`, in that order, with a prefix in `facts` that begins one of these names; each once."""
    fact_names = tuple(names)
    for family in FAMILIES:
        if any(name.startswith(family.facts) for name in fact_names):
            yield family

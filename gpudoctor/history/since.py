"""What changed since a finding's rule last passed on this machine, of that which the finding's evidence rests on.

By knowledge, not by guess: facts rest on families of packages (`gpudoctor.history.since`). Where no kept run tells
when it worked, what the packages' logs have of the last `WINDOW` days is said, as such.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from gpudoctor.history.run import Run, Worked, mark
from gpudoctor.history.shelf import Shelf
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Known, listed
from gpudoctor.model.frozen import field, frozen, replace
from gpudoctor.model.pattern import pattern
from gpudoctor.model.since import Since
from gpudoctor.model.snapshot import Snapshot

WINDOW = 14
"""Days."""
_DAY = 86400
_MOST = 6


def dated(diagnosis: Diagnosis, shelf: Shelf | None = None) -> Diagnosis:
    """The diagnosis with what changed before each finding that no other explains; as it is where nothing is known.

    `shelf` has the kept runs of the machine, where it is this one.
    """
    return _Past(diagnosis, shelf).told()


def kept(diagnosis: Diagnosis, shelf: Shelf) -> Diagnosis:
    """As `dated`, and the run is kept, too, where it can be."""
    past = _Past(diagnosis, shelf)
    told = past.told()
    with suppress(OSError):
        shelf.keep(told, told.tool_version, past.worked())
    return told


class _Past:
    """The runs before this one, the newest first, and the changes that the logs tell."""

    def __init__(self, diagnosis: Diagnosis, shelf: Shelf | None) -> None:
        self._diagnosis = diagnosis
        self._now = diagnosis.snapshot
        self._mark = mark(diagnosis.snapshot.target.python)
        self._runs = shelf.runs() if shelf and diagnosis.findings else []
        self._entries = logged(diagnosis.snapshot)
        self._clock = time.time()
        self._snapshot = cache(_snapshot_of)
        self._worked = cache(self._last_passed)

    def told(self) -> Diagnosis:
        """The diagnosis with what is known of it."""
        if not self._runs and not self._entries:
            return self._diagnosis
        found = self._diagnosis.findings
        folded = {child for finding in found for child in finding.explains}
        silent = [finding.severity == "info" or finding.id in folded for finding in found]
        told = (one if quiet else replace(one, since=self.of(one)) for one, quiet in zip(found, silent, strict=True))
        return replace(self._diagnosis, findings=tuple(told))

    def worked(self) -> Worked:
        """For each finding the run in which it was not found last."""
        ids = dict.fromkeys(finding.id for finding in self._diagnosis.findings if finding.severity != "info")
        pairs = {rule: (self._worked(rule, True), self._worked(rule, False)) for rule in ids}
        return {rule: (own.id if own else "", any_.id if any_ else "") for rule, (own, any_) in pairs.items()}

    def of(self, finding: Finding) -> tuple[Since, ...]:
        """What changed of what its evidence rests on, the newest first."""
        facts = [item.fact for item in finding.evidence]
        found: list[Since] = []
        for family in of_facts(facts):
            run = self._worked(finding.id, family.inside)
            found += self._in(family, run)
        if run := self._worked(finding.id, True):
            found += self._settings(facts, run)
        return tuple(sorted(dict.fromkeys(found), key=lambda one: one.at or "", reverse=True)[:_MOST])

    def _last_passed(self, rule: str, inside: bool) -> Run | None:
        """The last run in which that rule passed; of the same interpreter, where it is about what is inside of it."""
        for run in self._runs:
            if run.stamp > self._clock or (inside and run.mark != self._mark):
                continue
            try:
                if run.passed(rule):
                    return run
                if (known := run.worked(rule, inside)) is not None:
                    return next((one for one in self._runs if one.id == known), None)
            except DocumentError:
                continue
        return None

    def _in(self, family: Family, run: Run | None) -> list[Since]:
        """Changes of its packages since that run, or of late; then versions that are others than in that run."""
        most = self._clock - run.stamp if run else WINDOW * _DAY
        own = [entry for entry in self._entries if entry.inside == family.inside and family.has(entry.name)]
        late = [entry for entry in own if entry.age <= most]
        told = [replace(one, worked=run.time if run else None) for one in grouped(late, family)]
        then = self._snapshot(run) if run else None
        if run is None or then is None:
            return told
        for fact, what in family.versions.items():
            before, after = _text(then.get(fact)), _text(self._now.get(fact))
            if before and after and before != after:
                _add(told, Since(what, before, after, self._when(fact), None, fact, run.time))
        return told

    def _settings(self, facts: Sequence[str], run: Run) -> Iterator[Since]:
        """Environment variables among the facts that had another value, or none."""
        names = [name for name in dict.fromkeys(facts) if name.startswith("env.")]
        if not names or (then := self._snapshot(run)) is None:
            return
        for name in names:
            before, after = _text(then.get(name)), _text(self._now.get(name))
            if before != after:
                yield Since(name.partition(".")[2], before, after, None, None, name, run.time)

    def _when(self, fact: str) -> str | None:
        """A running kernel is that of the last boot."""
        up = self._now.get("host.uptime_s")
        if fact != "host.kernel" or not isinstance(up, Known):
            return None
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._clock - float(str(up.value))))


def _add(told: list[Since], version: Since) -> None:
    """What a log has already is not said twice; where it has only the new version, what was before is added to it."""
    for place, one in enumerate(told):
        if one.after == version.after and one.before in (None, version.before):
            told[place] = replace(one, before=version.before)
            return
    told.append(version)


def _snapshot_of(run: Run) -> Snapshot | None:
    try:
        return run.snapshot()
    except DocumentError:
        return None


def _text(fact: Fact) -> str | None:
    return str(fact.value) if isinstance(fact, Known) else None


# ---- The rows of the group ``package_change``, and what many of them come to ----
# A driver is some twenty packages.

_TOGETHER = 3600
"""Seconds between the first and the last package of what was one action."""
_EARLIEST = -3600
"""Age in seconds: what is dated further after now than that was written by another clock."""
_REVISION = pattern(r"^\d+:|-[^-]*$")
"""What packagers add to a version: an epoch before it, their own revision after it."""


@frozen
class Logged:
    """One row; `age` in seconds, texts empty where there is nothing."""

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
        """Whether it is of a Python environment: pip's RECORD or conda's history told it."""
        return self.source.endswith("/RECORD") or "/conda-meta/" in self.source


def logged(snapshot: Snapshot) -> list[Logged]:
    """Every row that is whole, the newest first; those dated after the snapshot are left out."""
    rows = snapshot.rows("package_change")
    found = []
    for row in listed(rows):
        values = {column: state.value for column, state in row.items() if isinstance(state, Known)}
        name, age = row.get("name"), values.get("age_s")
        if isinstance(name, Known) and isinstance(age, int) and age >= _EARLIEST:
            before, after, at, by, user = (
                str(values.get(key, "")) for key in ("before", "after", "time", "by", "user")
            )
            found.append(Logged(str(name.value), before, after, at, age, by, user, name.source))
    return sorted(found, key=lambda entry: entry.age)


def grouped(entries: Sequence[Logged], family: Family) -> Iterator[Since]:
    """What was one action told once where the family has a version of its own, else package by package."""
    for action in _actions(entries):
        main = [entry for entry in action if family.leads(entry.name)]
        before, after = (
            _version([entry.before for entry in main], family),
            _version([entry.after for entry in main], family),
        )
        if before != after:
            yield _since(family.what, before, after, main[0])
        elif not main:
            yield from (_since(entry.name, entry.before, entry.after, entry) for entry in action)


def _actions(entries: Sequence[Logged]) -> Iterator[list[Logged]]:
    """Those together that the same command made within an hour."""
    action: list[Logged] = []
    for entry in entries:
        same = action and (entry.by, entry.user) == (action[0].by, action[0].user)
        if action and not (same and entry.age - action[0].age <= _TOGETHER):
            yield action
            action = []
        action.append(entry)
    if action:
        yield action


def _version(versions: Sequence[str], family: Family) -> str:
    """That of most packages, as its makers write it."""
    plain = versions if family.revision else [_REVISION.sub("", version) for version in versions]
    counted = Counter(filter(None, plain))
    return counted.most_common(1)[0][0] if counted else ""


def _since(what: str, before: str, after: str, entry: Logged) -> Since:
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
        """Whether it is one of them."""
        return re.fullmatch(self.packages, package) is not None

    def leads(self, package: str) -> bool:
        """Whether that one's version is the version of the whole."""
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


def of_facts(names: Iterable[str]) -> Iterator[Family]:
    """The families whose packages those facts rest on, each once."""
    fact_names = tuple(names)
    for family in FAMILIES:
        if any(name.startswith(family.facts) for name in fact_names):
            yield family

"""Every build against one machine and what is wanted on it: which fit, what goes beside them, why others do not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from gpudoctor.model.frozen import frozen
from gpudoctor.setup.builds import Build
from gpudoctor.setup.candidate import Package
from gpudoctor.setup.checks import CHECKS, Check, compiles_first, quarrelling, strangers
from gpudoctor.setup.companions import Refused, beside
from gpudoctor.setup.machine import Machine
from gpudoctor.setup.releases import usual_cuda
from gpudoctor.setup.wants import Wants, taken


@frozen(slots=False)
class Fit:
    """A build that runs on the machine, with the packages that go beside it."""

    build: Build
    machine: Machine
    packages: tuple[Package, ...]

    @cached_property
    def compiled(self) -> bool:
        """Whether something must be compiled."""
        return any(package.compiled for package in self.packages)

    @cached_property
    def like(self) -> str:
        """The release by whose list of code it was judged, where the tables do not have its own."""
        wheels = self.machine.wheels
        return self.build.listings[wheels].like if wheels and self.machine.devices else ""

    @cached_property
    def default(self) -> bool:
        """Whether the package index gives it by itself."""
        return self.machine.wheels is not None and self.build.default(self.machine.wheels)

    @cached_property
    def full(self) -> bool:
        """Whether the driver serves its CUDA in full."""
        return self.machine.driver is None or self.machine.driver.serves_fully(self.build.cuda)

    @cached_property
    def jit(self) -> bool:
        """Whether some GPU runs it only through PTX."""
        return compiles_first(self.build, self.machine)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sorts the best first: nothing to compile, the newest release, and among its builds the one to rely on.

        That is: its code is known, no GPU goes through PTX, its CUDA major is not older than that of the package
        index, nothing rests on minor-version compatibility; then the one that needs no index of its own, then the
        newest CUDA.
        """
        release = tuple(-number for number in self.build.version.release)
        cuda = tuple(-number for number in self.build.cuda)
        behind = self.build.cuda[0] < usual_cuda(self.build)
        return self.compiled, release, bool(self.like), self.jit, behind, not self.full, not self.default, cuda


@frozen
class Rejected:
    """A build that does not run there, and the first thing that is in its way."""

    build: Build
    by: Check | Literal["generation"] | Refused


def offered(machine: Machine, wants: Wants) -> tuple[Build, ...]:
    """The builds that come into question: those without CUDA where neither GPU nor driver is known."""
    return taken(wants.torch.specifier, wants.minor, True) if machine.bare else wants.builds


def fits(machine: Machine, wants: Wants) -> bool:
    """Whether anything fits."""
    return next(fitting(machine, wants), None) is not None


def fitting(machine: Machine, wants: Wants) -> Iterator[Fit]:
    """Everything that fits, the newest release first."""
    good = frozenset.intersection(*(passing(machine) for passing in CHECKS.values()))
    alien = strangers(machine) or quarrelling(machine)
    for build in offered(machine, wants):
        if build in good and not (alien and build.cuda[0]):
            packages = _beside(wants, build, machine)
            if not isinstance(packages, Refused):
                yield Fit(build, machine, packages)


def judged(machine: Machine, wants: Wants) -> Iterator[Fit | Rejected]:
    """Every build that comes into question, judged."""
    alien = strangers(machine) or quarrelling(machine)
    checks = [(name, passing(machine)) for name, passing in CHECKS.items()]
    for build in offered(machine, wants):
        failed = next((name for name, good in checks if build not in good), None)
        if failed or (alien and build.cuda[0]):
            yield Rejected(build, failed or "generation")
            continue
        packages = _beside(wants, build, machine)
        yield Rejected(build, packages) if isinstance(packages, Refused) else Fit(build, machine, packages)


def _beside(wants: Wants, build: Build, machine: Machine) -> tuple[Package, ...] | Refused:
    return beside(wants, build, machine) if wants.beside or wants.others else ()

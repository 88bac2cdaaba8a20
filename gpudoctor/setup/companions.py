"""What goes beside one build of torch: every package that is wanted at a version that fits it and the others."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor.model.frozen import frozen
from gpudoctor.setup.builds import Build
from gpudoctor.setup.candidate import Package
from gpudoctor.setup.machine import Machine, Place
from gpudoctor.setup.releases import Release, releases, support
from gpudoctor.setup.wants import Want, Wants


@frozen
class Refused:
    """The want that cannot be met, and why."""

    want: Want
    because: str


def beside(wants: Wants, build: Build, machine: Machine) -> tuple[Package, ...] | Refused:
    """The newest of each that fits, in the order of `FOLLOWED`, those not followed as they were given; or why none."""
    found: list[tuple[Want, tuple[Release, ...]]] = []
    place = machine.place
    for want in wants.beside:
        if because := unsupported(want.name, build.cuda[0], place):
            return Refused(want, because)
        if not (fitting := releases(want, build, place)):
            return Refused(want, none_fits(want, build, place))
        found.append((want, fitting))
    chosen = _together(found, {})
    if chosen is None:
        names = " and ".join(want.text for want, _ in found)
        return Refused(found[0][0], f"no releases of {names} go together beside torch {build.torch}")
    others = (Package(want.name, "", asked=want.text) for want in wants.others)
    return (*chosen, *others)


def _together(found: list[tuple[Want, tuple[Release, ...]]], pins: dict[str, str]) -> tuple[Package, ...] | None:
    """The first choice of one release of each, newest first, in which none pins another to a version not chosen."""
    if not found:
        return ()
    (want, fitting), *rest = found
    for release in fitting:
        if pins.get(want.name, release.package.version) != release.package.version:
            continue
        if (others := _together(rest, {**pins, **dict(release.pins)})) is not None:
            return (release.package, *others)
    return None


@lru_cache(maxsize=1 << 12)
def unsupported(name: str, cuda: int, place: Place) -> str:
    """Why a package cannot be had there at all, for system, GPU or kind of Python; empty where it can.

    `cuda` is the CUDA major beside which it would be.
    """
    asks = support(name)
    if "systems" in asks and place.wheels not in asks["systems"].split():
        names = {"windows": "Windows", "aarch64": "Arm", "linux": "Linux"}
        return f"{name} has no GPU wheel for {names.get(place.wheels or '', 'this system')}"
    least = asks.get(f"cc_{cuda}", asks.get("cc", "0.0"))
    floor = tuple(map(int, least.split(".")))
    if older := [one.name for one in place.devices if any(each < floor for each in one.capabilities)]:
        return f"{name} needs compute capability {least} or newer: {', '.join(older)}"
    if place.python.endswith("t") and not asks.get("free_threaded", True):
        return f"{name} has no wheel for Python without the global lock ({place.python})"
    return ""


def none_fits(want: Want, build: Build, place: Place) -> str:
    """Why no release of the package goes with the build, as nearly as one sentence can say it."""
    if want.name in ("torchvision", "torchaudio", "triton"):
        own = build.release.get(want.name)
        return f"goes with {want.name} {own}, not {want.text}" if own else f"goes with no {want.name} of the tables"
    python = " and Python {}.{}".format(*place.numbers) if place.python else ""
    if want.name in ("tensorflow", "jax"):
        return f"no {want.text} goes with CUDA {build.cuda[0]}, its cuDNN and NCCL{python}"
    return f"no {want.text} of the tables goes with it{python}"

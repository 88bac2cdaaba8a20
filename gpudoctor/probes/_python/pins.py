"""Whether the nvidia-* and triton wheels in the environment are those that torch, TensorFlow or JAX pin."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.distribution import normal
from gpudoctor.model.frozen import frozen
from gpudoctor.model.version import parse
from gpudoctor.probes._python.dists import Dist, Environment
from gpudoctor.probes._python.requires import least, meets, requirements, wanted_text
from gpudoctor.probes._python.site import Site, once
from gpudoctor.probes._python.torch_files import Torch
from gpudoctor.target import Target

_PINNED = ("nvidia-", "triton", "pytorch-triton", "cuda-")


@frozen
class Unmet:
    """A requirement that the environment does not meet; `has` is None where the wheel is not installed.

    `wants` is the whole specifier, an exact pin without its ``==``; `least` its exact or lowest version, or empty.
    """

    name: str
    wants: str
    least: str
    has: str | None

    @property
    def sentence(self) -> str:
        """``nvidia-cudnn-cu12 wants 9.1.0.70, has 9.5.1.17``."""
        return f"{self.name} wants {self.wants}, {f'has {self.has}' if self.has else 'is not installed'}"


def unmet(
    target: Target, site: Site, environment: Environment, dist: Dist, extras: tuple[str, ...] = ("",)
) -> Iterator[Unmet]:
    """Each requirement on an NVIDIA wheel or triton that is not met, once. Raises `OSError`."""
    told: set[Unmet] = set()
    for need in requirements(target, site, dist, lambda name: name.startswith(_PINNED), extras):
        name = normal(need.name)
        has = environment.first(name)
        if has is None or (parse(has.version) and not meets(has.version, need)):
            found = Unmet(name, wanted_text(need) or "any version", least(need), has.version if has else None)
            if found not in told:
                told.add(found)
                yield found
        elif name == "cuda-toolkit" and dist.name != name:  # a list of wheels by extras, no files of its own
            yield from unmet(target, site, environment, has, tuple(sorted(need.extras)))


def torch_unmet(target: Target, torch: Torch, dist: Dist) -> tuple[Unmet, ...]:
    """What torch's own dist-info `dist` asks for in vain; worked out once for all probes. Raises `OSError`."""
    return once(target, "torch's pins", lambda: tuple(unmet(target, torch.site, torch.environment, dist)))

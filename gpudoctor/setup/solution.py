"""What fits a machine, and why that and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.model.frozen import field, frozen
from gpudoctor.model.stack import Need, Reason, Remedy, Wishes
from gpudoctor.setup.candidate import Candidate


@frozen
class Solution:
    """The answer to wishes. `ranked` is every stack that fits, the best first; where it is empty, `smallest` says
    what would have to change, the cheapest first.

    `reasons` are those that a person wants: the choice, its nearest alternatives, and what was rejected before it.
    `needs` are what the best asks of the machine, `remarks` what was assumed or left unjudged, `sources` where the
    facts are from. `offers` has for fields of the wishes the values that one may ask for.
    """

    wishes: Wishes
    ranked: tuple[Candidate, ...] = ()
    heading: str = ""
    """What the reasons are about: ``torch 2.9 comes for CUDA 12.6, 12.8 and 13.0``."""
    reasons: tuple[Reason, ...] = ()
    needs: tuple[Need, ...] = ()
    smallest: tuple[Remedy, ...] = ()
    remarks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def best(self) -> Candidate | None:
        """The stack to install; None where nothing fits."""
        return self.ranked[0] if self.ranked else None

"""Collectives over the hosts of a job: each rank asks a child of its own, and what all of them say becomes facts.

`run` is one rank's part, `Across` what came of it, `facts_of` what follows from those of all ranks.
"""

from gpudoctor.kernels.across.answer import Across as Across
from gpudoctor.kernels.across.asking import Member as Member
from gpudoctor.kernels.across.asking import run as run
from gpudoctor.kernels.across.facts import facts_of as facts_of

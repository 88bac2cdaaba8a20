"""The smallest change with which something fits, where nothing does.

The kinds of change, the one that costs the least first:

1. another driver: one package of the distribution and a restart; the environment and all that is wished stay;
2. another Python: a new environment, nothing of the machine;
3. another release of torch than the one asked for: what was written for it may need work;
4. without one of the packages asked for;
5. WSL in place of Windows, 6. without one of the GPUs, and 7. a newer C library, which is another distribution.

A driver that the distribution does not ship comes after 4: it takes another repository. Of each kind the smallest
change is named, tried by judging everything again. Where no change of one kind will do, those of two kinds together
are tried, then of three; the cheapest few are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, combinations, islice

from gpudoctor.language import say
from gpudoctor.model.frozen import replace
from gpudoctor.model.stack import Remedy
from gpudoctor.setup.changes import KINDS, Case, Kind
from gpudoctor.setup.distributions import ships

_MOST = 5
"""Changes of one kind each that are named at most; of those that need several kinds, two."""


def smallest(case: Case) -> tuple[Remedy, ...]:
    """The changes, the cheapest first; none where nothing that can be changed would help."""
    kinds = [kind for kind in KINDS if kind.applies(case)]
    if not _lifted(case, kinds).fits:
        return ()
    for several in (1, 2, 3):
        found = chain.from_iterable(_together(case, subset) for subset in combinations(kinds, several))
        if named := list(islice(found, _MOST if several == 1 else 2)):
            return tuple(sorted(named, key=lambda remedy: _elsewhere(remedy, case)))
    return ()


def _elsewhere(remedy: Remedy, case: Case) -> int:
    """Sorts a driver that the distribution does not ship behind what changes only the environment or the wishes."""
    if remedy.field == "driver":
        return 0 if ships(case.distribution, remedy.value) else 1
    return 2 if remedy.field in ("os", "gpus", "libc") else 0


def _together(case: Case, kinds: Sequence[Kind]) -> Iterator[Remedy]:
    """Changes of all these kinds at once: each is the smallest with which the rest can still do it."""
    first, *rest = kinds
    if not _lifted(case, kinds).fits:
        return
    for changed, remedy in first.steps(case, lambda tried: _lifted(tried, rest).fits):
        if not rest:
            yield remedy
        elif others := next(_together(changed, rest), None):
            also = (replace(others, also=()), *others.also)
            yield replace(remedy, text=say("{one}, and {other}", one=remedy.text, other=others.text), also=also)
            return


def _lifted(case: Case, kinds: Sequence[Kind]) -> Case:
    """The case with the bounds of these kinds lifted."""
    return reduce(lambda so_far, kind: kind.lifted(so_far), kinds, case)

"""The numbers of torch's out-of-memory message, in its three wordings."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text

_OLDEST = (
    "Tried to allocate 338.00 MiB (GPU 0; 3.95 GiB total capacity; 1.62 GiB already allocated; 23.00 MiB free;"
    " 9.10 MiB cached)"
)
_OLD = (
    "Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 2.81 GiB already allocated; 25.38 MiB free;"
    " 3.06 GiB reserved in total by PyTorch)"
)
_NEW = (
    "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.00 GiB is free. Including"
    " non-PyTorch memory, this process has 22.00 GiB memory in use. Of the allocated memory 21.50 GiB is allocated by"
    " PyTorch, and 256.10 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("message", "total", "own", "others"),
    [(_OLDEST, 4044, 1667, 2354), (_OLD, 8120, 3133, 4962), (_NEW, 24207, 22528, 655)],
)
def test_who_holds_the_memory(message: str, total: int, own: int, others: int) -> None:
    facts = read_text(f"RuntimeError: CUDA out of memory. {message}").facts
    told = {name: fact.value for name, fact in facts.items() if isinstance(fact, Known) and name.startswith("oom.")}
    assert told == {"oom.total_mib": total, "oom.own_mib": own, "oom.others_mib": others}


def test_another_programs_words() -> None:
    assert "oom.total_mib" not in read_text("CUDA out of memory: total capacity exceeded").facts

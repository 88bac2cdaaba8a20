"""How full the GPU's memory is, as people write it."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text


def _memory(text: str) -> tuple[object, object]:
    rows = read_text(text).rows("gpu")
    row = rows[0] if isinstance(rows, tuple) and rows else {}
    used, total = row.get("memory_used_mib"), row.get("memory_mib")
    return (used.value if isinstance(used, Known) else None, total.value if isinstance(total, Known) else None)


@pytest.mark.parametrize(
    ("text", "used", "total"),
    [
        ("nvidia-smi just before: 23877MiB / 24268MiB", 23877, 24268),
        ("other jobs on it: 23900 of 24400 MiB", 23900, 24400),
        ("gpu memory in use: 23.5 of 24 GB", 24064, 24576),
        ("download: 3.1 of 5.0 GB", None, None),
        ("host ram used: 120 of 128 GB", None, None),
        ("gpu used: 3 of 8 GB\ngpu used: 7 of 8 GB", None, None),
        ("gpu used: 12000 of 8000 MiB", None, None),
    ],
)
def test_used_and_total(text: str, used: int | None, total: int | None) -> None:
    """One pair is taken; of several, or of another memory, none."""
    assert _memory(text) == (used, total)

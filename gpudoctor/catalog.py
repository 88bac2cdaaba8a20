"""The one dictionary of facts, gathered from those who declare them."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor import cluster, probes
from gpudoctor.discovery import modules_of
from gpudoctor.kernels import facts
from gpudoctor.model.catalog import Catalog
from gpudoctor.readers import _retired, every_reader
from gpudoctor.readers.files import formats


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Every fact that any probe, reader or kernel declares."""
    return Catalog(
        spec
        for module in (*modules_of(probes), *every_reader(), *formats(), facts, cluster, _retired)
        for spec in getattr(module, "FACTS", ())
    )

"""What kernels and fleet checks of the demo machines answered, as the demos ship it.

The values are invented; their proportions are those of healthy H100s and of the faults that they show.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from gpudoctor.app import demos
from gpudoctor.core import fleet, measurement
from gpudoctor.core.fleet import Fleet
from gpudoctor.core.measurement import Measurements


@cache
def node() -> Measurements:
    """Eight H100: one held back by heat, one that computes wrong values, one in use."""
    return measurement.from_json(_document("hot-gpu/kernels"))


@cache
def too_old() -> Measurements:
    """Eight H100 whose driver is too old for torch: nothing gets beyond the second rung."""
    return measurement.from_json(_document("torch-cu130/kernels"))


@cache
def rack() -> Fleet:
    """Eight hosts: one slow link, one driver that differs, one that does not answer."""
    return fleet.from_json(_document("hot-gpu/cluster"))


@cache
def cluster() -> Fleet:
    """64 hosts with 512 GPUs on four leaf switches: one bad host, one bad link, a wrong GPU, two that do not answer."""
    return fleet.from_json(_document("sound/cluster"))


def _document(name: str) -> Any:
    return json.loads(gzip.decompress((Path(demos.__file__).parent / f"{name}.json.gz").read_bytes()))

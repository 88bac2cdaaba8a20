"""The one dictionary of facts, gathered from those who declare them."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor import probes
from gpudoctor.core import fleet, job
from gpudoctor.core.catalog import Catalog, FactSpec, column, fact
from gpudoctor.core.shipped import modules_of
from gpudoctor.kernels import facts
from gpudoctor.readers import readers_by_exactness
from gpudoctor.readers.files import formats

_TRIED = (
    "p2p_off iommu_off ib_off gid_index gdr_off cross_nic_off peermem memlock cumem_off custom_all_reduce_off"
    " shm_larger interface host_network firewall_off ipv6_off mask_off library_path_off one_gpu several_gpus one_node"
)
RETIRED: tuple[FactSpec, ...] = (
    *(fact(f"tried.{name}", "text", "not read since 1.1: whether a change cured the job") for name in _TRIED.split()),
    fact("container.host_smi", "bool", "not read since 1.1: whether nvidia-smi works on the host"),
    fact("container.inside_smi", "bool", "not read since 1.1: whether nvidia-smi works in the container"),
    fact("container.host_cuda", "version", "not read since 1.1: the driver's CUDA on the host"),
    fact("container.inside_cuda", "version", "not read since 1.1: the driver's CUDA in the container"),
    fact("container.others_work", "bool", "not read since 1.1: whether another container has GPUs"),
    fact("container.restart_cures", "bool", "not read since 1.1: whether a restart brings the GPUs back"),
    fact("live.computes", "bool", "not read since 1.1: whether torch's operations run on the GPU"),
    fact("driver.works_as_root", "bool", "not read since 1.1: whether root alone can use the GPU"),
    column("text.listed", "bool", "not read since 1.1: whether it is of a listing of state that was understood"),
)
"""Facts of 1.0 that rested on people's prose, or served to guess from it. They stay declared, so that a page of a
site's own that names one still loads; its condition is unread.
"""


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Every fact that any probe, reader or kernel declares, and those of 1.0 that none tells any more."""
    declared = (
        spec
        for module in (*modules_of(probes), *readers_by_exactness(), *formats(), facts, fleet, job)
        for spec in getattr(module, "FACTS", ())
    )
    return Catalog((*declared, *RETIRED))

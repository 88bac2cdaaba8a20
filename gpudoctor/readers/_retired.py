"""Facts of 1.0 that nothing tells any more: they rested on what people wrote, not on what a program printed.

They stay declared, so that a site's own page that weighs one still loads; its condition is then unread.
"""

from __future__ import annotations

from gpudoctor.model.catalog import FactSpec, fact

_TRIED = (
    "p2p_off iommu_off ib_off gid_index gdr_off cross_nic_off peermem memlock cumem_off custom_all_reduce_off"
    " shm_larger interface host_network firewall_off ipv6_off mask_off library_path_off one_gpu several_gpus one_node"
)
_FLAGS = ("host_smi", "inside_smi", "others_work", "restart_cures")

FACTS: tuple[FactSpec, ...] = (
    *(fact(f"tried.{name}", "text", "not read since 1.1: whether a change cured the job") for name in _TRIED.split()),
    *(fact(f"container.{name}", "bool", "not read since 1.1: what worked inside or outside") for name in _FLAGS),
    *(fact(f"container.{side}_cuda", "version", "not read since 1.1: the CUDA") for side in ("host", "inside")),
    fact("live.computes", "bool", "not read since 1.1: whether torch's operations run on the GPU"),
    fact("driver.works_as_root", "bool", "not read since 1.1: whether root alone can use the GPU"),
)

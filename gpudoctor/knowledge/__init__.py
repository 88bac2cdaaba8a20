"""The tables of ``rules/tables``, with typed look-ups; and what follows from a snapshot's facts by them.

Every look-up lets an absent value through and raises `CannotJudge` where its table has no row or the value is not
what it should be: the rule that asked is then unjudged, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoctor.knowledge import (
    archs,
    builds,
    drivers,
    error_codes,
    gpus,
    nccl_settings,
    requirements,
    symbols,
    toolchain,
    visible,
)
from gpudoctor.knowledge.implied import complete

_CALLABLE = (
    drivers.driver_floor,
    drivers.driver_serves,
    drivers.driver_cuda,
    drivers.driver_jits,
    drivers.driver_branch,
    drivers.driver_for,
    gpus.gpu_known,
    gpus.gpu_capability,
    gpus.gpu_generation,
    gpus.gpu_floor,
    gpus.gpu_ceiling_of,
    gpus.gpu_floor_of,
    gpus.gpu_ceiling,
    gpus.gpu_spec,
    gpus.open_module,
    gpus.open_module_of,
    gpus.is_datacenter,
    gpus.has_nvlink,
    gpus.needs_fabric_manager,
    archs.runs_on,
    archs.arch_too_new,
    archs.arch_too_old,
    archs.needs_jit,
    toolchain.nvcc_knows,
    toolchain.cuda_serves,
    toolchain.nvcc_dropped,
    toolchain.nvcc_for,
    toolchain.gcc_max,
    toolchain.clang_max,
    builds.release_serves,
    builds.torch_for,
    builds.torch_default,
    builds.torch_archs,
    builds.torch_release,
    builds.companion_for,
    builds.bitsandbytes_has,
    symbols.symbol_says,
    symbols.symbol_library,
    symbols.symbol_abi,
    visible.visible_none,
    visible.visible_by_number,
    visible.visible_by_uuid,
    visible.visible_asked,
    requirements.requirement_met,
    requirements.requirement_cuda,
    error_codes.xid_name,
    error_codes.xid_class,
    error_codes.xid_action,
    error_codes.xid_fatal,
    error_codes.sxid_name,
    error_codes.sxid_fatal,
    error_codes.nvml_name,
    error_codes.nvml_says,
    error_codes.cuda_error_name,
    error_codes.cuda_error_says,
    nccl_settings.nccl_risk,
    nccl_settings.nccl_renamed,
    nccl_settings.nccl_like,
)

LOOKUPS: Mapping[str, Callable[..., object]] = {function.__name__: function for function in _CALLABLE}
"""What conditions on rule pages may call, by name; each function's docstring says what it answers."""

__all__ = ["LOOKUPS", "complete"]

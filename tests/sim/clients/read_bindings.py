"""What NVML tells ``cuda.bindings.nvml``, a binding that shares no code with nvidia-ml-py: one JSON object a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cuda.bindings import nvml


def read(function: Callable[..., Any], *arguments: int) -> Any:
    """An answer, or the name of the error."""
    try:
        return function(*arguments)
    except nvml.NvmlError as error:
        return type(error).__name__


def values(gpu: int) -> dict[str, Any]:
    """What a monitor would read of a GPU."""
    handle = read(nvml.device_get_handle_by_index_v2, gpu)
    if isinstance(handle, str):
        return {"handle": handle}
    memory = nvml.device_get_memory_info_v2(handle)
    rows = nvml.device_get_remapped_rows(handle)
    return {
        "name": nvml.device_get_name(handle),
        "uuid": nvml.device_get_uuid(handle),
        "address": nvml.device_get_pci_info_v3(handle).bus_id,
        "memory": [memory.total, memory.reserved, memory.free, memory.used],
        "temperature": nvml.device_get_temperature_v(handle, 0),
        "power": nvml.device_get_power_usage(handle),
        "utilization": nvml.device_get_utilization_rates(handle).gpu,
        "ecc": list(nvml.device_get_ecc_mode(handle)),
        "ecc_uncorrected": nvml.device_get_total_ecc_errors(handle, 1, 0),
        "remapped": list(rows),
        "links": [read(nvml.device_get_nvlink_state, handle, link) for link in range(20)],
        "link_errors": [nvml.device_get_nvlink_error_counter(handle, link, 2) for link in range(18)],
        "processes": [
            [each.pid, each.used_gpu_memory] for each in nvml.device_get_compute_running_processes_v3(handle)
        ],
        "mig": list(nvml.device_get_mig_mode(handle)),
    }


def main() -> None:
    """Print them."""
    nvml.init_v2()
    machine = {"driver": nvml.system_get_driver_version(), "cuda": nvml.system_get_cuda_driver_version_v2()}
    print(json.dumps({**machine, "gpus": [values(gpu) for gpu in range(nvml.device_get_count_v2())]}))


if __name__ == "__main__":
    main()

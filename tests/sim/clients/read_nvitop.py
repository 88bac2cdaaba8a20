"""What nvitop reads of every GPU and its MIG devices, as one JSON object."""

from __future__ import annotations

import json
from typing import Any

from nvitop import Device


def values(device: Any) -> dict[str, Any]:
    """The columns of its table, and of its processes."""
    return {
        "name": device.name(),
        "uuid": device.uuid(),
        "address": device.bus_id(),
        "memory": [device.memory_total(), device.memory_used(), device.memory_free()],
        "temperature": device.temperature(),
        "power": device.power_usage(),
        "power_limit": device.power_limit(),
        "utilization": device.gpu_utilization(),
        "ecc_uncorrected": device.total_volatile_uncorrected_ecc_errors(),
        "persistence": device.persistence_mode(),
        "compute_mode": device.compute_mode(),
        "performance": device.performance_state(),
        "capability": device.cuda_compute_capability(),
        "clocks": [device.sm_clock(), device.max_sm_clock()],
        "fan": device.fan_speed(),
        "processes": {pid: process.gpu_memory() for pid, process in device.processes().items()},
        "mig": [
            {
                "uuid": part.uuid(),
                "name": part.name(),
                "memory": part.memory_total(),
                "ids": [part.gpu_instance_id(), part.compute_instance_id()],
            }
            for part in device.mig_devices()
        ],
    }


def main() -> None:
    """Print them."""
    devices = [values(device) for device in Device.all()]
    print(json.dumps({"driver": Device.driver_version(), "cuda": Device.cuda_driver_version(), "gpus": devices}))


if __name__ == "__main__":
    main()

"""Xids against NVIDIA's catalogue; return codes against the headers."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge.printed_errors import (
    cuda_error_name,
    cuda_error_says,
    nvml_name,
    nvml_says,
    sxid_fatal,
    sxid_name,
    xid_action,
    xid_class,
    xid_fatal,
    xid_name,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (13, "app"),
        (63, "memory"),
        (74, "nvlink"),
        (79, "bus"),
        (119, "driver"),
        (54, "hardware"),
        (154, "consequence"),
        (9999, "other"),
    ],
)
def test_class(code: int, kind: str) -> None:
    """Memory, NVLink and consequences as the Xid catalogue groups them."""
    assert xid_class(code) == kind
    assert xid_class(str(code)) == kind


def test_name_and_action() -> None:
    assert xid_name(79) == "GPU has fallen off the bus"
    assert xid_action(79) == "reboot the host"
    assert xid_action("13") == "restart the application"
    assert "nvidia-smi --gpu-reset" in xid_action(95)


def test_a_code_the_catalogue_does_not_act_on() -> None:
    with pytest.raises(CannotJudge, match="names no action"):
        xid_action(175)
    with pytest.raises(CannotJudge, match="does not describe"):
        xid_name(1)


@pytest.mark.parametrize("code", [46, 48, 54, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 149, 158, 167, 171, 173])
def test_the_gpus_own_faults(code: int) -> None:
    """The catalogue answers these with a reset, a reboot, a look at the hardware or support."""
    assert xid_fatal(code) is True


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 92, 94, 121, 137, 154, 162])
def test_no_faults_of_the_gpu(code: int) -> None:
    """Programs' errors, consequences, a remapped row (63), contained errors (94), corrected ones (92, 121)."""
    assert xid_fatal(code) is False


def test_nvswitch_errors() -> None:
    """Fabric manager guide, appendix: 22003 is fatal to the fabric, 12028 is not fatal."""
    assert (sxid_name(22003), sxid_fatal(22003)) == ("Minion Halt", "always")
    assert sxid_fatal(12028) == "no"


def test_return_codes() -> None:
    """nvml.h and driver_types.h."""
    assert nvml_name(18) == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
    assert "fell off the bus" in str(nvml_says("15"))
    assert cuda_error_name(209) == "cudaErrorNoKernelImageForDevice"
    assert "fabric" in str(cuda_error_says(802))
    with pytest.raises(CannotJudge, match="does not know"):
        cuda_error_name(12345)

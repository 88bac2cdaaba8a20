"""What JAX and TensorFlow share: which GPU is seen, and what of their noise is told."""

from __future__ import annotations

import os

import pytest

from gpudoctor.kernels.child import _framework


@pytest.mark.parametrize(
    ("device", "before", "after", "is_gpu"),
    [
        ("cuda:2", None, "2", True),
        ("cuda:1", "GPU-aa,GPU-bb", "GPU-bb", True),
        ("cuda:0", "3, 1", "3", True),
        ("cpu", "0,1", "", False),
    ],
)
def test_only_the_device_itself_is_seen(
    monkeypatch: pytest.MonkeyPatch, device: str, before: str | None, after: str, is_gpu: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is put back, whatever it was
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert _framework.restrict_visible_devices(device) is is_gpu
    assert os.environ["CUDA_VISIBLE_DEVICES"].strip() == after


def test_what_is_written_meanwhile_is_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with _framework.captured_stderr() as heard:
        os.write(2, b"W gpu_device.cc:1] Cannot dlopen some GPU libraries\n")
    os.write(2, b"and after\n")
    assert heard == ["W gpu_device.cc:1] Cannot dlopen some GPU libraries"]
    assert capfd.readouterr().err == "W gpu_device.cc:1] Cannot dlopen some GPU libraries\nand after\n"


def test_warnings_are_what_is_said_of_gpus() -> None:
    skipping = "gpu_device.cc:2344] Cannot dlopen some GPU libraries. Skipping registering GPU devices..."
    lines = [
        "2026-11-22 00:10:11.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized",
        "I0000 00:00:1732233.0 4242 gpu_device.cc:2020] Created device /device:GPU:0 with 76000 MB memory",
        f"W0000 00:00:1732233.1 4242 {skipping}",
        f"W0000 00:00:1732233.2 4242 {skipping}",
        "WARNING:jax._src.xla_bridge: An NVIDIA GPU may be present on this machine",
    ]
    assert _framework.warnings(lines) == (
        "Cannot dlopen some GPU libraries. Skipping registering GPU devices... "
        "WARNING:jax._src.xla_bridge: An NVIDIA GPU may be present on this machine"
    )
    assert _framework.warnings(["nothing of note"]) == ""

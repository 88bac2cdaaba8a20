"""The platform that a text speaks of without naming it in a field."""

from __future__ import annotations

import pytest

from gpudoctor.doctor import read
from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text

_BROKEN = "pynvml.NVMLError_Unknown: Unknown Error"


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        (f"Since the latest Windows 10 update the app says {_BROKEN}", "windows"),
        (f"win11, GTX 1060\n{_BROKEN}", "windows"),
        (f"Docker Desktop on Windows 11, in the container {_BROKEN}", None),
        (f"In a VM on Proxmox with Windows 10: {_BROKEN}", None),
        (f"It worked before I left Windows behind\n{_BROKEN}", None),
        ("NVRM: GPU has fallen off the bus; Windows 10 has no such trouble", "linux"),
        ("On Windows 10: OSError: [WinError 126] c10.dll", "windows"),
    ],
)
def test_the_platform_a_text_speaks_of(text: str, platform: str | None) -> None:
    state = read_text(text).get("host.platform")
    assert (state.value if isinstance(state, Known) else None) == platform


def test_windows_has_no_kernel_module_to_build() -> None:
    def named(text: str) -> set[str]:
        return {finding.id for finding in read(text, "report").findings}

    said = "the module was not built for the new kernel"
    assert "driver.module-not-built" in named(said)
    assert named(f"On Windows 10: {said}") == set()

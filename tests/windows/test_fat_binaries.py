"""The GPU architectures in a DLL of NVIDIA's are those of the same library for Linux, which cuobjdump lists, too."""

from __future__ import annotations

from importlib.metadata import files, version
from pathlib import Path

import pytest

from gpudoctor.probes import _binaries
from tests import needs
from tests.windows.rig import wheel

pytestmark = pytest.mark.full

NVJPEG = "nvidia-nvjpeg-cu12"


def test_a_dll_holds_what_its_library_for_linux_holds(tmp_path: Path) -> None:
    linux = [file for file in files(NVJPEG) or () if file.name.startswith("libnvjpeg.so")]
    if not linux:
        needs.missing(NVJPEG)
    wheel(f"{NVJPEG}=={version(NVJPEG)}", tmp_path)
    with _binaries.opened_pe(next(tmp_path.rglob("nvjpeg64_12.dll"))) as library:
        found = _binaries.architectures_in(library, library.sections())
    assert found == _binaries.architectures(Path(str(linux[0].locate())))
    assert found.containers > 5


@pytest.mark.parametrize("head", [b"", b"MZ", b"MZ" + bytes(58) + b"\xff\xff\xff\x7f", b"MZ" + bytes(62)])
def test_what_is_no_pe_file_is_refused(head: bytes, tmp_path: Path) -> None:
    place = tmp_path / "torch_cuda.dll"
    place.write_bytes(head)
    with _binaries.opened_pe(place) as library, pytest.raises(_binaries.MalformedError):
        library.sections()

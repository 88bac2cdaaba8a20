"""Where the child's files lie: beside this one, or unpacked for as long as we live where we run from a zip file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def program() -> str:
    """The child's program, as an interpreter takes it."""
    folder = Path(__file__).with_name("child")
    if not folder.is_dir():
        folder = Path(tempfile.mkdtemp(prefix="gpudoctor-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _unpack(files("gpudoctor.kernels") / "child", folder)
    return str(folder / "__main__.py")


def _unpack(source: Any, folder: Path) -> None:
    for item in source.iterdir():
        place = folder / item.name
        if item.is_dir():
            place.mkdir()
            _unpack(item, place)
        else:
            place.write_bytes(item.read_bytes())

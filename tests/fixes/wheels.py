"""Stub wheels that pip and uv install as they would the real ones: small, and the same bytes each time."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MOMENT = (2026, 1, 1, 0, 0, 0)
LARGE = 200_000
"""Bytes of a file that stands for one of the large libraries."""


@dataclass(frozen=True)
class Wheel:
    """A wheel to build. `files` are paths below site-packages, `data` below ``NAME-VERSION.data`` (``data/share/x``).

    `requires` are lines such as ``nvidia-cudnn-cu12==9.1``; `commands` console scripts: ``torchrun`` → ``torch:main``.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, bytes] = field(default_factory=dict)
    tag: str = "py3-none-any"

    @property
    def stem(self) -> str:
        """``nvidia_cudnn_cu12-9.1``: what its dist-info is called."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def filename(self) -> str:
        return f"{self.stem}-{self.tag}.whl"

    def build(self, folder: Path) -> Path:
        """Write it into that folder; its path."""
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / self.filename
        contents = self._contents()
        record = f"{self.stem}.dist-info/RECORD"
        lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in contents.items()]
        contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in contents.items():
                item = zipfile.ZipInfo(path, _MOMENT)
                item.external_attr = 0o644 << 16
                archive.writestr(item, content)
        return place

    def _contents(self) -> dict[str, bytes]:
        info = f"{self.stem}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in self.requires)
        purelib = str(self.tag.endswith("any")).lower()
        contents = dict(self.files) or {f"{self.name.replace('-', '_')}/__init__.py": b""}
        contents |= {f"{self.stem}.data/{path}": content for path, content in self.data.items()}
        contents[f"{info}/METADATA"] = (
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n{needs}".encode()
        )
        contents[f"{info}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: {purelib}\nTag: {self.tag}\n".encode()
        )
        if self.commands:
            lines = "\n".join(f"{name} = {goal}" for name, goal in self.commands.items())
            contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}\n".encode()
        return contents


def torch(version: str, cuda: str | None = None, requires: tuple[str, ...] = (), modules: int = 40) -> Wheel:
    """torch of that version: its ``version.py``, a large library, some modules, and the command ``torchrun``."""
    text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda!r}\nhip = None\ngit_version = 'a8d6afb'\n"
    files = {
        "torch/__init__.py": b"from .version import __version__\n\ndef main():\n    print(__version__)\n",
        "torch/version.py": text.encode(),
        f"torch/lib/libtorch_{'cuda' if cuda else 'cpu'}.so": _noise(version, LARGE),
        **{f"torch/nn/m{number}.py": f"VERSION = {version!r}\n".encode() for number in range(modules)},
    }
    return Wheel("torch", version, requires, files, {"torchrun": "torch:main"}, {"data/share/torch/NOTICE": b"stub\n"})


def nvidia(name: str, version: str, library: str) -> Wheel:
    """One of NVIDIA's wheels: ``nvidia-cudnn-cu12``, ``9.10.2.21``, ``cudnn/lib/libcudnn.so.9``."""
    return Wheel(name, version, files={f"nvidia/{library}": _noise(f"{name} {version}", LARGE)})


def _noise(seed: str, size: int) -> bytes:
    """Bytes that do not compress, the same for the same seed."""
    blocks = (hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")

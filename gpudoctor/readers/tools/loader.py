"""Which CUDA libraries the loader takes: ldd, ldconfig -p, /proc/PID/maps, LD_DEBUG=libs."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import libcuda_kind

_CUDA = (
    r"(lib(?:cuda|cudart|cudnn\w*|cublas\w*|cufft\w*|cusparse\w*|cusolver\w*|curand|nccl|nvJitLink|nvrtc|cupti)(?:64)?)"
)
_LDD = Pattern(r"\b" + _CUDA + r"\.so((?:\.\d+)*)(?: \([^)]*\))? => (/\S+|not found)")
_EXTENSION = Pattern(
    r"\bldd\b(?=[^\n]*(?:extension|site-packages/(?!torch/|nvidia/)\w+|(?<!libtorch)_cuda\w*\.(?:so|cpython)|/_C\.))"
    r"(?![^\n]*site-packages/torch/)",
    2,
)
"""The listing is of an extension's library, not of torch's."""
_INIT = Pattern(r"calling init: (/\S*/libcuda\.so\S*)")
_MAPS = Pattern(r"^[0-9a-f]{8,16}-[0-9a-f]{8,16} \S+ .*\s(/\S*/libcuda\.so\S*)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``lib``; what ldd finds is what is loaded, what ldconfig lists may be."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for index, line in paste.having("=> "):
        match = _LDD.search(line)
        if not match:
            continue
        name, version, path = match.groups()
        source = paste.use(index)
        if path == "not found":
            if _EXTENSION.search(" ".join(paste.lines[max(0, index - 6) : index + 1])):
                continue
            missing.setdefault(f"{name}.so{version}", source)
            continue
        row: dict[str, Fact] = {"name": Known(name, source), "path": Known(path, source)}
        if version:
            row["version"] = Known(version.lstrip("."), source)
        if "(libc6" not in line:
            row["chosen"] = Known(True, source)
            if name == "libcuda":
                yield "libs.libcuda", Known(path, source)
                yield "libs.libcuda_kind", Known(libcuda_kind(path), source)
        rows.append(row)
    if rows:
        yield "lib", tuple(rows)
    if missing:
        yield "libs.missing", Known(tuple(missing), next(iter(missing.values())))
    for index, line in paste.having("/libcuda.so"):
        if match := _MAPS.search(line) or _INIT.search(line):
            source = paste.use(index)
            yield "libs.libcuda", Known(match.group(1), source)
            yield "libs.libcuda_kind", Known(libcuda_kind(match.group(1)), source)

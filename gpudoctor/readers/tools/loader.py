"""Which CUDA libraries the loader takes: ldd, ldconfig -p, /proc/PID/maps, LD_DEBUG=libs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import libcuda_kind

FACTS = (fact("libs.needed_by", "text", "file that is not torch's, of which ldd finds a CUDA library nowhere"),)

_CUDA = (
    r"(lib(?:cuda|cudart|cudnn\w*|cublas\w*|cufft\w*|cusparse\w*|cusolver\w*|curand|nccl|nvJitLink|nvrtc|cupti)(?:64)?)"
)
_LDD = Pattern(r"\b" + _CUDA + r"\.so((?:\.\d+)*)(?: \([^)]*\))? => (/\S*/lib[^/\s]*\.so\S*|not found)")
_CUT_OFF = Pattern(r"\s*lib\S{1,80}\.so\S{0,20} => /(?!\S*\.so)\S*$")
"""A line of ldd that ends within its path, where the text was cut."""
_EXTENSION = Pattern(
    r"(?i)\bldd\b(?=[^\n]*(?:extension|site-packages/(?!torch/|nvidia/)\w+|(?<!libtorch)_cuda\w*\.(?:so|cpython)|/_C\.))"
    r"(?![^\n]*site-packages/torch/)"
)
"""The listing is of an extension's library, not of torch's."""
_LISTED = Pattern(r"\bldd\s+(?:-\w+\s+)*(?:\S*/)?([\w.+-]+)\s*(?:$|[|;>])")
"""The file that was given to ldd, without its folder."""
_TORCH = Pattern(r"torch|libc10|libcaffe2|libshm|\b_C\b")
_INIT = Pattern(r"calling init: (/\S*/libcuda\.so\S*)")
_MAPS = Pattern(r"^[0-9a-f]{8,16}-[0-9a-f]{8,16} \S+ .*\s(/\S*/libcuda\.so\S*)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``lib`` from ldd, ldconfig, /proc/PID/maps or LD_DEBUG; the libraries not found; the libcuda used.

    A library that ldd resolves is ``chosen``; one that ldconfig lists is not. libs.missing leaves out an extension's
    missing libraries, and those of a file that is not torch's, which libs.needed_by names.
    """
    rows: list[Row] = []
    missing: dict[str, str] = {}
    files = _listed_files(paste)
    for index, line in paste.having("=> "):
        match = _LDD.search(line)
        if not match:
            if _CUT_OFF.match(line):
                paste.mark_listed(index, data=True)
            continue
        name, version, path = match.groups()
        source = paste.use(index)
        if path == "not found":
            if _EXTENSION.search(" ".join(paste.lines[max(0, index - 6) : index + 1])):
                continue
            if owner := _other_owner(files, index):
                yield "libs.needed_by", Known(owner, source)
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
    for mapped, source in paste.matches(lambda line: _MAPS.search(line) or _INIT.search(line), "/libcuda.so"):
        yield "libs.libcuda", Known(mapped.group(1), source)
        yield "libs.libcuda_kind", Known(libcuda_kind(mapped.group(1)), source)


def _listed_files(paste: Paste) -> list[tuple[int, str | None]]:
    """Line index and name of each file that was given to ldd; None for the name where the file may be torch's."""
    files: list[tuple[int, str | None]] = []
    for index, line in paste.having("ldd"):
        if match := _LISTED.search(line[:1000]):
            files.append((index, None if _TORCH.search(line[:1000]) else match.group(1)))
    return files


def _other_owner(files: list[tuple[int, str | None]], index: int) -> str | None:
    """The file whose listing holds line `index`; None where that is or may be torch's."""
    before = bisect_left(files, index, key=lambda file: file[0])
    return files[before - 1][1] if before else None

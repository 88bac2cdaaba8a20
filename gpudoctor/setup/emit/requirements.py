"""``requirements.txt``, which pip and uv read.

A hash after a requirement would make pip ask for the hash of every package that is installed with it; one in the URL
of a wheel is checked by itself. So where an index told the hashes, the wheels stand there by their URLs.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.setup.emit.order import Order


def text(order: Order) -> str:
    """Everything pinned, torch's own packages by their exact build, which the user's index does not have."""
    return "\n".join([*_lines(order), ""])


def _lines(order: Order) -> Iterator[str]:
    candidate = order.candidate
    what = f"torch {candidate.torch}, " + (f"CUDA {candidate.cuda}" if candidate.cuda else "CPU only")
    yield f"# {what}: python -m pip install -r FILE"
    if order.hashes:
        yield f"# Wheels for Python {order.python} on {order.system} {order.arch}, each with its SHA-256."
    yield f"--extra-index-url {order.index}"
    for package in candidate.packages:
        pin = order.pin(package)
        if pin not in order.compiled:
            url, digest = order.hashes.get(package.name, ("", ""))
            yield f"{package.name} @ {url}#sha256={digest}" if digest else pin
    if order.compiled:
        yield "# Then, as it is compiled against that torch and wants nvcc:"
        yield f"# python -m pip install --no-build-isolation {' '.join(order.compiled)}"

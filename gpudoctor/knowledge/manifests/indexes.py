"""Which builds of torch a package index holds, by its address.

PyTorch's indexes (download.pytorch.org/whl/cu124) hold one build each, its root and torch_stable.html hold all of them,
PyPI and its mirrors the release's default.
"""

from __future__ import annotations

import re

PYPI = "pypi"
EVERY = "every"
UNKNOWN = "unknown"
WITHOUT_TORCH = "without torch"

_BUILD = re.compile(r"/(?:whl|pytorch-wheels)/(nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?:/|$)", re.IGNORECASE)
_ROOT = re.compile(
    r"download\.pytorch\.org/whl(?:/(?:torch_)?stable(?:\.html)?)?/?$|/torch_stable\.html$|/pytorch-wheels/?$"
)
_PYPI = re.compile(r"//(?:[^/]*pypi[^/]*|[^/]+/(?:[^/]+/)*?[^/]*pypi[^/]*(?:/[^/]+)*?)/simple/?$", re.IGNORECASE)
_VENDOR = re.compile(
    r"//(?:pypi\.(?:ngc\.)?nvidia\.com|data\.pyg\.org|storage\.googleapis\.com/(?:jax-releases|libtpu)|wheels\.vllm\.ai"
    r"|flashinfer\.ai|pypi\.anaconda\.org/(?:rapidsai|scipy)|download\.openmmlab\.com|dl\.fbaipublicfiles\.com|data\.dgl\.ai"
    r"|pypi\.jetson-ai-lab)",
    re.IGNORECASE,
)


def builds_in(url: str) -> str:
    """``cu124``, ``cpu`` or ``rocm6.2`` of one build's index; `PYPI`, `EVERY`, `WITHOUT_TORCH`, or `UNKNOWN`.

    A nightly index holds what no table follows.
    """
    if not url:
        return PYPI
    if one := _BUILD.search(url):
        return UNKNOWN if one[1] else one[2].lower()
    if _ROOT.search(url):
        return EVERY
    if _VENDOR.search(url):
        return WITHOUT_TORCH if "jetson" not in url else UNKNOWN
    return PYPI if _PYPI.search(url) else UNKNOWN

"""JAX, imported so that it sees one GPU and takes no memory ahead."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Dict, List, Mapping

from .._framework import overheard, see_only
from .._kernel import CannotRun

_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


class Context:
    """JAX and its devices; `heard` is what it wrote while it looked for them."""

    def __init__(self, jax: Any, seed: int, on_cpu: bool, devices: List[Any], why: str, heard: List[str]) -> None:
        self.jax = jax
        self.seed = seed
        self.on_cpu = on_cpu
        self.devices = devices
        self.why = why
        """What it said where it sees no device."""
        self.heard = heard

    def told(self) -> Dict[str, Any]:
        """What it is, for the protocol."""
        return {"jax": str(self.jax.__version__), "devices": [str(device) for device in self.devices]}


def opened(ask: Mapping[str, Any]) -> Context:
    """JAX on that device; raises `CannotRun` where it is not installed, or only for CPUs."""
    if importlib.util.find_spec("jax") is None:
        raise CannotRun("jax is not installed in this interpreter")
    on_gpu = see_only(str(ask["device"]))
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    if not on_gpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    with overheard() as heard:
        import jax  # type: ignore[import-not-found,unused-ignore]

        if on_gpu and not for_cuda():
            raise CannotRun("jax %s is installed without its CUDA plugin" % jax.__version__)
        try:
            devices, why = list(jax.devices("gpu" if on_gpu else "cpu")), ""
        except RuntimeError as error:
            devices, why = [], " ".join(str(error).split())
    return Context(jax, int(ask.get("seed", 1)), not on_gpu, devices, why, heard)


def for_cuda() -> bool:
    """Whether JAX's part for CUDA is installed: a plugin, before 2024 a jaxlib of its own."""
    return any(map(_there, _PLUGINS)) or _there("jaxlib.cuda._versions")


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is not there
        return False

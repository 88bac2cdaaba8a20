"""JAX in the target interpreter, where it is installed: imported so that it sees one GPU and takes no memory ahead."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Mapping

from .._framework import Context, captured_stderr, restrict_visible_devices
from .._kernel import CannotRun

_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


def opened(ask: Mapping[str, Any]) -> Context:
    """JAX imported and restricted to the device in `ask`; raises `CannotRun` where it or its CUDA plugin is missing."""
    if importlib.util.find_spec("jax") is None:
        raise CannotRun("jax is not installed in this interpreter")
    on_gpu = restrict_visible_devices(str(ask["device"]))
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    if not on_gpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    with captured_stderr() as stderr_lines:
        import jax  # type: ignore[import-not-found,unused-ignore]

        if on_gpu and not has_cuda_plugin():
            raise CannotRun("jax %s is installed without its CUDA plugin" % jax.__version__)
        try:
            devices, why = list(jax.devices("gpu" if on_gpu else "cpu")), ""
        except RuntimeError as error:
            devices, why = [], " ".join(str(error).split())
    return Context(jax, "JAX", ask, {str(device): device for device in devices}, stderr_lines, why)


def has_cuda_plugin() -> bool:
    """True if JAX's CUDA plugin is installed, or a jaxlib with CUDA, as before 2024."""
    return any(map(_is_installed, _PLUGINS)) or _is_installed("jaxlib.cuda._versions")


def _is_installed(name: str) -> bool:
    """True if a module of that name can be found."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is not there
        return False

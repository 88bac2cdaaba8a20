"""Which libraries torch's import would load, step by step as ``torch/__init__.py`` does it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Sequence

from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.loader import Loader
from gpudoctor.probes._python.site import Site, once, site_of
from gpudoctor.probes._python.torch_files import Torch, torch_of
from gpudoctor.target import Target

_PAIR = pattern(r"""["'](\w+)["']\s*[,:]\s*["'](lib[\w-]+\.so)[^"']*["']""")
_ALONE = pattern(r"""_preload_cuda_\w+\(\s*["'](\w+)["'],\s*["'](lib[\w-]+\.so)""")
_CONDITION = pattern(r"""["']([\w/.-]*libcudart\.so)["'] not in _maps""")

PRELOADED = "preloaded by torch/__init__.py"


def loaded_torch(target: Target) -> Loader:
    """The target's interpreter with torch imported, if there is one; the same for all probes. Raises `OSError`."""
    return once(target, "loader", lambda: _start(target))


def _start(target: Target) -> Loader:
    site = site_of(target)
    program = site.python if isinstance(site, Site) else target.python
    loader = Loader(weakref.proxy(target), program)  # kept for as long as the target is, which it must not keep
    torch = torch_of(target)
    if isinstance(torch, Torch) and torch.path:
        _load(target, torch, loader)
    return loader


def _load(target: Target, torch: Torch, loader: Loader) -> None:
    """``libtorch_global_deps.so``, then what torch preloads from the wheels by full path, then its Python module.

    Older torch preloads only where the first step fails for a missing library; newer torch (from 2.5.1 on)
    also after success, which does not replace a copy that is loaded already. Raises `OSError`.
    """
    folder = f"{torch.path}/lib"
    try:
        source = target.read(f"{torch.path}/__init__.py")
    except FileNotFoundError:
        source = ""
    loader.load(f"{folder}/libtorch_global_deps.so", "torch's own")
    failed = any(name.startswith(("libcu", "libnv", "libnccl")) for name in loader.missing)
    for part, library in _preloads(source, failed, [found.path for found in loader.loaded.values()]):
        path = next(_candidates(target, torch, part, library), None)
        if path and path.rpartition("/")[2] not in loader.loaded:
            loader.load(path, PRELOADED)
    if failed:
        loader.load(f"{folder}/libtorch_global_deps.so", "torch's own")
    loader.load(f"{folder}/libtorch_python.so", "torch's own")
    _load_cudnn_parts(target, loader)


def _preloads(source: str, failed: bool, loaded: Sequence[str]) -> list[tuple[str, str]]:
    """Wheel folder and library name, in torch's order, by the text of its ``__init__.py``."""
    if failed:
        return _PAIR.findall(source)
    condition = _CONDITION.search(source)
    if not condition or not any(condition[1] in path for path in loaded):
        return []
    named = _ALONE.findall(source[condition.end() :].partition("except")[0])
    return named or _PAIR.findall(source)


def _candidates(target: Target, torch: Torch, part: str, library: str) -> Iterator[str]:
    major = torch.said.get("cuda", "").partition(".")[0]
    for site in torch.site.folders:
        for folder in (f"{site}/nvidia/{part}/lib", f"{site}/nvidia/cu{major}/lib", f"{site}/{part}/lib"):
            for name in target.listing(folder):
                if name.startswith(f"{library}.") and name[-1].isdigit():
                    yield f"{folder}/{name}"


def _load_cudnn_parts(target: Target, loader: Loader) -> None:
    """cuDNN opens its parts by name when a network first needs them, so that they may come from another folder."""
    main = next((found for name, found in loader.loaded.items() if re.fullmatch(r"libcudnn\.so\.\d+", name)), None)
    if main is None:
        return
    folder = main.path.rpartition("/")[0]
    ending = main.file.partition(".so")[2]
    for name in target.listing(folder):
        if name.startswith("libcudnn_") and name.endswith(f".so{ending}") and name not in loader.loaded:
            found = loader.resolve(name, main)
            if found:
                loader.loaded[name] = found

"""torch as its files show it: where it is, what ``version.py`` says, its pins, the libraries its import would load."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.core.versions import normal, parse
from gpudoctor.probes._dists import Dist, Environment, environment, lowest_version, meets, requirements, wanted_text
from gpudoctor.probes._loader import Loader
from gpudoctor.probes._site import Site, once_per_target, site_of
from gpudoctor.target import Target

_ASSIGNMENT = pattern(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:(['\"])(.*?)\2|None|True|False)\s*$", re.MULTILINE)


@frozen
class Torch:
    """The torch that an import would find.

    `version_texts`: text assignments in version.py; `path`: the package folder, empty if there is none.
    """

    version: str
    path: str
    version_texts: Mapping[str, str]
    site: Site
    environment: Environment
    dist: Dist | None

    @property
    def source(self) -> str:
        """Path of the version.py, else dist-info, that the version was read from."""
        return f"{self.path}/version.py" if self.path else self.dist.path if self.dist else ""


def torch_of(target: Target) -> Torch | Absent | Unread:
    """The target's torch, read from its files once per target; absent if not installed, unread if unreadable."""
    return once_per_target(target, "torch", lambda: _find_torch(target))


def assignments(text: str) -> dict[str, str]:
    """Top-level ``name = 'text'`` lines of a Python file, never executed; None, True and False are left out."""
    return {match[1]: match[3] for match in _ASSIGNMENT.finditer(text) if match[3] is not None}


def _find_torch(target: Target) -> Torch | Absent | Unread:
    """The first torch package in the site's folders, else a torch dist-info without a package.

    Absent if there is neither; absent or unread as the site or environment is; unread if version.py cannot be read.
    """
    site = site_of(target)
    found = environment(target)
    if not isinstance(site, Site):
        return site
    if not isinstance(found, Environment):
        return found
    for folder in site.folders:
        try:
            text = target.read(f"{folder}/torch/version.py", 1 << 16)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return Unread(f"{folder}/torch/version.py could not be read: {error.strerror or error}")
        version_texts = assignments(text)
        dists = [dist for dist in found.all("torch") if dist.folder == folder]
        dist = next(
            (dist for dist in dists if dist.version == version_texts.get("__version__")), dists[0] if dists else None
        )
        version = version_texts.get("__version__") or (dist.version if dist else "")
        if not version:
            return Unread(f"{folder}/torch/version.py names no version")
        return Torch(version, f"{folder}/torch", version_texts, site, found, dist)
    dist = found.first("torch")
    if dist:
        return Torch(dist.version, "", {}, site, found, dist)
    return Absent(f"torch is not installed in {site.prefix} (looked in {', '.join(site.folders) or 'no folder'})")


# ---- Whether the nvidia-* and triton wheels in the environment are those that torch, TensorFlow or JAX pin ----

_PINNED = ("nvidia-", "triton", "pytorch-triton", "cuda-")


@frozen
class UnmetRequirement:
    """A requirement that the environment does not meet; `has` is None if the wheel is not installed.

    `wants`: the whole specifier, an exact pin without its ``==``; `lowest_version`: the exact or lowest one, or empty.
    """

    name: str
    wants: str
    lowest_version: str
    has: str | None

    @property
    def sentence(self) -> str:
        """The mismatch as text: ``nvidia-cudnn-cu12 wants 9.1.0.70, has 9.5.1.17``."""
        return f"{self.name} wants {self.wants}, {f'has {self.has}' if self.has else 'is not installed'}"


def unmet_requirements(
    target: Target, site: Site, environment: Environment, dist: Dist, extras: tuple[str, ...] = ("",)
) -> Iterator[UnmetRequirement]:
    """Yields each requirement of `dist` on an NVIDIA wheel or triton that the environment does not meet, once.

    Those of cuda-toolkit count as its own. Raises `OSError`.
    """
    reported: set[UnmetRequirement] = set()
    for need in requirements(target, site, dist, lambda name: name.startswith(_PINNED), extras):
        name = normal(need.name)
        has = environment.first(name)
        if has is None or (parse(has.version) and not meets(has.version, need)):
            found = UnmetRequirement(
                name, wanted_text(need) or "any version", lowest_version(need), has.version if has else None
            )
            if found not in reported:
                reported.add(found)
                yield found
        elif name == "cuda-toolkit" and dist.name != name:  # a list of wheels by extras, no files of its own
            yield from unmet_requirements(target, site, environment, has, tuple(sorted(need.extras)))


def torch_unmet(target: Target, torch: Torch, dist: Dist) -> tuple[UnmetRequirement, ...]:
    """The unmet requirements of torch's dist-info `dist`, worked out once per target. Raises `OSError`."""
    return once_per_target(
        target, "torch's pins", lambda: tuple(unmet_requirements(target, torch.site, torch.environment, dist))
    )


# ---- The libraries that torch's import would load, step by step as ``torch/__init__.py`` does it ----

_PAIR = pattern(r"""["'](\w+)["']\s*[,:]\s*["'](lib[\w-]+\.so)[^"']*["']""")
_PRELOAD_CALL = pattern(r"""_preload_cuda_\w+\(\s*["'](\w+)["'],\s*["'](lib[\w-]+\.so)""")
_CONDITION = pattern(r"""["']([\w/.-]*libcudart\.so)["'] not in _maps""")

PRELOADED = "preloaded by torch/__init__.py"


def loaded_torch(target: Target) -> Loader:
    """The `Loader` in the state that torch's import would leave it in, worked out once per target; nothing is loaded.

    Without torch only the loader. Raises `OSError`.
    """
    return once_per_target(target, "loader", lambda: _loader_with_torch(target))


def _loader_with_torch(target: Target) -> Loader:
    """A `Loader` of the target's interpreter, with the libraries that torch's import would load. Raises `OSError`."""
    site = site_of(target)
    program = site.python if isinstance(site, Site) else target.python
    loader = Loader(weakref.proxy(target), program)  # kept for as long as the target is, which it must not keep
    torch = torch_of(target)
    if isinstance(torch, Torch) and torch.path:
        _load_torch(target, torch, loader)
    return loader


def _load_torch(target: Target, torch: Torch, loader: Loader) -> None:
    """Record in `loader` the libraries that torch's import would load, in its order. Raises `OSError`.

    First ``libtorch_global_deps.so``, then what torch preloads from the wheels by full path, then its Python module.
    Older torch preloads only where the first step fails for a missing library; newer torch (from 2.5.1 on) also after
    success, which does not replace a copy that is loaded already.
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
    """Pairs of wheel folder and library name that torch preloads, in its order, by the text of its ``__init__.py``.

    `failed`: loading libtorch_global_deps.so lacked a library. If it did not, only newer torch preloads, and only where
    its condition about the `loaded` paths holds.
    """
    if failed:
        return _PAIR.findall(source)
    condition = _CONDITION.search(source)
    if not condition or not any(condition[1] in path for path in loaded):
        return []
    named = _PRELOAD_CALL.findall(source[condition.end() :].partition("except")[0])
    return named or _PAIR.findall(source)


def _candidates(target: Target, torch: Torch, part: str, library: str) -> Iterator[str]:
    """Yields the paths at which torch looks for a library to preload; `part` is the wheel's folder."""
    major = torch.version_texts.get("cuda", "").partition(".")[0]
    for site in torch.site.folders:
        for folder in (f"{site}/nvidia/{part}/lib", f"{site}/nvidia/cu{major}/lib", f"{site}/{part}/lib"):
            for name in target.listing(folder):
                if name.startswith(f"{library}.") and name[-1].isdigit():
                    yield f"{folder}/{name}"


def _load_cudnn_parts(target: Target, loader: Loader) -> None:
    """Record in `loader` the libraries that cuDNN opens by name at first use, which may come from another folder."""
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

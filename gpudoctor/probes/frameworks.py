"""TensorFlow, JAX and the extensions built against torch, read from their files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.versions import parse
from gpudoctor.probes._dists import Dist, Environment, environment, exact_pins, meets, requirements
from gpudoctor.probes._extensions import bitsandbytes_builds, extensions
from gpudoctor.probes._site import Site, site_of
from gpudoctor.probes._torch_files import Torch, torch_of, unmet_requirements
from gpudoctor.target import Target

FACTS = (
    fact("tf.version", "version", "TensorFlow's version"),
    fact("tf.built_with_cuda", "bool", "whether this TensorFlow is a GPU build"),
    fact("tf.cuda", "version", "CUDA it was built with"),
    fact("tf.cudnn", "version", "cuDNN it was built with"),
    fact(
        "tf.pins_unmet",
        "list",
        "nvidia-* wheels that tensorflow[and-cuda] pins and the environment has not: means nothing with a system CUDA",
    ),
    fact("jax.version", "version", "jax's version"),
    fact("jax.jaxlib", "text", "jaxlib's version, local part included"),
    fact("jax.plugin", "version", "version of the CUDA plugin; absent where there is none"),
    fact("jax.plugin_cuda", "int", "CUDA major of the plugin, such as 12"),
    fact(
        "jax.pins_unmet",
        "list",
        "nvidia-* wheels that jax[cuda12] or [cuda13] pins and the environment has not: means nothing with local CUDA",
    ),
    fact("triton.version", "version", "triton's version"),
    fact("triton.wanted", "version", "the triton that the installed torch pins"),
    fact("triton.fits", "bool", "whether the installed triton meets torch's requirement"),
    fact(
        "bitsandbytes.cuda_builds",
        "list",
        "CUDA releases that bitsandbytes has native libraries for, such as 11.8, 12.4",
    ),
    fact(
        "bitsandbytes.has_build", "bool", "whether one of them is for the CUDA of torch's build (or BNB_CUDA_VERSION)"
    ),
    column(
        "extension.name", "text", "flash-attn, xformers, bitsandbytes, vllm, apex, deepspeed, transformer-engine, ..."
    ),
    column("extension.version", "text", "its version"),
    column("extension.torch", "version", "torch it was built for, by its build tag or requirement"),
    column("extension.cuda", "version", "CUDA it was built for, by its build tag"),
    column("extension.abi", "text", "C++ ABI in its build tag: cxx11 or pre-cxx11"),
    column(
        "extension.missing_symbols",
        "list",
        "C++ functions of torch that its libraries want and the installed torch does not define: built for another",
    ),
    column(
        "extension.missing_libraries",
        "list",
        "CUDA libraries that it is linked to and the loader finds nowhere, such as libcudart.so.11.0, for _C.so",
    ),
    column(
        "extension.archs",
        "list",
        "GPU architectures that any of its libraries holds code for, such as sm_80, compute_90",
    ),
)

_TENSORFLOWS = (
    *("tensorflow", "tensorflow-gpu", "tf-nightly", "tf-nightly-gpu", "tensorflow-rocm"),
    *("tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"),
)
_BUILD_INFO = re.compile(r"""u?['"](\w+)['"]\s*[,:]\s*(?:u?['"]([^'"]*)['"]|(True|False))""")
_TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-windows", "triton-rocm")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``tf``, ``jax``, ``triton`` and ``bitsandbytes`` facts and the group ``extension``."""
    site = site_of(target)
    installed = environment(target)
    if not isinstance(site, Site) or not isinstance(installed, Environment):
        trouble = site if not isinstance(site, Site) else installed
        assert not isinstance(trouble, Environment)
        yield from ((spec.name, trouble) for spec in FACTS if not spec.group)
        yield "extension", trouble
        return
    yield from _tensorflow_facts(target, site, installed)
    yield from _jax_facts(target, site, installed)
    yield from _triton_facts(target, site, installed)
    torch = torch_of(target)
    yield "extension", tuple(extensions(target, site, installed, torch))
    builds = bitsandbytes_builds(target, installed)
    yield "bitsandbytes.cuda_builds", builds
    yield "bitsandbytes.has_build", _has_build(target, torch, builds)


def _tensorflow_facts(target: Target, site: Site, installed: Environment) -> Iterator[tuple[str, Fact]]:
    """Yields tf.version, built_with_cuda, cuda, cudnn and pins_unmet, from TensorFlow's metadata and build_info.py.

    Absent if it is not installed; the build's are unread if build_info.py cannot be read.
    """
    dist = installed.first(*_TENSORFLOWS) or next((dist for dist in installed.conda if dist.name == "tensorflow"), None)
    names = ("tf.built_with_cuda", "tf.cuda", "tf.cudnn", "tf.pins_unmet")
    if dist is None:
        yield from ((name, Absent("TensorFlow is not installed")) for name in ("tf.version", *names))
        return
    yield "tf.version", Known(dist.version, dist.path)
    folder = next((f for f in site.folders if target.exists(f"{f}/tensorflow")), dist.folder)
    path = f"{folder}/tensorflow/python/platform/build_info.py"
    try:
        build_info = {key: text or flag for key, text, flag in _BUILD_INFO.findall(target.read(path, 1 << 16))}
    except OSError as error:
        build_info = {}
        trouble: Fact = Unread(f"{path} could not be read: {error.strerror or error}")
    else:
        trouble = Unread(f"{path} does not say is_cuda_build")
    if "is_cuda_build" not in build_info:
        yield from ((name, trouble) for name in names[:3])
    else:
        yield names[0], Known(build_info["is_cuda_build"] == "True", path)
        for name, key in ((names[1], "cuda_version"), (names[2], "cudnn_version")):
            yield name, Known(build_info[key], path) if build_info.get(key) else Absent(f"{path} names no {key}")
    yield names[3], _pins_unmet(target, site, installed, dist, "and-cuda")


def _jax_facts(target: Target, site: Site, installed: Environment) -> Iterator[tuple[str, Fact]]:
    """Yields jax.version, jaxlib, plugin, plugin_cuda (its CUDA major) and pins_unmet.

    Absent if they are not installed. An older jaxlib that holds the CUDA code itself counts as the plugin.
    """
    jax, jaxlib = installed.first("jax"), installed.first("jaxlib")
    missing = Absent("jax is not installed")
    yield "jax.version", Known(jax.version, jax.path) if jax else missing
    yield "jax.jaxlib", Known(jaxlib.version, jaxlib.path) if jaxlib else Absent("jaxlib is not installed")
    majors = (13, 12, 11)
    plugins = [dist for major in majors for dist in installed.all(f"jax-cuda{major}-plugin")[:1]]
    inside = re.search(r"\+cuda(\d{2})", jaxlib.version) if jaxlib else None
    if plugins:
        plugin = plugins[0]
        yield "jax.plugin", Known(plugin.version, plugin.path)
        yield "jax.plugin_cuda", Known(int(plugin.name[8:10]), plugin.path)
        yield "jax.pins_unmet", _pins_unmet(target, site, installed, plugin, "with-cuda")
    elif inside and jaxlib:
        yield "jax.plugin", Known(jaxlib.version, f"{jaxlib.path}, which holds the CUDA code itself")
        yield "jax.plugin_cuda", Known(int(inside[1]), jaxlib.path)
        yield "jax.pins_unmet", Absent("this jaxlib pins no NVIDIA wheels")
    else:
        why = Absent("no jax-cuda12-plugin or jax-cuda13-plugin is installed") if jax else missing
        yield from ((name, why) for name in ("jax.plugin", "jax.plugin_cuda", "jax.pins_unmet"))


def _triton_facts(target: Target, site: Site, installed: Environment) -> Iterator[tuple[str, Fact]]:
    """Yields triton.version, triton.wanted (the exact one that torch pins) and triton.fits (torch's requirement).

    Absent where one is not installed or nothing is required.
    """
    dist = installed.first(*_TRITONS)
    yield "triton.version", Known(dist.version, dist.path) if dist else Absent("triton is not installed")
    torch = torch_of(target)
    if not isinstance(torch, Torch) or torch.dist is None:
        why = torch if not isinstance(torch, Torch) else Absent("torch has no dist-info")
        yield from ((name, why) for name in ("triton.wanted", "triton.fits"))
        return
    source = f"{torch.dist.path}/METADATA"
    try:
        needs = list(requirements(target, site, torch.dist, lambda name: name in _TRITONS))
    except OSError as error:
        yield from ((name, Unread(f"{source} could not be read: {error}")) for name in ("triton.wanted", "triton.fits"))
        return
    pins = [version for need in needs for version in exact_pins(need)]
    yield "triton.wanted", Known(pins[0], source) if pins else Absent("torch pins no exact triton")
    if needs and dist and parse(dist.version):
        fits = any(meets(dist.version, need) for need in needs)
        yield "triton.fits", Known(fits, source)
    else:
        yield "triton.fits", Absent("triton is not installed" if needs else "torch asks for no triton")


def _pins_unmet(target: Target, site: Site, installed: Environment, dist: Dist, extra: str) -> Fact:
    """Sentences for NVIDIA wheels that the distribution with this extra requires and the environment lacks.

    Absent for a package of conda's, which requires no wheels; unread if its METADATA cannot be read.
    """
    if dist.of_conda:
        return Absent("conda installed it, and no wheels of NVIDIA's")
    try:
        sentences = tuple(need.sentence for need in unmet_requirements(target, site, installed, dist, ("", extra)))
        return Known(sentences, f"{dist.path}/METADATA, extra {extra}")
    except OSError as error:
        return Unread(f"METADATA of {dist.name} could not be read: {error}")


def _has_build(target: Target, torch: Torch | Absent | Unread, builds: Fact) -> Fact:
    """Whether bitsandbytes has a build for the CUDA that BNB_CUDA_VERSION names, else for torch's.

    Absent if torch is no CUDA build; absent or unread as `builds` or torch is.
    """
    if not isinstance(builds, Known) or not isinstance(builds.value, tuple):
        return builds
    forced = target.environ.get("BNB_CUDA_VERSION", "")
    if forced.isdigit() and len(forced) == 3:
        return Known(f"{forced[:2]}.{forced[2]}" in builds.value, f"BNB_CUDA_VERSION={forced} and {builds.source}")
    if not isinstance(torch, Torch):
        return torch
    cuda = torch.version_texts.get("cuda")
    if not cuda:
        return Absent("torch is no CUDA build")
    return Known(cuda in builds.value, f"{torch.source} and {builds.source}")

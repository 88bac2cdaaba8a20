"""What pinned lines say of TensorFlow and JAX; where they are asked for and torch is not, torch is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.knowledge.manifests.lines import Line
from gpudoctor.knowledge.manifests.pip_takes import pinned
from gpudoctor.model.fact import Absent, Fact, Known

_TENSORFLOW = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel")


def frameworks(lines: Sequence[Line], torch: bool) -> Iterator[tuple[str, Fact]]:
    """Their facts; `torch` is whether any line brings it."""
    by_name = {line.name: line for line in lines}
    found = dict([*_tensorflow(by_name), *_jax(by_name)])
    yield from found.items()
    if found and not torch:
        yield "torch.version", Absent("no line asks for it")
    if "jax.version" in found and "tf.version" not in found:
        yield "tf.version", Absent("no line asks for it")


def _tensorflow(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    for name in _TENSORFLOW:
        if (line := by_name.get(name)) and (version := pinned(line.spec)):
            yield "tf.version", Known(version, line.source)
            if name in ("tensorflow-cpu", "tensorflow-intel"):
                yield "tf.built_with_cuda", Known(False, line.source)


def _jax(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    line = by_name.get("jax")
    if not line or not (version := pinned(line.spec)):
        return
    yield "jax.version", Known(version, line.source)
    yield "jax.jaxlib", Known(version, line.source)
    plugin = next((name for name in by_name if name.startswith("jax-cuda") and "plugin" in name), "")
    extra = next((extra for extra in line.extras if extra.startswith("cuda")), "")
    if plugin and (own := pinned(by_name[plugin].spec)):
        yield "jax.plugin", Known(own, by_name[plugin].source)
    elif extra:
        yield "jax.plugin", Known(version, line.source)
        if extra[4:6].isdecimal():
            yield "jax.plugin_cuda", Known(int(extra[4:6]), line.source)
    elif not plugin:
        yield "jax.plugin", Absent(f"{line.source} asks for jax without its extra cuda12 or cuda13")

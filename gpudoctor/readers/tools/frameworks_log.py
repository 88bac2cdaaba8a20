"""What TensorFlow, JAX, Ollama, llama.cpp, Ultralytics and torch for R print of their GPUs, or of having none."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases

FACTS = (
    fact("tf.gpus", "int", "GPUs that tf.config.list_physical_devices('GPU') lists"),
    fact("tf.missing_libraries", "list", "libraries that TensorFlow says it could not load"),
)

_LOADED = Pattern(r"Loaded runtime CuDNN library: (\d+(?:\.\d+)+) but source was compiled with: (\d+(?:\.\d+)+)")
_PLUGIN = Pattern(
    r"JAX plugin (jax_cuda(\d+)_plugin) version (\d+(?:\.\d+)+) is installed,"
    r" but it is not compatible with the installed"
    r" jaxlib version (\d+(?:\.\d+)+)"
)
_DEVICES = Pattern(r"list_physical_devices\(['\"]GPU['\"]\)\)?\s*(?:->|:|=)\s*(\[.*\])")
_NOT_LOADED = Pattern(r"Could(?: not load dynamic library '|n't open CUDA library )([\w./-]{1,80}\w)")
_CREATED = Pattern(r"name: (\S.*?), pci bus id: ([0-9a-f:.]+), compute capability: (\d+\.\d+)")
_SHOWN = (
    ("device: cuda:", Pattern(r"\bDevice: cuda:(?P<index>\d+) (?P<name>[^:\n]+?)(?: : \S+)?\s*$")),
    (
        "compute capability",
        Pattern(r"\bDevice (?P<index>\d+): (?P<name>[^,\n]+), compute capability (?P<cc>\d+\.\d+)\b"),
    ),
    ("cuda:", Pattern(r"\btorch-\d\S* CUDA:(?P<index>\d+) \((?P<name>[^,()\n]+), \d+Mi?B\)")),
    (
        "library=cuda",
        Pattern(r"\blibrary=cuda\b.*?\bcompute=(?P<cc>\d+\.\d+).*?\b(?:name|description)=\"(?P<name>[^\"]+)\""),
    ),
)
"""How programs on top announce their GPU: ComfyUI, llama.cpp, Ultralytics, Ollama."""
_NO_GPU = Pattern(
    r"(?i)no compatible GPUs were discovered|msg=\"no nvidia devices detected\""
    r"|no usable GPU found, --gpu-layers option|cuda_is_available\(\)\W+FALSE|\bCUDA_ERROR_NO_DEVICE\b"
    r"|\bno CUDA-capable device\b|\bcudaErrorNoDevice\b"
    r"|^\W*(?:(?:warning|warn|error|info)\W{1,3})?(?:found 0 GPUs?\b"
    r"|(?:CUDA|GPU)(?: support| device)? (?:is )?not (?:available|found|detected)\b(?! (?:in|on|for) )"
    r"|no (?:CUDA |NVIDIA )?GPUs? (?:is |are )?(?:found|detected|available|visible)\b)"
)
"""How programs say that they see no GPU: a phrase of their own, or a line that begins so."""
_NO_GPU_WORDS = phrases(
    """
    gpu | cuda not | cuda is not | cuda support | cuda device | no_device | cuda-capable | nodevice
    """
)
_LONGEST = 1000
_WHOLE = Pattern(r"^[\s`>]*(?:\w[\w ]*[:=]\s*)?\[PhysicalDevice\(.*\)\][\s`]*$")
_MOST_ROWS = 20
_ASKED_TF = Pattern(
    r"(?:num(?:ber of)? )?gpus? available"
    r"|(?:tf|tensorflow)\b(?: config| experimental)*(?: lists?| sees| detects| finds)?"
    r"(?: logical| physical| visible| available| local)*"
    r" (?:gpus?|gpu devices|devices|device list)(?: gpu| count| list| found| visible)?"
    r"|(?:tf config )?list physical devices(?: gpu)?"
    r"|gpus? (?:visible|seen|found|listed)(?: to| by| in) (?:tf|tensorflow)|physical gpus"
)
_NOTHING = ("", "none", "no", "0", "empty", "nothing", "cpu", "false", "empty list", "cpu:0", "no gpus", "no gpu")
_PJRT = Pattern(r"jax_plugins\.xla_cuda(\d+)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Versions, libraries, GPUs and "no GPU" messages that TensorFlow, JAX and other frameworks print.

    tf.cudnn, tf.gpus, tf.missing_libraries, jax.plugin, jax.plugin_cuda, jax.jaxlib, rows of ``lib`` and ``gpu``, and
    live.cuda_available, False, for such a message.
    """
    for match, source in paste.matches(_LOADED.search, "loaded runtime cudnn library"):
        yield "tf.cudnn", Known(match.group(2), source)
        chosen = {"name": Known("libcudnn", source), "version": Known(match.group(1), source)}
        yield "lib", ({**chosen, "chosen": Known(True, source)},)
    for match, source in paste.matches(_PLUGIN.search, "jax plugin jax_cuda"):
        yield "jax.plugin", Known(match.group(3), source)
        yield "jax.plugin_cuda", Known(int(match.group(2)), source)
        yield "jax.jaxlib", Known(match.group(4), source)
    for plugin, source in paste.matches(_PJRT.search, "jax_plugins.xla_cuda"):
        yield "jax.plugin_cuda", Known(int(plugin.group(1)), source)
    for match, source in paste.matches(_DEVICES.search, "list_physical_devices"):
        yield "tf.gpus", Known(match.group(1).count("PhysicalDevice"), source)
    yield from _tensorflow_gpu_count(paste)
    lost: dict[str, str] = {}
    for match, source in paste.matches(
        _NOT_LOADED.search, "could not load dynamic library", "couldn't open cuda library"
    ):
        lost.setdefault(match.group(1), source)
    if lost:
        yield "tf.missing_libraries", Known(tuple(lost), next(iter(lost.values())))
    rows = []
    for match, source in paste.matches(_CREATED.search, "compute capability:"):
        name, _, capability = match.groups()
        rows.append({"name": Known(name, source), "compute_capability": Known(capability, source)})
    if rows:
        yield "gpu", tuple(rows)
    yield from _announced_gpus(paste)
    for index, line in paste.having(*_NO_GPU_WORDS):
        if len(line) < _LONGEST and _NO_GPU.search(line):
            yield "live.cuda_available", Known(False, f"line {paste.numbers[index]}")
            break


def _tensorflow_gpu_count(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """tf.gpus: GPUs in TensorFlow's printed device list, or in a label that states their number."""
    for index, line in paste.having("[physicaldevice("):
        line_above = paste.lines[index - 1] if index else ""
        listing = line
        for continuation in paste.lines[index + 1 : index + 1 + _MOST_ROWS]:
            if "]" in listing or "PhysicalDevice(" not in continuation:
                break
            listing = f"{listing.rstrip()} {continuation.strip()}"
        if "'CPU')" not in line_above and "list_physical_devices" not in line and _WHOLE.search(listing):
            yield "tf.gpus", Known(listing.count("device_type='GPU'"), paste.use(index))
    for label in paste.labels:
        if not _ASKED_TF.fullmatch(label.name) or "memory" in label.name:
            continue
        answer = label.value.strip(" .'\"[]()").lower()
        if answer in _NOTHING or answer.startswith(("cpu only", "only cpu", "only the cpu", "no gpu")):
            yield "tf.gpus", Known(0, paste.use(label.index))
        elif answer.isdecimal() and len(answer) < 4:
            yield "tf.gpus", Known(int(answer), paste.use(label.index))
        elif "physicaldevice" in answer:
            yield "tf.gpus", Known(answer.count("device_type='gpu'"), paste.use(label.index))


def _announced_gpus(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu`` (index, name, compute capability if told) as ComfyUI, llama.cpp, Ultralytics and Ollama announce
    them.

    One entry for each program; of several lines on one index the first counts.
    """
    for words, pattern in _SHOWN:
        rows: dict[str, Row] = {}
        for index, line in paste.having(words):
            if not (match := pattern.search(line)):
                continue
            source = paste.use(index)
            groups = match.groupdict()
            number = groups.get("index") or str(len(rows))
            row: dict[str, Fact] = {"index": Known(int(number), source), "name": Known(groups["name"].strip(), source)}
            if groups.get("cc"):
                row["compute_capability"] = Known(groups["cc"], source)
            rows.setdefault(number, row)
        if rows:
            yield "gpu", tuple(rows.values())

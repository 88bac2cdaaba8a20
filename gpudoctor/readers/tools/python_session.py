"""Answers at a Python prompt or of ``python -c``, and tracebacks of ``import torch``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Rows
from gpudoctor.readers._forms import cudnn
from gpudoctor.readers._gpus import vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import release, truth

EXACT = 9

_TRIPLE = Pattern(r"(\d+\.\d+\.\d[\w.+]*)\s+(\d+\.\d+|None)(?:\s+(True|False))?$")
_DOUBLE = Pattern(r"(\d+\.\d+\.\d[\w.+]*)\s+(True|False)$")
_ASKED = Pattern(
    r"(?:print\()?(torch\.__version__|torch\.version\.cuda|torch\.version\.hip|torch\.cuda\.is_available\(\)"
    r"|torch\.cuda\.device_count\(\)"
    r"|torch\.backends\.cudnn\.version\(\)|torch\.cuda\.get_device_name\(\d*\)"
    r"|torch\.cuda\.get_device_capability\(\d*\)"
    r"|torch\.cuda\.get_arch_list\(\)|tf\.test\.is_built_with_cuda\(\)|tf\.__version__"
    r"|torch\.cuda\.nccl\.version\(\)|torch\._C\._cuda_getDriverVersion\(\))\)?\s*$"
)
_SAID = Pattern(
    r"(?:print\()?(torch\.__version__|torch\.version\.cuda|torch\.cuda\.device_count\(\)"
    r"|torch\.cuda\.get_device_name\(\d*\)"
    r"|torch\.cuda\.get_device_capability\(\d*\)|torch\.cuda\.get_arch_list\(\)"
    r"|torch\.backends\.cudnn\.version\(\)|tf\.__version__)\)?"
    r"\s*(?:->|=>|\s)\s*['\"]?([\w\[(].*?)['\"]?\s*$"
)
_WHERE = Pattern(r"(\d+\.\d+\.\d[\w.+]*)\s+\S*[\\/]torch[\\/]__init__\.pyc?$")
_INLINE = Pattern(
    r"(?<![\w.])(?:torch\.)?(?:cuda\.)?is_available(?:\(\))?[\s:]*(?:(?:->|=+(?!=)>?|returns?|returned|is|was|gives"
    r"|prints|turned|turns|became|becomes|goes|went|stays|now|still|says|shows)\s*){0,3}[`'\"]*(True|False)\b"
)
_PRINTED = Pattern(
    r"print\((?P<asked>torch[\w.]*(?:\(\))?(?:, ?torch[\w.]*(?:\(\))?)*)\)['\"`]?\s*"
    r"(?:in \w[\w ]{0,20})?(?:(?:prints|gives|says|shows|returns|->|=+>|:)\s*(?P<said>\S.{0,60}))?$"
)
_ERROR = Pattern(r"\s*(?:E\s+)?((?:[\w.]*(?:Error|Exception)|ModuleNotFoundError|ImportError|OSError)): (.+)")
_ARCHS = Pattern(r"(?:sm|compute)_\d{2,3}[af]?")
_NO_TORCH = Pattern(r"No module named ['\"]?torch['\"]?(?![\w.])")
_PAIR = Pattern(r"\((\d+), (\d+)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """What was asked of torch and answered, and how its import failed."""
    if "torch" in paste.lower or "tf." in paste.text:
        yield from _answers(paste)
    if "print(" in paste.text:
        yield from _printed(paste)
    if "True" in paste.text or "False" in paste.text or "None" in paste.text or "__init__.py" in paste.text:
        yield from _one_liners(paste)
    if "error" in paste.lower:
        yield from _imports(paste)


def _printed(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """``python -c "...; print(torch.__version__, torch.version.hip)"`` with its answers behind or below it."""
    for index, line in paste.having("print(torch"):
        if not (match := _PRINTED.search(line[:500])):
            continue
        asked = [part.strip() for part in match.group("asked").split(",")]
        said = match.group("said") or (paste.lines[index + 1].strip() if index + 1 < len(paste.lines) else "")
        answers = said.rstrip(".").split()
        if len(asked) != len(answers):
            continue
        paste.use(index, index if match.group("said") else index + 1)
        for question, answer in zip(asked, answers, strict=True):
            yield from answered(question, answer, f"line {paste.numbers[index]}")


def _answers(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    for index, line in enumerate(paste.bare):
        if "torch." not in line and "tf." not in line:
            continue
        if inline := _INLINE.search(line):
            yield "live.cuda_available", Known(inline.group(1) == "True", paste.use(index))
        if (said := _SAID.match(line.strip().removeprefix(">>> ").removeprefix("import torch; "))) and (
            "device_name" not in said.group(1) or vendor(said.group(2))
        ):
            facts = list(answered(said.group(1), said.group(2), f"line {paste.numbers[index]}"))
            if facts:
                paste.use(index)
                yield from facts
            continue
        asked = _ASKED.match(line.strip().removeprefix(">>> ").rpartition(";")[2].strip())
        if not asked or index + 1 >= len(paste.lines) or index + 1 in paste.commands:
            continue
        answer = paste.lines[index + 1].strip().strip("'\"")
        facts = list(answered(asked.group(1), answer, f"line {paste.numbers[index + 1]}"))
        if facts:
            paste.use(index, index + 1)
            yield from facts


def answered(question: str, answer: str, source: str) -> Iterator[tuple[str, Fact | Rows]]:
    """The facts in torch's answer to the expression."""
    if question == "torch.version.hip":
        yield (
            "torch.hip",
            Absent(f"torch.version.hip is None ({source})") if answer == "None" else Known(answer, source),
        )
    elif question in ("torch.__version__", "tf.__version__") and answer[:1].isdecimal():
        yield (
            ("torch.version" if question[:2] == "to" else "tf.version"),
            Known(answer.split()[0].rstrip(",;.)'\""), source),
        )
    elif question == "torch.version.cuda":
        if answer == "None" or not answer:
            yield "torch.cuda", Absent(f"torch.version.cuda is None ({source})")
        elif version := release(answer):
            yield "torch.cuda", Known(version, source)
    elif question in _TRUTHS and (said := truth(answer)) is not None:
        yield _TRUTHS[question], Known(said, source)
    elif question == "torch.cuda.device_count()" and answer.isdecimal():
        yield "live.device_count", Known(int(answer), source)
    elif question == "torch._C._cuda_getDriverVersion()" and answer.isdecimal() and int(answer) >= 1000:
        yield "cuda_driver.version", Known(f"{int(answer) // 1000}.{int(answer) % 1000 // 10}", source)
    elif question == "torch.backends.cudnn.version()" and answer.isdecimal():
        yield "live.cudnn", Known(cudnn(int(answer)), source)
    elif question.startswith("torch.cuda.get_device_name") and len(answer) < 80 and "rror" not in answer:
        index = "".join(filter(str.isdecimal, question)) or "0"
        yield "gpu", ({"index": Known(int(index), source), "name": Known(answer, source)},)
    elif question.startswith("torch.cuda.get_device_capability") and (pair := _PAIR.match(answer)):
        index = "".join(filter(str.isdecimal, question)) or "0"
        capability = f"{pair.group(1)}.{pair.group(2)}"
        yield "gpu", ({"index": Known(int(index), source), "compute_capability": Known(capability, source)},)
    elif question == "torch.cuda.get_arch_list()" and (archs := _ARCHS.compiled.findall(answer)):
        yield "torch.archs", Known(tuple(archs), source)
        yield "live.arch_list", Known(tuple(archs), source)


_TRUTHS = {"torch.cuda.is_available()": "live.cuda_available", "tf.test.is_built_with_cuda()": "tf.built_with_cuda"}


def _one_liners(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """``2.5.1+cu124 12.4 False``: version, CUDA, availability in one print; ``2.5.1 /.../torch/__init__.py``."""
    for index, line in enumerate(paste.bare):
        if not line[:1].isdecimal() or len(line) > 100 or index in paste.used:
            continue
        text = line.strip()
        if where := _WHERE.match(text):
            yield "torch.version", Known(where.group(1), paste.use(index))
            continue
        triple = _TRIPLE.match(text) or _DOUBLE.match(text)
        if not triple:
            continue
        source = paste.use(index)
        groups = triple.groups()
        yield "torch.version", Known(groups[0], source)
        yield "live.import_outcome", Known("ok", source)
        if len(groups) == 3 and groups[1] == "None":
            yield "torch.cuda", Absent(f"torch.version.cuda is None ({source})")
        elif len(groups) == 3:
            yield "torch.cuda", Known(groups[1], source)
        if groups[-1] in ("True", "False"):
            yield "live.cuda_available", Known(groups[-1] == "True", source)


def _imports(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for index, _ in paste.having("error"):
        error = _ERROR.match(paste.bare[index])
        if not error:
            continue
        kind, message = error.groups()
        if _NO_TORCH.search(message):
            source = paste.use(index)
            yield "torch.version", Absent(f"No module named torch ({source})")
            yield "live.import_outcome", Known("error", source)
            yield "live.import_error", Known(paste.bare[index].strip()[:500], source)
        elif kind in ("ImportError", "OSError", "ModuleNotFoundError", "AttributeError") and _of_torch(
            paste, index, message
        ):
            source = paste.use(index)
            yield "live.import_outcome", Known("error", source)
            yield "live.import_error", Known(paste.bare[index].strip()[:500], source)


def _of_torch(paste: Paste, index: int, message: str) -> bool:
    """Whether the error is torch's own import failing: its path is in the message, or its package in the traceback."""
    path = message.replace("\\", "/")
    if "torch/lib/" in path or "libtorch" in message.partition(":")[0]:
        return "torchaudio" not in path and "torchvision" not in path
    above = [line.replace("\\", "/") for line in paste.lines[max(0, index - 12) : index]]
    return any('/torch/__init__.py"' in line for line in above)

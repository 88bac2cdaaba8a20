"""Answers at a Python prompt or of ``python -c``, and tracebacks of ``import torch``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.versions import CUDNN_WIDE, numbered
from gpudoctor.readers._machine import gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import major_minor, yes_or_no

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
_ANSWERED = Pattern(
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
_IN_CODE = Pattern(r"\W*(?:if|elif|while|assert|return)\b")
"""How a line begins that asks for the answer and does not show it."""
_PRINTED = Pattern(
    r"print\((?P<asked>torch[\w.]*(?:\(\))?(?:, ?torch[\w.]*(?:\(\))?)*)\)['\"`]?\s*"
    r"(?:in \w[\w ]{0,20})?(?:(?:prints|gives|says|shows|returns|->|=+>|:)\s*(?P<output>\S.{0,60}))?$"
)
_ERROR = Pattern(r"\s*(?:E\s+)?((?:[\w.]*(?:Error|Exception)|ModuleNotFoundError|ImportError|OSError)): (.+)")
_ARCHS = Pattern(r"(?:sm|compute)_\d{2,3}[af]?")
_NO_TORCH = Pattern(r"No module named ['\"]?torch['\"]?(?![\w.])")
_PAIR = Pattern(r"\((\d+), (\d+)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """What torch and TensorFlow answered at a Python prompt, and how importing torch failed."""
    if "torch" in paste.lower or "tf." in paste.text:
        yield from _prompt_answers(paste)
    if "print(" in paste.text:
        yield from _print_answers(paste)
    if "True" in paste.text or "False" in paste.text or "None" in paste.text or "__init__.py" in paste.text:
        yield from _version_lines(paste)
    if "error" in paste.lower:
        yield from _import_errors(paste)


def _print_answers(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts from ``print(torch.__version__, torch.version.hip)`` and its output behind or below it."""
    for index, line in paste.having("print(torch"):
        if not (match := _PRINTED.search(line[:500])):
            continue
        expressions = [part.strip() for part in match.group("asked").split(",")]
        printed = match.group("output") or (paste.lines[index + 1].strip() if index + 1 < len(paste.lines) else "")
        answers = printed.rstrip(".").split()
        if len(expressions) != len(answers):
            continue
        paste.use(index, index if match.group("output") else index + 1)
        for question, answer in zip(expressions, answers, strict=True):
            yield from facts_of_answer(question, answer, f"line {paste.numbers[index]}")


def _prompt_answers(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts from an expression of torch or TensorFlow and its answer, on the same or the next line."""
    for index, line in enumerate(paste.bare):
        if "torch." not in line and "tf." not in line:
            continue
        if (inline := _INLINE.search(line)) and not _IN_CODE.match(line):
            yield "live.cuda_available", Known(inline.group(1) == "True", paste.use(index))
        if (inline_answer := _ANSWERED.match(line.strip().removeprefix(">>> ").removeprefix("import torch; "))) and (
            "device_name" not in inline_answer.group(1) or gpu_vendor(inline_answer.group(2))
        ):
            facts = list(
                facts_of_answer(inline_answer.group(1), inline_answer.group(2), f"line {paste.numbers[index]}")
            )
            if facts:
                paste.use(index)
                yield from facts
            continue
        expression = _ASKED.match(line.strip().removeprefix(">>> ").rpartition(";")[2].strip())
        if not expression or index + 1 >= len(paste.lines) or index + 1 in paste.commands:
            continue
        answer = paste.lines[index + 1].strip().strip("'\"")
        facts = list(facts_of_answer(expression.group(1), answer, f"line {paste.numbers[index + 1]}"))
        if facts:
            paste.use(index, index + 1)
            yield from facts


def facts_of_answer(question: str, answer: str, source: str) -> Iterator[tuple[str, Fact | Rows]]:
    """The facts in the printed answer to a Python expression; none for other expressions or answers.

    torch.hip and torch.cuda are `Absent` for the answer None.
    """
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
        elif version := major_minor(answer):
            yield "torch.cuda", Known(version, source)
    elif question in _TRUTHS and (is_true := yes_or_no(answer)) is not None:
        yield _TRUTHS[question], Known(is_true, source)
    elif question == "torch.cuda.device_count()" and answer.isdecimal():
        yield "live.device_count", Known(int(answer), source)
    elif question == "torch._C._cuda_getDriverVersion()" and answer.isdecimal() and int(answer) >= 1000:
        yield "cuda_driver.version", Known(f"{int(answer) // 1000}.{int(answer) % 1000 // 10}", source)
    elif question == "torch.backends.cudnn.version()" and answer.isdecimal():
        yield "live.cudnn", Known(numbered(int(answer), CUDNN_WIDE), source)
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


def _version_lines(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts from ``2.5.1+cu124 12.4 False`` (version, CUDA, availability) or ``2.5.1 /.../torch/__init__.py``.

    torch.cuda is `Absent` where None is printed.
    """
    for index, line in enumerate(paste.bare):
        if not line[:1].isdecimal() or len(line) > 100 or index in paste.used:
            continue
        text = line.strip()
        if init_path := _WHERE.match(text):
            yield "torch.version", Known(init_path.group(1), paste.use(index))
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


def _import_errors(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """live.import_outcome (error) and live.import_error of a failed ``import torch``, by its traceback or message.

    torch.version is absent for "No module named torch".
    """
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
        elif kind in ("ImportError", "OSError", "ModuleNotFoundError", "AttributeError") and _is_torch_import(
            paste, index, message
        ):
            source = paste.use(index)
            yield "live.import_outcome", Known("error", source)
            yield "live.import_error", Known(paste.bare[index].strip()[:500], source)


def _is_torch_import(paste: Paste, index: int, message: str) -> bool:
    """Whether torch's own import raised the error: its path in the message, its package in the traceback."""
    path = message.replace("\\", "/")
    if "torch/lib/" in path or "libtorch" in message.partition(":")[0]:
        return "torchaudio" not in path and "torchvision" not in path
    above = [line.replace("\\", "/") for line in paste.lines[max(0, index - 12) : index]]
    return any('/torch/__init__.py"' in line for line in above)

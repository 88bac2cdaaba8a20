"""nvcc, gcc and ptxas, by what their ``--version`` prints and by how builds complain of them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import missing_fact

EXACT = 7

_RELEASE = Pattern(r"(?i)Cuda compilation tools, release (\d+\.\d+)")
_PTXAS = Pattern(r"using ptxas (\d+\.\d+)")
_GCC = Pattern(r"(?:^|[\s/:])(?:gcc|g\+\+|cc|c\+\+)(?:-\d+)?(?: \(GCC\)| \([^)]*\))? (\d+\.\d+\.\d+)(?:\s|$)")
_CLANG = Pattern(r"clang version (\d+\.\d+\.\d+)")
_MISMATCH = (
    Pattern(
        r"(?i)detected CUDA version \((\d+\.\d+)\) mismatches the version that was used to compile\s+"
        r"PyTorch \((\d+\.\d+)\)"
    ),
    Pattern(r"(?i)Installed CUDA version (\d+\.\d+) does not match the\s+version torch was compiled with (\d+\.\d+)"),
)
_NO_NVCC = Pattern(r"(?i)nvcc['\"]?: (?:command )?not found|'nvcc' is not recognized|Could not find nvcc")
_IDENTIFIED = Pattern(r"The (CUDA|CXX) compiler identification is (NVIDIA|GNU|Clang|AppleClang|MSVC) (\d+(?:\.\d+)+)")
_FOUND = Pattern(r"Found CUDA(?:Toolkit)?: .*\(found (?:suitable )?version \"(\d+\.\d+)")
_RUNTIME = Pattern(r"using CUDA_HOME='([^'\n]+)'")
_PRINTED = Pattern(r"print\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_HOME_LABELS = frozenset({"echo cuda home", "echo $cuda home", "cpp extension cuda home"})
_NVCC_LABELS = frozenset({"nvcc", "nvcc version", "nvcc v", "which nvcc", "command v nvcc", "type nvcc", "where nvcc"})
_FOLDERS = frozenset({"usr local cuda", "ls usr local cuda", "ls d usr local cuda", "opt cuda"})
_NOT_THERE = Pattern(
    r"(?i)\b(?:no nvcc\b(?! (?:is )?(?:needed|required|necessary|error|problem|issue|warning))"
    r"|nvcc (?:is |was )?(?:not installed|missing|not on (?:the )?PATH|not in (?:the )?PATH|not there|not available))"
)
_NO_TOOLKIT = Pattern(
    r"(?i)\bno cuda(?:-?\S*)? (?:folder|directory|dir)\b"
    r"|\bno CUDA toolkit\b(?! (?:is )?(?:needed|required|necessary|error))"
    r"|CUDA toolkit (?:is |was )?(?:not installed|missing|not there)"
    r"|CUDA_HOME[^\n]{0,60}(?:does not|doesn't) exist|CUDA_HOME[^\n]{0,60}no such (?:folder|directory|file)"
)
_SLIM = Pattern(r"\b(?:nvidia/cuda|pytorch/pytorch):\S{0,120}?-(runtime|base)(?:-\S{0,120})?(?![\w-])")
_FULL = Pattern(r"\b(?:nvidia/cuda|pytorch/pytorch):\S{0,120}-devel|[-:]devel\b")
_HOME = Pattern(r"default cuda_home='([^']+)' doesn't exist")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Versions of nvcc, ptxas, gcc and clang, and CUDA_HOME; absent facts for those reported missing."""
    yield from _nvcc_release(paste)
    for match, source in paste.matches(_PTXAS.search, "using ptxas"):
        yield "cuda.ptxas_version", Known(match.group(1), source)
    yield from _cmake_compilers(paste)
    yield from _toolkit_mismatch(paste)
    for index, line in paste.having("nvcc"):
        if _NO_NVCC.search(line):
            yield "cuda.nvcc", Absent(f"not on PATH: {line.strip()[:80]} ({paste.use(index)})")
        if home := _HOME.search(line):
            yield "cuda.home_has_nvcc", Known(False, paste.use(index))
            yield "cuda.toolkit_version", Absent(f"{home.group(1)} does not exist ({paste.use(index)})")
    yield from _cuda_home(paste)
    yield from _reported_missing(paste)
    yield from _host_compiler(paste)


def _cuda_home(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """cuda.home as torch's build helper prints it, or the answer to ``print(..., CUDA_HOME)``, absent for ``None``."""
    for index, line in paste.having("cuda_home"):
        if match := _RUNTIME.search(line):
            yield "cuda.home", Known(match.group(1), paste.use(index))
            continue
        print_call = _PRINTED.search(line)
        arguments = [part.strip() for part in print_call.group(1).split(", ")] if print_call else []
        positions = [position for position, name in enumerate(arguments) if name.rpartition(".")[2] == "CUDA_HOME"]
        if not positions or index + 1 >= len(paste.lines):
            continue
        answers = paste.lines[index + 1].split()
        if len(answers) == len(arguments):
            answer = answers[positions[0]]
            source = paste.use(index + 1)
            yield "cuda.home", Absent(f"CUDA_HOME is None ({source})") if answer == "None" else Known(answer, source)


def _reported_missing(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Absent nvcc, toolkit or CUDA_HOME where the text says so (``which nvcc: nothing``) or its image has no nvcc."""
    for label in paste.labels:
        name = label.name
        if name not in _NVCC_LABELS and name not in _FOLDERS and name not in _HOME_LABELS:
            continue
        source = f"line {paste.numbers[label.index]}"
        if not isinstance(absent := missing_fact(label.value, source), Absent):
            continue
        if name in _HOME_LABELS:
            yield "cuda.home", absent
        elif name in _FOLDERS:
            yield "cuda.toolkit_version", absent
        else:
            yield "cuda.nvcc", absent
        paste.use(label.index)
    for missing, source in paste.matches(_NOT_THERE.search, "nvcc"):
        yield "cuda.nvcc", Absent(f"{missing.group()} ({source})")
    for missing, source in paste.matches(_NO_TOOLKIT.search, "no cuda", "cuda toolkit", "cuda_home"):
        yield "cuda.toolkit_version", Absent(f"{missing.group()} ({source})")
    images = paste.having("nvidia/cuda:", "pytorch/pytorch:")
    slim = [(index, match.group(1)) for index, line in images if (match := _SLIM.search(line))]
    if slim and not any(_FULL.search(line) for line in paste.lines):
        for index, tag in slim:
            yield "cuda.nvcc", Absent(f"images with {tag} in their tag carry no compiler ({paste.use(index)})")


def _cmake_compilers(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Compilers and toolkit that CMake finds: "The CUDA compiler identification is NVIDIA 12.4.131"."""
    for index, line in paste.having("compiler identification is", "found cuda"):
        if match := _IDENTIFIED.search(line):
            language, maker, version = match.groups()
            source = paste.use(index)
            if language == "CUDA":
                yield "cuda.nvcc_version", Known(".".join(version.split(".")[:2]), source)
                yield "cuda.toolkit_version", Known(".".join(version.split(".")[:2]), source)
            else:
                yield from host_compiler(
                    {"GNU": "gcc", "AppleClang": "clang"}.get(maker, maker.lower()), version, source
                )
        elif toolkit := _FOUND.search(line):
            yield "cuda.toolkit_version", Known(toolkit.group(1), paste.use(index))


def _nvcc_release(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """cuda.nvcc_version and cuda.toolkit_version from ``nvcc --version``, or cuda.ptxas_version from ptxas's."""
    for index, line in paste.having("cuda compilation tools"):
        match = _RELEASE.search(line)
        if not match:
            continue
        source = paste.use(index)
        above = " ".join(paste.lines[max(0, index - 4) : index]).lower()
        if "ptx optimizing assembler" in above:
            yield "cuda.ptxas_version", Known(match.group(1), source)
        else:
            yield "cuda.nvcc_version", Known(match.group(1), source)
            yield "cuda.toolkit_version", Known(match.group(1), source)


def _toolkit_mismatch(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """cuda.toolkit_version and torch.cuda from torch's error that they do not match."""
    for index, line in paste.having("cuda version"):
        text = line + " " + (paste.lines[index + 1] if index + 1 < len(paste.lines) else "")
        for pattern in _MISMATCH:
            if match := pattern.search(text):
                source = paste.use(index)
                yield "cuda.toolkit_version", Known(match.group(1), source)
                yield "torch.cuda", Known(match.group(2), source)


def _host_compiler(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Version and kind of gcc or clang from the output of their ``--version``."""
    for index, _ in paste.commands_starting("gcc", "g++", "cc ", "c++", "clang"):
        for after, line in paste.output(index, 3):
            if match := _CLANG.search(line):
                yield from host_compiler("clang", match.group(1), paste.use(after))
            elif match := _GCC.search(line):
                yield from host_compiler("gcc", match.group(1), paste.use(after))
    for index, line in paste.having("gcc (", "g++ ("):
        if line.startswith(("gcc (", "g++ (")) and (match := _GCC.search(line)):
            yield from host_compiler("gcc", match.group(1), paste.use(index))


def host_compiler(kind: str, version: str, source: str) -> Iterator[tuple[str, Fact]]:
    """cuda.host_compiler_version and cuda.host_compiler_kind, which is gcc, clang or msvc."""
    yield "cuda.host_compiler_version", Known(version, source)
    yield "cuda.host_compiler_kind", Known(kind, source)

"""What nvidia-smi and NVML's other callers print when NVML does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.log_lines import denied
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, by_phrase, phrases
from gpudoctor.readers._values import is_about_the_past, normalized_pci_address

EXACT = 9

_STATES = by_phrase(
    """
version mismatch: driver/library version mismatch | nvml_error_lib_rm_version_mismatch | librmversionmismatch |
    detected an nvml/rm version mismatch
driver not loaded: couldn't communicate with the nvidia driver | couldn’t communicate with the nvidia driver |
    could not communicate with the nvidia driver | failed to initialize nvml: driver not loaded |
    nvml error: driver not loaded | nvmlerror_drivernotloaded | nvml_error_driver_not_loaded
library not found: couldn't find libnvidia-ml | nvml shared library not found | nvmlerror_librarynotfound |
    nvml_error_library_not_found | libnvidia-ml.so.1: cannot open shared object
no permission: failed to initialize nvml: insufficient permissions | nvml error: insufficient permissions |
    nvmlerror_nopermission
unknown error: failed to initialize nvml: unknown error | nvml: unknown error | nvml error: unknown error |
    nvmlerror_unknown
gpu is lost: gpu is lost | nvmlerror_gpuislost | nvml_error_gpu_is_lost
"""
)
"""Words (lower case) and the state they tell, in the vocabulary of nvml.state."""
_HANDLE = Pattern(
    r"(?i)unable to determine the device handle for gpu\s?(\d{0,16}):?\s?([0-9a-f:.]{0,40}[0-9a-f])\s*:\s*(.+)"
)
_NUMBERED = Pattern(r"(?i)device handle for gpu\s?(\d{1,3}):\s")
_OF_A_GPU = ("gpu is lost", "requires reset", "not found", "no permission")
"""What NVML says of one GPU whose handle it does not give."""
_LIBRARY = Pattern(r"NVML library version: (\d+(?:\.\d+)+)")
_UNKNOWN = Pattern(r"(?i)nvmlInit\w{0,30}\b[^\n]{0,40}(?<![\d.])999(?![\d.])")
_RETURNED = Pattern(
    r"(?i)\bnvml(?:Init\w{0,10}(?:\(\))?\W{0,4}(?:err(?:or)?|fail(?:ed|ure)|returned|rc|ret|status)|"
    r" (?:vram )?init(?:iali[sz]ation)? (?:failure|failed|error))\b[^\n\d]{0,20}(\d{1,3})(?![\d.])"
)
_CODES = {
    "4": "no permission",
    "9": "driver not loaded",
    "12": "library not found",
    "15": "gpu is lost",
    "18": "version mismatch",
    "999": "unknown error",
}
"""NVML's return codes, for programs that print the number alone."""
_MISSING = Pattern(
    r"(?i)nvidia-smi['\"]?: (?:command )?not found|nvidia-smi' is not recognized|command 'nvidia-smi' not found"
)
_NOTHING_TO_SEE = phrases(
    "nvml | nvidia-smi | nvidia driver | gpu is lost | no devices were found | device handle | libnvidia-ml"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """nvml.state, nvml.message and what follows from errors of nvidia-smi and NVML, but for errors that the text denies
    or calls past.

    What follows: driver.installed, rows of ``gpu`` with an error, gpu.count 0 for "No devices were found", and versions
    of the library.
    """
    if not any(word in paste.lower for word in _NOTHING_TO_SEE):
        return
    for words, state in _STATES.items():
        if state == "no permission" and "nvmldeviceget" in paste.lower:
            continue  # one question refused, as of the GPU that a MIG device is part of; NVML itself answers
        for index, line in paste.having(words):
            position = line.lower().find(words)
            if is_about_the_past(line) or denied(line, position, position + len(words)):
                continue
            source = paste.use(index)
            yield "nvml.state", Known(state, source)
            yield "nvml.message", Known(line.strip()[:300], source)
            if state == "driver not loaded" and "nvidia-smi has failed" in line.lower():
                yield "driver.installed", Known(True, source)
    for index, line in paste.having("nvmlinit"):
        if _UNKNOWN.search(line):
            yield "nvml.state", Known("unknown error", paste.use(index))
    for index, line in paste.having("nvmlinit", "nvml init", "nvml vram init"):
        if (
            (match := _RETURNED.search(line))
            and (state_name := _CODES.get(match.group(1)))
            and not is_about_the_past(line)
        ):
            source = paste.use(index)
            yield "nvml.state", Known(state_name, source)
            yield "nvml.message", Known(line.strip()[:300], source)
    yield from _handle_errors(paste)
    for index, line in paste.having("no devices were found"):
        if "|" not in line:
            source = paste.use(index)
            yield "nvml.message", Known(line.strip()[:300], source)
            yield "nvml.state", Known("ok", source)
            yield "gpu.count", Known(0, source)
    for version, source in paste.matches(_LIBRARY.search, "nvml library version:"):
        yield "nvml.library_version", Known(version.group(1), source)
        yield "driver.library_version", Known(version.group(1), source)
    for index, line in paste.having("nvidia-smi"):
        if _MISSING.search(line):
            yield "nvml.message", Known(line.strip()[:300], paste.use(index))


def _handle_errors(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """State, message and a row of ``gpu`` from "Unable to determine the device handle".

    The state is NVML's words for a GPU that is lost, requires a reset, is not found or not permitted, else ``unknown
    error``.
    """
    for index, line in paste.having("unable to determine the device handle"):
        source = paste.use(index)
        match = _HANDLE.search(line)
        message = match.group(3).strip() if match else line.strip()
        if match and (pci_address := normalized_pci_address(match.group(2))):
            gpu: dict[str, Fact] = {"address": Known(pci_address, source), "error": Known(message[:100], source)}
            if numbered := _NUMBERED.search(line):
                gpu["index"] = Known(int(numbered.group(1)), source)
            yield "gpu", (gpu,)
        error = message.lower().replace("insufficient permissions", "no permission")
        yield "nvml.state", Known(next((state for state in _OF_A_GPU if state in error), "unknown error"), source)
        yield "nvml.message", Known(line.strip()[:300], source)

"""What works outside of a container and within, in people's words: nvidia-smi on the host, other containers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gpudoctor.model.fact import Fact, Known
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.people._outcome import outcome

MOST = 500
"""Lines that are looked at: who writes words writes few of them."""

_SMI = Pattern(r"nvidia[-_ ]smi\b", 2)
_OUTSIDE = Pattern(
    r"\boutside\b|\b(?:bare[- ]?metal|natively|hypervisor)\b|\bhost(?:'s)?\b(?![- ]?name)|^\W*(?:gpu |worker )?node\b"
    r"|\bon (?:the |a |my |its |each |every )?(?:\w+ )?(?:node|server|machine|worker|instance|workstation|VM)\b",
    2,
)
_INSIDE = Pattern(
    r"\binside\b|\b(?:in|within|from) (?:the |a |my |this |that |running |same |docker |gpu )*"
    r"(?:container|pod|docker|image|lxc|service|workspace)s?\b|\b(?:docker|kubectl|podman) exec\b"
    r"|^\W*\(?(?:container|pod)\)?\W",
    2,
)
_CLAUSES = Pattern(
    r"\s*(?:;|,? (?:but|while|whereas|yet|though)\b|, (?=not\b)|\. (?=[A-Z])|, (?=(?:on|in|inside|outside) the\b))\s*",
    2,
)
_CUDA = Pattern(r"\bCUDA(?: Version)?\W{0,3}(\d{1,2}\.\d{1,2})\b|^\W*(\d{1,2}\.\d)\b", 2)
_OTHERS = Pattern(
    r"^\W*(?:all )?(?:other|another|different) (?:gpu )?(?:containers?|images?|pods?|services?)\b"
    r"|^\W*(?:the )?(?:same (?:image|container) )?(?:with|under|in|using|via|by|through) (?:plain )?"
    r"(?:docker(?: run)? )?(?:with )?--gpus\b(?: all)?",
    2,
)
_CURED = Pattern(
    r"^\W*(?:(?:works? |runs? |fine )?(?:with|after adding|adding|once|after setting|setting) )"
    r"[`'\"]?(?:runtimeClass(?:Name)?[:= ]+[`'\"]?nvidia|--runtime[= ]nvidia|runtime: ?nvidia|--nv\b"
    r"|nvidia\.com/gpu: ?\d+|--device[= ]nvidia\.com/gpu\S*)",
    2,
)
"""That the same container works once it is started with GPUs: ``with runtimeClassName: nvidia: passes``."""
_AGAIN = Pattern(
    r"\b(?:re-?start(?:s|ed|ing)?|re-?creat(?:e|es|ed|ing|ion)|re-?deploy\w*|re-?launch\w*|re-?running|new|fresh"
    r"|delet(?:e|ed|ing))\b[^:\n]{0,24}?\b(?:containers?|pods?|docker)\b"
    r"|\b(?:containers?|pods?|docker)\b (?:is |was |were |being )?(?:re-?start\w*|re-?creat\w*|re-?deploy\w*)"
    r"|\bdocker(?: compose|-compose)? restart\b|\bkubectl (?:delete pod|rollout restart)\b",
    2,
)

_UNLESS = Pattern(r"\b(?:unless|until) (?:(?:i|we|you) )?(?:the |a |my |it is )?$", 2)
"""What fails ``unless I restart the container``."""

_TOLD = (
    "runtimeclass",
    "runtime",
    "--nv",
    "nvidia.com/gpu",
    "nvidia-smi",
    "nvidia smi",
    "nvidia_smi",
    "container",
    "pod",
    "docker",
    "image",
    "--gpus",
    "kubectl",
)


def worked(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """What people say of nvidia-smi outside and inside, of other containers, and of starting it again."""
    for index, _ in islice(paste.having(*_TOLD), MOST):
        line = paste.bare[index]
        if len(line) > 300 or line[:1] in "|+":
            continue
        source = f"line {paste.numbers[index]}"
        if _SMI.search(line):
            for name, came in _places(line):
                yield name, Known(came, source)
        elif (found := _CURED.search(line)) and outcome(line[found.end() :]) is True:
            yield "container.asks_gpus", Known(False, source)
            yield "host.container", Known("container", source)
        elif (found := _OTHERS.search(line)) and outcome(line[found.end() :]) is True:
            yield "container.others_work", Known(True, source)
        elif found := _AGAIN.search(line):
            if _UNLESS.search(line[: found.start()]):
                yield "container.restart_cures", Known(True, source)
                continue
            cured = outcome(line[: found.start()] + " " + line[found.end() :])
            if cured is not None:
                yield "container.restart_cures", Known(cured, source)


def _places(line: str) -> Iterator[tuple[str, bool | str]]:
    """``nvidia-smi works on the host but not in the container``: for each place whether it does."""
    spoken = False
    waiting = ""
    for clause in _CLAUSES.compiled.split(line):
        outside, inside = _OUTSIDE.search(clause), _INSIDE.search(clause)
        spoken = spoken or bool(_SMI.search(clause))
        if waiting and not outside and not inside and (told := outcome(clause)) is not None:
            yield waiting, told
        waiting = ""
        if not spoken or bool(outside) == bool(inside):
            continue
        place = outside or inside
        assert place
        asked = _SMI.search(clause)
        start = min(place.start(), asked.start() if asked else place.start())
        rest = clause[place.end() :] if not _SMI.search(clause) else _SMI.compiled.split(clause)[-1]
        if cuda := _CUDA.search(rest):
            yield ("container.host_cuda" if outside else "container.inside_cuda"), cuda.group(1) or cuda.group(2)
        name = "container.host_smi" if outside else "container.inside_smi"
        came = _came(clause[start:])
        if came is None:
            came = _came(clause)
        if came is None:
            waiting = name
        else:
            yield name, came


def _came(text: str) -> bool | None:
    """The outcome that the words tell, without those that name the command and the place."""
    for pattern in (_SMI, _OUTSIDE, _INSIDE):
        text = pattern.compiled.sub(" ", text)
    return outcome(text)

"""A GPU, a driver and a torch named in passing: ``torch 2.8.0+cu128, RTX 5090, driver 570.86``, without any label."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._gpus import named
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 0
_PARTS = Pattern(
    r"\s*[,;()|]\s*|\s+/\s+|\s+(?:and|with|on) (?:an? |my |the )?|: |\s+nodes?\b"
    r"|(?:^|\s+)(?:uses?|using|is|are|have|has|own|got) (?:an? )?"
    r"(?=(?:nvidia|geforce|rtx|gtx|tesla|quadro|titan)\b|[rg]tx\d)",
    2,
)
_GPU = Pattern(
    r"(?:\d{1,2} ?[x×] ?|an? |one |two |four |eight )?(?:nvidia )?(?:geforce )?(?:"
    r"(?:rtx|gtx)[ -]?(?:pro )?a?\d{3,4}m?(?: ?(?:ti|super|laptop|mobile|max-?q|d|ada|blackwell|generation))*"
    r"|(?:gtx |rtx )?(?:titan|quadro|tesla|jetson) \w[\w ]{0,20}"
    r"|(?:a100|a800|h100|h200|h800|h20|gh200|b200|b300|gb200|gb300|gb10|l40s?|a10g?|a30|a40|v100s?|p100|k80|p40|m40|m60)"
    r"(?: ?(?:\d{2,3} ?gb|sxm\d?|pcie|nvl|hbm3e?))*"
    r"|(?:rtx )?a(?:2000|4000|4500|5000|5500|6000)"
    r"|k20[cmx]?|k40[cmst]?|t4|l4"
    r"|nvidia (?:l20|l2|p4|a2|a16|t1000|t600|t400)"
    r")(?: \d{1,3} ?gb)?(?: gpus?| cards?)?",
    2,
)
_LEAD = Pattern(
    r"(?:gpu |card |laptop |desktop |workstation |server "
    r"|nvidia-smi:? (?:(?:works|ok|fine),? )?(?:lists|shows|sees|finds|reports) )?"
    r"(?:the |my |an? |both )?",
    2,
)
"""What may stand before the name."""
_DRIVER = Pattern(
    r"(?:host )?(?:nvidia |gpu )?driver(?: version)?(?: is| still| stays| remains| at)* v?(\d{3}\.\d{2,3}(?:\.\d{2})?)",
    2,
)
_BESIDE = Pattern(r"v?([3-6]\d\d\.\d{2,3}(?:\.\d{2})?)")
"""A driver's number right behind a GPU's name: ``RTX 5090 with 550.144``."""
_TORCH = Pattern(
    r"(?:(?:uv )?pip3? install torch (?:gave|gives|got|installs|installed|brought|pulled|picks|picked|resolved to)"
    r"(?: me)?(?: torch)? |(?:(?:[\w./-]+ )?(?:installed|installs|pulled|pulls|brought|brings|got|gives|has|have)"
    r"(?: me)? )?"
    r"(?:(?:conda|pip|conda's|pip's) )?(?:py)?torch[ =:]{1,2}v?)(\d+\.\d+(?:\.\d+)?)"
    r"(?:-cuda\d+\.\d+| cuda ?\d+\.\d+| py3\.\d+_cuda\d\S+)?",
    2,
)
_CUDA_OF = Pattern(
    r"\b(?:py)?torch[ =:]{1,2}v?\d+\.\d+\.\d+(?:-|, | \(| with | for | )(?:built with |for )?cuda ?(\d+\.\d+)", 2
)
_ELSE = Pattern(
    r"\b(?:requires?|needs?|minimum|least|older|newer|below|before|after|upgrad\w+|updat\w+|downgrad\w+|tried|tested"
    r"|work(?:s|ed|ing)?|until|since|was|old|former|previous\w*|instead|supported|recommend\w*|like|unlike|than|from|to"
    r"|first|wants?|wanted|fine|ok)\b|[<>≥≤]|->|→",
    2,
)
"""Words of a line that names a thing which need not be the one at fault."""
_MIXED = Pattern(
    r"\W{0,4}(?:\w+ )?(?:setup|env|environment|machine|hardware|system|host|node|stack|versions?|rig|box|config|server"
    r"|configuration|specs?|platform|workstation|laptop|pc)\s*[:=] [^:]*(?:,| / )[^:]*$",
    2,
)
"""A line that tells several things at once: another reader may have taken only one of them."""
_LISTED = (
    "gpu models and configuration",
    "| nvidia-smi ",
    "$ nvidia-smi",
    "-l: ",
    "with cuda capability",
    "found gpu",
    "gpu 0",
    "gpu:",
    "gpus:",
    "card:",
    "device name",
    "name, ",
)
"""Words (lower case) of texts that list their GPUs elsewhere."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Each of the three where the text names exactly one in passing."""
    gpus: dict[str, str] = {}
    drivers: dict[str, str] = {}
    torches: dict[str, str] = {}
    cudas: dict[str, str] = {}
    for index, line in enumerate(paste.bare):
        placed = index in paste.used and not _MIXED.match(line)
        if not line.strip() or len(line) > 300:
            continue
        told = line.strip(" \t-*•.")
        whole = _DRIVER.fullmatch(told) or _CUDA_OF.fullmatch(told)
        if placed and not whole and (", " not in line or "==" in line or "|" in line):
            continue
        source = f"line {paste.numbers[index]}"
        if not _ELSE.search(line) and (built := _CUDA_OF.search(line)):
            cudas.setdefault(built.group(1), source)
        clauses = [clause for clause in told.split(", ") if not _ELSE.search(clause)]
        behind = False
        for part in (part for clause in clauses for part in ("", *_PARTS.compiled.split(clause))):
            bare = part[lead.end() :] if (lead := _LEAD.match(part)) else part
            beside, behind = behind and _BESIDE.fullmatch(part), bool(bare[:1].isalnum() and _GPU.fullmatch(bare))
            if behind:
                if not placed:
                    gpus.setdefault(bare, source)
            elif driver := _DRIVER.fullmatch(part):
                drivers.setdefault(driver.group(1), source)
            elif beside:
                drivers.setdefault(beside.group(1), source)
            elif torch := _TORCH.fullmatch(part):
                torches.setdefault(torch.group(1), source)
    for name in [name for name in gpus if any(name.lower() in other.lower() for other in gpus if other != name)]:
        del gpus[name]
    if len(gpus) == 1 and not any(words in paste.lower for words in _LISTED):
        name, source = gpus.popitem()
        yield from named(name, source)
        yield "pci.nvidia_count", Known(1, source)
    for fact, found in (("driver.version", drivers), ("torch.version", torches), ("torch.cuda", cudas)):
        if len(found) == 1:
            version, source = found.popitem()
            yield fact, Known(version, source)

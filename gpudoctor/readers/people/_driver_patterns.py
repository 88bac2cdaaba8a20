"""How people name parts of the driver, and what they say of them: the patterns of `driver_words`."""

from __future__ import annotations

from gpudoctor.readers._pattern import Pattern

TOLD_OF_ANOTHER_TIME = Pattern(
    r"^(?:after|before|since|when|fix\w*|solution|solved|workaround|cure\w*|helps?|works (?:with|in|on|after)"
    r"|expected|goal"
    r"|want\w*|earlier|previous\w*|formerly|yesterday|first|then|until|once|suggest\w*|advice|tried|attempt\w*"
    r"|question)\b"
)
SMI = Pattern(
    r"^(host |node |bare metal )?nvidia smi(?: (?:of "
    r"|from )?(?:driver )?(?P<version>\d{3} \d{1,3}(?: \d+)?))?(?: as (?:normal |regular |non root "
    r"|my )?user)?(?: (?:on|in|inside"
    r"|from|at)(?: the| a)? (.+))?$"
)
HOST_DRIVER = Pattern(
    r"^(?:nvidia |gpu )?(?:driver|smi|nvidia smi) (?:on|of)(?: the)? (?:host|node)\b|^(?:on )?(?:the )?(?:host"
    r"|node) (?:nvidia |gpu )?(?:driver|smi)\b"
)
"""The kernel, and with it the module, is the host's for containers as well."""
CONTAINERS = ("container", "docker", "kubernetes", "podman", "lxc", "lxd", " pod")
VIRTUAL = ("vfio", "passthrough", "pass-through", "hypervisor", "guest", " vm")
SMI_AS_ROOT = Pattern(r"^(?:sudo nvidia smi|nvidia smi (?:as|with|under|using|via) (?:root|sudo))(?: .*)?$")
NO_TALK = Pattern(
    r"\b(?:communicat\w+|talk|speak|reach|contact|connect\w*)\b[^,;]{0,30}\bdriver|no (?:communication"
    r"|connection|contact)\b"
    r"|driver (?:is )?not (?:loaded|running)|communication (?:error|fail\w*)",
    2,
)
NO_DEVICE = Pattern(
    r"\b(?:couldn.t|could not|cannot|can.t|did(?: not|n.t)|does(?: not|n.t)) (?:find|see|list"
    r"|detect)\b[^,;]{0,12}\b(?:devices?|gpus?|cards?)\b|"
    r"^\W*(?:no|0|zero) (?:nvidia )?(?:devices?|gpus?|cards?)\b|\b(?:sees?|shows?|finds?|lists?|reports?"
    r"|found)\b[^,;]{0,12}"
    r"\b(?:no|0|zero|none|nothing)\b(?: (?:nvidia )?(?:devices?|gpus?|cards?))?",
    2,
)
SECURE_BOOT = Pattern(r"secure ?boot", 2)
SECURE_STATE = Pattern(
    r"secure ?boot(?: state)?(?:[^,;.]{0,12}?| (?:was|is|got|has been|had been)(?: \w+)? (?:switched |turned "
    r"|set (?:to )?|re-?))\b(?P<after>on|enabled|active|enforc\w+|off|disabled|inactive|not (?:on|enabled"
    r"|active))\b"
    r"|\b(?P<before>with|without|no|enabled|disabled)\s+(?:uefi )?secure ?boot",
    2,
)
MODULE = Pattern(
    r"^(?!.*\b(?:uvm|peermem|drm|modeset|signature|signed|key|kind|type|flavou?r|version|kernel version|nouveau"
    r"|nova|blacklist\w*"
    r"|option|options|parameter|gdrdrv|nvidia fs|amdgpu|i915|python|torch|cudnn)\b)"
    r"(?:.*\b(?:nvidia|driver|gpu|kernel)\b.*\b(?:modules?|ko|kmod)\b.*|.*\b(?:modules?|kmod)\b.*\bnvidia\b.*"
    r"|lsmod\b.*|kmod nvidia.*)$"
)
UNLOADED = Pattern(
    r"\b(?:not|n.t|never|fail\w*|refus\w+|cannot|won.t|unable to)\b[^,;]{0,20}\b(?:load\w*|insert\w*)\b|\bunloaded\b"
    r"|\bload\w*\b[^,;]{0,12}\b(?:fail\w*|refused|rejected)|not in lsmod|absent from lsmod",
    2,
)
NOT_LOADED = Pattern(r"^(?:could not|cannot|can t|failed to|unable to|failure to) (?:load|insert)\b")
UNBUILT = Pattern(
    r"\b(?:not|n.t|never|fail\w*)\b[^,;]{0,16}\b(?:built|build|compil\w+|rebuilt)\b|\bbuild\w*\b[^,;]{0,12}\bfail\w*"
    r"|\bnone for (?:the |this )?(?:running |new |current )?kernel|\b(?:only|just) for\b[^,;]*\bkernel",
    2,
)
BUILT = Pattern(r"\b(?:built|compiled|on (?:the )?disk|signed)\b", 2)
PACKAGED = Pattern(r"^(?P<name>(?:nvidia|akmod|kmod|libnvidia|cuda drivers)\b[\w ]*)$")
PACKAGE_LABEL = Pattern(r"^(?:installed |driver |nvidia )*packages?(?: installed)?(?P<name>)$")
NAMED_PACKAGE = Pattern(
    r"\b(?P<name>nvidia-(?:open-)?dkms|nvidia-open(?:-dkms|-lts)?|nvidia-driver(?=[ -]\d)"
    r"|akmod-nvidia(?:-open)?|kmod-nvidia"
    r"|nvidia-utils|nvidia-kernel-dkms|nvidia-\d{3}xx-dkms"
    r"|cuda-drivers)[ -]?(?P<branch>(?<=-)\d{3}(?![.\d]))?(?:-\w+)*"
    r"[ =:-]*(?:\d:)?(?P<version>\d{3}(?:\.\d+){0,2})?"
)
RELEASE = Pattern(r"\b\d\.\d{1,2}\.\d{1,3}(?:[-.][\w.+-]*\w)?")
HEADERS = Pattern(
    r"^(?:.* )?(?:kernel|linux)(?: \w+){0,2} (?:headers|devel|source|sources|build tree)(?: .*)?$"
    r"|^(?:.* )?headers(?: .*)?$"
)
ROOT = Pattern(
    r"^(?:as|with|under|using|run as|running as|via|through)?\s*(?:user |the )?(?:root|sudo|superuser|uid 0)"
    r"(?: user)?(?: (?:in|inside|on|from) .*)?$"
)
GRAPHICS = Pattern(
    r"^rocm ?(?:info|smi)$|^(?!.*\b(?:driver|memory|count|number|util\w*|temp\w*|power|mode|operator|plugin"
    r"|image|container"
    r"|passthrough|backend)\b)"
    r".*\b(?:gpus?|graphics|accelerators?|video (?:card|adapter|controller)|display (?:adapter|card|controller)"
    r"|vga|igpu)\b.*$"
)
FABRIC = Pattern(r"^(?!.*\b(?:version|package|log)\b).*\bfabric ?manager\b.*$")
NO_GPU = Pattern(
    r"^(?!.*\bcontainer\b).*\b(?:has|have|with|there is|there are)?\s*\bno (?:nvidia |dedicated |discrete "
    r"|physical |cuda )?"
    r"(?:gpus?|graphics(?: card)?|video card|accelerators?|graphics hardware)\b\s*(?:at all|in it|here|present"
    r"|installed|attached)?$"
    r"|^(?:.*\b)?without (?:a |any )?(?:nvidia |dedicated )?(?:gpus?|graphics(?: card)?)$",
    2,
)
MACHINE = Pattern(
    r"^(?:[\w-]+ ){0,2}(?:machine|hardware|host|node|server|instance|vm|box|computer|pc|laptop|system"
    r"|environment|runtime|droplet"
    r"|vps|workstation|host hardware|server hardware|cloud vm|setup|platform|compute node|worker)(?: type"
    r"| hardware| spec\w*)?$"
)
OURS_DENIED = Pattern(r"\b(?:no|not an?|without(?: an?)?|non)[- ]nvidia\b[^,;]*", 2)
OTHER_GRAPHICS = Pattern(
    r"\b(?:radeon|vega ?\d|iris|uhd|hd graphics|arc (?:a|b)\d|(?:integrated|onboard|internal) (?:graphics|gpu)"
    r"|apple m\d|m[1-5]\b"
    r"|apple silicon)",
    2,
)
OTHER_MACHINE = Pattern(r"\b(?:login|head|build|other|second|dev\w*|mac|client)\b")

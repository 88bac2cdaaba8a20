"""What was changed to find the fault, and whether the job then ran: ``NCCL_P2P_DISABLE=1: works``.

A change and an outcome are looked for in one sentence, in either order. ``does not help``, ``still hangs`` and
``no effect`` are failures, ``no longer hangs`` and ``the hang is gone`` are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._lists import table
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    fact("tried.p2p_off", "text", "works or fails: the job with peer-to-peer copies switched off"),
    fact("tried.iommu_off", "text", "works or fails: the job with IOMMU or ACS switched off or passing through"),
    fact("tried.ib_off", "text", "works or fails: the job with RDMA switched off"),
    fact("tried.gid_index", "text", "works or fails: the job with another NCCL_IB_GID_INDEX"),
    fact("tried.gdr_off", "text", "works or fails: the job without GPUDirect RDMA"),
    fact("tried.cross_nic_off", "text", "works or fails: the job with NCCL_CROSS_NIC=0"),
    fact("tried.peermem", "text", "works or fails: the job after nvidia-peermem was loaded"),
    fact("tried.memlock", "text", "works or fails: the job with locked memory unlimited"),
    fact("tried.cumem_off", "text", "works or fails: the job with NCCL's cuMem allocations switched off"),
    fact("tried.custom_all_reduce_off", "text", "works or fails: the job without a custom all-reduce"),
    fact("tried.shm_larger", "text", "works or fails: the job with a larger /dev/shm or the host's"),
    fact("tried.interface", "text", "works or fails: the job with NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME set"),
    fact("tried.host_network", "text", "works or fails: the job in the host's network"),
    fact("tried.firewall_off", "text", "works or fails: the job without a firewall"),
    fact("tried.ipv6_off", "text", "works or fails: the job with IPv6 switched off"),
    fact("tried.one_gpu", "text", "works or fails: the job on one GPU"),
    fact("tried.several_gpus", "text", "works, hangs, wrong or fails: the job on several GPUs"),
    fact("tried.one_node", "text", "works or fails: the job on one node"),
    fact("tried.library_path_off", "text", "works or fails: the job without LD_LIBRARY_PATH, or without a part of it"),
    fact("tried.mask_off", "text", "works or fails: the job without CUDA_VISIBLE_DEVICES, or with another value of it"),
)

_OFF = r"(?:without|no|disabl(?:e|es|ed|ing)|turn(?:s|ed|ing)? off|switch(?:es|ed|ing)? off)"
_BOUNDARY = r"(?:iommu|vt-d|amd-vi|acs|svm|i/o virtualization(?: technology)?)"
"""What stands between devices, as firmware setups name it."""
_GPUS = r"(?:gpus?|cards?|gtx|rtx|titan|quadro|tesla|geforce|[1-5]0[5-9]0(?: ?ti)?|a100|h100|v100|a6000|l40s?|a10|t4)"
_NEEDLES = dict(
    table(
        """
p2p_off: p2p | peer
iommu_off: iommu | vt-d | amd-vi | acs | svm | virtualization
ib_off: infiniband | rdma | roce | ib_disable | ib disable | out ib | ing ib
gid_index: gid
gdr_off: gdr | gpudirect
cross_nic_off: nic
peermem: peermem | peer_mem
memlock: ulimit | memlock
cumem_off: cumem
custom_all_reduce_off: custom
shm_larger: ipc | shm | shared memory
interface: ifname
host_network: network | --net
firewall_off: firewall | ufw | iptables | selinux | opening port | opened port | opening the | opened the
ipv6_off: ipv6
one_gpu: gpu | tp | parallel | nproc | devices | card
several_gpus: gpu | tp | parallel | nproc | ddp | card | visible
one_node: node | machine | host
library_path_off: ld_library_path | ld library path
mask_off: visible_devices | visible devices
"""
    )
)
"""Words of which a line holds at least one, if it names the change: cheaper to look for than the pattern."""


def _unset(variable: str) -> str:
    """The ways to say that a variable was taken away or emptied."""
    return (
        rf"(?:\b(?:unset(?:s|ting)?|env -u|without|clear(?:s|ed|ing)?|empty(?:ing)?|remov(?:e|es|ed|ing)"
        rf"|drop(?:ped|ping)?"
        rf"|delet(?:e|ed|ing)|un-?export\w*|no)\b(?: os\.environ\W{{1,3}}|[^.;:\n]{{0,24}}?\b){variable}\b(?![=: ]+\d)"
        rf"|\b{variable}(?:\W{{1,3}}(?:''|\"\"))?,? (?:is |was )?(?:unset|removed|cleared|emptied|taken out"
        rf"|deleted)\b)"
    )


_CHANGES = {
    "p2p_off": r"NCCL P2P DISABLED?\b(?![=: ]+(?:0|false|unset|not\b))"
    r"|NCCL P2P LEVEL\W{1,3}(?:LOC|NVL|PIX|PXB|PHB|0|1)\b"
    r"|\b(?:p2p|peer[- ]to[- ]peer|peer access)(?: \w+)? (?:is |was )?(?:disabled?(?![=: ]+(?:0|false|unset|not\b))"
    r"|off|turned off|switched off)"
    r"|\bno[- ](?:p2p|peer)[- ]copy\b(?:[=: ]+(?:on|1|true)\b)?"
    rf"|\b{_OFF} (?:the )?(?:nccl |gpu |pcie )?(?:p2p|peer[- ]to[- ]peer|peer access)(?! disable)",
    "iommu_off": r"\biommu\W{1,2}(?:=|: )?\s?(?:off|pt|soft|disabled?|passthrough|pass-through)\b"
    rf"|\bpci=noacs\b|setpci\b.{{0,60}}acs|\b{_BOUNDARY}(?: \w+)? (?:is |was )?(?:off|disabled|turned off"
    rf"|switched off)"
    rf"|\b{_OFF} (?:the |pcie )*(?:{_BOUNDARY}|access control)"
    rf"|\b{_BOUNDARY}\b.{{0,60}}?[,;] ?(?:after |when |with it |then )?(?:disabl(?:ed|ing)|turn(?:ed|ing) off|off)\b",
    "ib_off": r"NCCL IB DISABLED?\b(?![=: ]+(?:0|false|unset|not\b))"
    rf"|\b{_OFF} (?:the )?(?:ib|infiniband|rdma|roce)\b|\b(?:ib|infiniband|rdma|roce) (?:disabled|off|turned off)",
    "gid_index": r"NCCL IB GID INDEX\W{1,3}\d",
    "gdr_off": rf"NCCL NET GDR (?:LEVEL|READ)\W{{1,3}}(?:0|LOC)\b|\b{_OFF} (?:gdr|gpudirect(?: rdma)?)\b",
    "cross_nic_off": r"NCCL CROSS NIC\W{1,3}0\b",
    "peermem": r"modprobe (?:nvidia[- ]peermem|nv peer mem)"
    r"|\b(?:load(?:ed|ing)?|install(?:ed|ing)?) (?:the )?(?:nvidia[- ]peermem|nv peer mem\w*)",
    "memlock": r"ulimit -l unlimited|memlock[ :=]+(?:-1|unlimited)",
    "cumem_off": r"NCCL CUMEM (?:HOST )?ENABLE\W{1,3}(?:0|false)\b",
    "custom_all_reduce_off": r"disable[- ]custom[- ]all[- ]?reduce|use custom all reduce[ =]+(?:disable|false)"
    rf"|\b{_OFF} (?:the )?custom[- ]all[- ]?reduce|custom[- ]all[- ]?reduce (?:is )?(?:disabled|off)",
    "shm_larger": r"--ipc[= ]host|\bipc: host|--shm-size[= ]?\d|shm size:? ?\d"
    r"|\b(?:larger|bigger|more|increas(?:ed|ing|e)) (?:the )?(?:/dev/shm|shm|shared memory)",
    "interface": r"(?:NCCL|GLOO|TP) SOCKET IFNAME\b(?![=: ]+(?:$|unset|not set|none|empty))",
    "host_network": r"--net(?:work)?[= ]host|\bhost ?network(?:ing)?\b(?!: false)|network mode: host",
    "firewall_off": r"\b(?:ufw|firewall|firewalld|iptables)(?: \w+)? (?:is |was )?(?:off|disabled?|stopped|flushed)"
    rf"|iptables -F|systemctl stop firewalld|\b(?:{_OFF}|stopp(?:ed|ing)) (?:the )?(?:firewall|ufw|firewalld"
    rf"|iptables)"
    r"|\bopen(?:ed|ing) (?:the )?ports?\b",
    "ipv6_off": r"disable[- ]ipv6\W{1,3}1|\bipv6 (?:is |was )?(?:off|disabled)|\b(?:without|disabl(?:e|ed|ing)) ipv6",
    "one_gpu": r"(?<!than )\b(?:single|one|1|each|either)[- ](?:nvidia )?(?:gpus?|cards?)\b(?! memory| shows| has)"
    r"|CUDA VISIBLE DEVICES=\d\b(?!,)"
    r"|\b(?:tensor[- ]parallel[- ]size|nproc[- ]per[- ]node|tp|num gpus|ngpus|devices|gpus)[ =:]+1\b(?![.,]\d)",
    "several_gpus": rf"\b(?:two|three|four|eight|both|all|[2-9]|1\d)(?: ?x)? (?:nvidia |geforce )?{_GPUS}\b"
    r"|\bmulti[- ]gpus?\b"
    r"|\b(?:tensor[- ]parallel[- ]size|nproc[- ]per[- ]node|tp|num gpus|ngpus|devices|gpus)[ =:]+[2-9]\b|-g [2-9]\b"
    r"|\b(?:data ?parallel|ddp|tensor parallel\w*)\b|CUDA VISIBLE DEVICES=\d,\d|\bbetween gpu ?\d",
    "library_path_off": _unset("LD LIBRARY PATH"),
    "mask_off": _unset("(?:CUDA|NVIDIA) VISIBLE DEVICES"),
    "one_node": r"\b(?:single|one|1)[- ](?:node|machine|host)\b|\b(?:nnodes|nodes)[ =:]+1\b",
}

_GOOD = (
    r"work(?:s|ed|ing)?(?! ?around)|workaround|fine|ok|okay|good|runs|ran|pass(?:es|ed)?|completes?d?"
    r"|finish(?:es|ed)?"
    r"|run(?=\W*$|[,;]| (?:fine|ok|through|again|normal))|train(?:s|ed)|correct(?:ly)?|coherent|normal(?:ly)?|sane"
    r"|stable|expected|fix(?:es|ed)?|solv(?:es|ed)|solution|resolv(?:es|ed)|help(?:s|ed)?|succe(?:eds?|eded|ss\w*)"
    r"|starts|started|loads|cur(?:es|ed)|avoid(?:s|ed)?|recovers|proceeds|comes? up|returns|serves"
    r"|gets (?:past|through)|rid of|hides?|masks|removes|eliminate[sd]|prevents|unblocks|circumvents"
    r"|right (?:loss(?:es)?|results?|output|values|numbers|answers?|text)"
)
_BAD = (
    r"hangs?|hung|hanging|stuck|stall(?:s|ed)?|freezes?|frozen|deadlock\w*|fail\w*|crash\w*|errors?|time(?:s|d)? ?out"
    r"|timeouts?|forever|locks(?: up)?|garbage|gibberish|nonsense|wrong|corrupt\w*|zeros|nan|broken|refused|problem"
    r"|[!@#?]{4,}"
)
_NOT = r"(?:do(?:es)?(?: not|n.t)|did(?: not|n.t)|is(?: not|n.t)|not|nothing|never|cannot|can.t|won.t|nor|neither)"
_OUTCOME = Pattern(
    rf"(?P<cured>(?:no longer|never|{_NOT}|stop(?:s|ped)|no more|without)\s(?:\w+\s)?(?:{_BAD})\b"
    rf"|\b(?:no|zero) (?:more )?(?:{_BAD})\b"
    rf"|\b(?:{_BAD})\b[^.;\n]{{0,24}}\b(?:gone|disappear\w*|vanish\w*|go(?:es)? away|went away"
    rf"|{_NOT} (?:re)?(?:occur|appear|happen)\w*))"
    rf"|(?P<same>\b{_NOT}\s(?:\w+\s){{0,2}}(?:{_GOOD}|run|complete|start|solve|resolve|cure|change)\b"
    r"|\bno (?:effect|difference|change|improvement|luck|help|avail)\b"
    r"|\b(?:unchanged|same|in vain|useless|still)\b)"
    rf"|(?P<good>(?<![\w./-])(?:{_GOOD})(?![\w/-]|\.\w))|(?P<bad>(?<![\w./-])(?:{_BAD})(?![\w/-]|\.\w))",
    2,
)
_SENTENCE = Pattern(
    r";(?! ?(?:after|when|with|once) (?:it|that|disabl|turn|switch))|\n| / |(?<=[a-z)\d])\. (?=[A-Za-z])"
    r"|,? (?:but|however|whereas|while|although|otherwise|else|without it|and without) "
)
_LEADS = Pattern(
    r"(?:\b(?:with|after|when|by|using|under|if|once|via|through|in|on|until|setting)\b|:|=|->"
    r"|→)\W*(?:\w+\W+){0,3}$",
    2,
)
_UNLESS = Pattern(r"\b(?:unless|without|except with|only if not)\W*(?:\w+\W+){0,2}$", 2)
_ELSE = Pattern(r"\s+(?:otherwise|else|if not|without(?: it| that)?\W*$)", 2)
_DENIED = Pattern(r"[:=?]\s*(?:no|false)\W*$", 2)
_HANGS = Pattern(
    r"\b(?:hangs?|hung|hanging|stuck|stalls?|freez\w+|frozen|deadlock\w*|forever|never|lock(?:s|ed)(?: up)?)\b", 2
)
_WRONG = Pattern(r"\b(?:garbage|gibberish|wrong|corrupt\w*|zeros|nans?|incoherent|nonsense)\b|!!!!", 2)
_STANDS = Pattern(
    r"\W*(?:env(?:ironment)?(?: variables?)?|exports?|variables?|launch(?:er)?|command|cmd|script|dockerfile"
    r"|\.?bashrc)\s*:",
    2,
)
"""Lines that say how the job is started, whatever else they tell."""
_TROUBLE = Pattern(
    rf"\b(?:{_BAD}|never|unless|otherwise|without|workaround|fix(?:es|ed)?|solv(?:es|ed)|cur(?:es|ed)|helps"
    rf"|slow\w*|warn)\b"
    r"|\w(?:Error|Exception)\b|[!@#?]{4,}|(?<!os )error\b",
    2,
)
_STANDING = ("p2p_off", "ib_off", "interface", "host_network", "shm_larger")
"""Settings that jobs carry along for good: that these run is news only where something did not."""
_FAILURES = ("hangs", "wrong", "fails")
_REACH = 90
_LONGEST = 400
_OTHER = Pattern(
    r"[,(]\s*(?:\w+\s){0,2}(?:single|one|two|three|four|multi|\d+)[- ](?:gpus?|nodes?|machines?|hosts?)\b", 2
)
"""Another thing that was tried: an outcome behind it is its own."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """For each kind of change: works where any line says so, for one of several tries may be the one that helped.

    That the job runs on several GPUs, by contrast, counts only where no line says that it does not.
    """
    trouble = bool(_TROUBLE.search(paste.text))
    for name, source in _CHANGES.items():
        pattern = Pattern(source, 2)
        told: dict[str, str] = {}
        for index, line in paste.having(*_NEEDLES[name]):
            for outcome in _told(line, pattern) if len(line) <= _LONGEST else ():
                told.setdefault(outcome, f"line {paste.numbers[index]}")
        several = name == "several_gpus"
        order = (*_FAILURES, "works") if several else ("works", *_FAILURES)
        outcome = next((outcome for outcome in order if outcome in told), "")
        if outcome and (trouble or outcome != "works" or name not in _STANDING):
            yield f"tried.{name}", Known(outcome if several or outcome == "works" else "fails", told[outcome])


def _told(line: str, change: Pattern) -> set[str]:
    """What the line says came of the change, in each sentence. Words are parted by spaces."""
    found: set[str] = set()
    line = line.replace("_", " ")
    if "NCCL INFO" in line or _STANDS.match(line) or not change.search(line):
        return found
    for sentence in _sentences(line):
        if match := change.search(sentence):
            found.add(_outcome(sentence, *match.span()))
    return found - {""}


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for stop in _SENTENCE.finditer(line):
        yield line[start : stop.start()]
        start = stop.end()
    yield line[start:]


def _outcome(sentence: str, start: int, end: int) -> str:
    """``works``, or how it fails; empty where the sentence tells of neither."""
    before, after = sentence[max(0, start - _REACH) : start], sentence[end : end + _REACH]
    unless = bool(_UNLESS.search(before))
    told = _OUTCOME.search(after)
    if not told or _OTHER.search(after[: told.start()]):
        earlier = list(_OUTCOME.finditer(before))
        if not earlier or not (unless or _LEADS.search(before[earlier[-1].end() :])):
            return ""
        told = earlier[-1]
    works = told.lastgroup in ("cured", "good")
    if _DENIED.search(sentence) or (told.string is after and _ELSE.match(after[told.end() :])):
        works = not works
    if unless:
        return "" if works else "works"
    if works:
        return "works"
    return "hangs" if _HANGS.search(sentence) else "wrong" if _WRONG.search(sentence) else "fails"

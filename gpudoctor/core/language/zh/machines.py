"""What would make something fit, what is to be borne in mind, and many machines as one."""

from __future__ import annotations

WORDS = {
    # changes with which something would fit
    "{system} ships {branch}": "{system} 提供的是 {branch}",
    "{branch} is the long-term branch": "{branch} 是长期支持分支",
    "driver {last} or older; {last} is the last branch that serves {gpus}": (
        "驱动 {last} 或更旧；{last} 是支持 {gpus} 的最后一个分支"
    ),
    "driver {least} to {most}": "驱动 {least} 至 {most}",
    "driver {least} or newer": "驱动 {least} 或更新",
    " or older": " 或更旧",
    " or newer": " 或更新",
    "{these} instead of {those}": "用 {these} 代替 {those}",
    "CUDA {least} to {most}": "CUDA {least} 至 {most}",
    "{oldest} to {newest}, {builds}": "{oldest} 至 {newest}，{builds}",
    "without {what}": "不要 {what}",
    "WSL on this Windows machine": "在这台 Windows 机器上用 WSL",
    "without the {gpus}": "不用 {gpus}",
    "{one}, and {other}": "{one}，并且{other}",
    # what a stack needs
    "{least} to {most}": "{least} 至 {most}",
    "{least} or newer": "{least} 或更新",
    "for {gpu}": "用于 {gpu}",
    "code": "代码",
    "libc": "C 库",
    "No GPU and no driver is known here: these are builds without CUDA.": (
        "这里不知道 GPU，也不知道驱动：以下是不带 CUDA 的构建。"
    ),
    # notes
    "Tables of {months}; your {facts} are newer: judged by rule, not by record.": (
        "数据表是 {months} 的，而 {facts} 比它新：按规则推断，并无记录可查。"
    ),
    "Tables of {months}; your {facts} is newer: judged by rule, not by record.": (
        "数据表是 {months} 的，而 {facts} 比它新：按规则推断，并无记录可查。"
    ),
    "The tables {names} are of {month}, and good for {time}: what came out since then is judged by rule.": (
        "数据表 {names} 是 {month} 的，有效期 {time}：之后出现的按规则推断。"
    ),
    "The table {names} is of {month}, and good for {time}: what came out since then is judged by rule.": (
        "数据表 {names} 是 {month} 的，有效期 {time}：之后出现的按规则推断。"
    ),
    "A newer gpudoctor brings newer tables.": "更新 gpudoctor 就有更新的数据表。",
    "The files do not agree, and the later one was believed. {which}.": "这些文件互相矛盾，以后面的为准。{which}。",
    "Not read: {names}. Files that belong together are read together: gpudoctor read --together.": (
        "没有读：{names}。属于同一处的文件请一起读：gpudoctor read --together。"
    ),
    "Not told: {what}.": "没有说明：{what}。",
    "Not told: whether {name} {version} goes with that torch: the tables have no such release of it{near}."
    " The verdict leaves it out. To find out: {command}": (
        "没有说明：{name} {version} 是否与那个 torch 相配：数据表里没有它的这个版本{near}。"
        "结论没有把它算进去。要弄清楚：{command}"
    ),
    "; {version} is for torch {torch}": "；{version} 对应 torch {torch}",
    ", {version} for torch {torch}": "，{version} 对应 torch {torch}",
    "Taken for granted, for --for names no other: {words}. Name what differs: --for {whole}": (
        "--for 没有说到，因此按通常情况取：{words}。不同的请说明：--for {whole}"
    ),
    "Compiled on the machine, for the package index has source only: {names}. That needs nvcc of torch's CUDA, a C++"
    " compiler, and torch installed in a command before it: {command}. Whether it succeeds was not judged.": (
        "要在这台机器上编译，因为软件包索引里只有源码：{names}。这需要与 torch 的 CUDA 相同的 nvcc、C++ 编译器，"
        "并且在它之前先用另一条命令装好 torch：{command}。能否成功没有判断。"
    ),
    "The build of {names} first looks on the project's release page for a wheel of that torch and Python.": (
        "{names} 构建时会先到项目的发布页找适合那个 torch 和 Python 的 wheel。"
    ),
    "Compiled when it is first used, by nvcc: {names}. Whether that succeeds was not judged.": (
        "第一次使用时由 nvcc 编译：{names}。能否成功没有判断。"
    ),
    "Not pinned, and not judged: {names}. pip takes the newest that goes with the rest.": (
        "没有固定版本，也没有判断：{names}。pip 会选与其余各行相配的最新版本。"
    ),
    "Left out: {names}. Markers are not for this machine, extras are installed on request only.": (
        "没有算进去：{names}。标记不适用于这台机器，extra 只在要求时才安装。"
    ),
    "Not looked at, for no rule is about them: {names}.": "没有看，因为没有规则涉及它们：{names}。",
    "To judge it for a machine: gpudoctor read {name} --for 'gpu=RTX 5090,driver=570,python=3.12', or --for here.": (
        "要针对某台机器判断：gpudoctor read {name} --for 'gpu=RTX 5090,driver=570,python=3.12'，本机则用 --for here。"
    ),
    # lines of a file
    "Prints the whole; without --emit it also says why.": "打印全部内容；不加 --emit 时还会说明理由。",
    "{place}: {lines}. {why}.": "{place}：{lines}。{why}。",
    "Change the lines to torch {version} for {build}": "把这几行改成 torch {version}（{build}）",
    "Change the lines: let gpudoctor write those that fit the machine": "改这几行：让 gpudoctor 写出适合这台机器的",
    "First {change}; then the lines that fit": "先要：{change}；然后改成合适的几行",
    # many machines
    "fleet": "多台机器",
    "in {seconds} s": "用时 {seconds} 秒",
    "{title}: {text}": "{title}：{text}",
    "GO": "可以开始",
    "NO-GO": "不可开始",
    "UNKNOWN": "无法判断",
    "To take them out of service:": "让它们停止服务：",
    "To take out of service, by your scheduler:": "请用你的调度器让它们停止服务：",
    "Worth knowing": "值得了解",
    "As a whole: {counts}": "整体：{counts}",
    "{answered} of {hosts} answered; hosts by {checks} checks: {counts}.": (
        "{hosts}中有 {answered} 台应答；各主机 × {checks} 项检查：{counts}。"
    ),
    "{count} hosts": "{count} 台主机",
    "{count} host": "{count} 台主机",
    "its one host is": "仅有的一台主机",
    "all {count} hosts are": "全部 {count} 台主机",
    "{hosts} sound": "{hosts}正常",
    "{hosts} sound, with the warnings below": "{hosts}正常，但有下面的警告",
    "{bad} of {hosts} has errors": "{hosts}中有 {bad} 台有错误",
    "{bad} of {hosts} have errors": "{hosts}中有 {bad} 台有错误",
    "{silent} gave no answer": "{silent} 台没有应答",
    "{silent} of {hosts} gave no answer": "{hosts}中有 {silent} 台没有应答",
    "no host has an error, and not every host could be called sound": "没有主机有错误，但不是每台都能确认正常",
    "each host by itself is sound, and together they are not": "每台主机单独看都正常，合在一起不正常",
    "; {count} may train": "；{count} 台可以训练",
}

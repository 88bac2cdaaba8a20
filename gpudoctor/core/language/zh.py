"""The program's words in simplified Chinese: the English sentence, and what is said instead."""

from __future__ import annotations

WORDS: dict[str, str] = {
    # ---- Reports: findings, what changed before them and what was expected; and the pages that explain them ----
    # verdicts
    "Sound": "正常",
    "Impaired: it works, with the warnings below": "受损：能用，但有下面的警告",
    "Impaired: the environment works, with the warnings below": "受损：环境能工作，但有下面的警告",
    "Broken: the first finding is the one to act on first": "故障：请先处理第一条发现",
    "Broken: the finding below is why": "故障：原因就是下面这条发现",
    "Broken: the symptoms are below, their cause is not known": "故障：下面是看到的现象，原因还不清楚",
    "Broken, and no cause is proven: the first finding is where to look first": "故障，但原因尚未证实：先查第一条发现",
    "No verdict: no error found, and too little could be read to call it sound": (
        "无法下结论：没有发现错误，但读到的信息太少，不能说它正常"
    ),
    # what it is about
    "level {level}": "级别 {level}",
    "report": "报告",
    "snapshot": "快照",
    "record": "记录",
    "What it would bring:": "它会装上：",
    "What it would bring": "它会装上",
    # severities and confidence
    "ERROR": "错误",
    "WARNING": "警告",
    "INFO": "提示",
    "Error": "错误",
    "Warning": "警告",
    "Info": "提示",
    "✗ Error": "✗ 错误",
    "! Warning": "! 警告",
    "i Info": "i 提示",
    "certain": "确定",
    "likely": "很可能",
    "possible": "有可能",
    "Possibly: {title}": "可能是：{title}",
    # a finding
    "### {severity}: {title}": "### {severity}：{title}",
    "also: {title}": "另有：{title}",
    "Also: {title}": "另有：{title}",
    "- also: {title}": "- 另有：{title}",
    "the same of {names}": "{names} 同样如此",
    "The same of {names}.": "{names} 同样如此。",
    "  How it is known ({confidence}):": "  依据（{confidence}）：",
    "How it is known ({confidence}):": "依据（{confidence}）：",
    "How it is known ({confidence})": "依据（{confidence}）",
    "fact": "事实",
    "value": "值",
    "read from": "来源",
    "none": "无",
    "    and {count} more; --json lists them": "    另有 {count} 项，见 --json",
    "and {count} more": "另有 {count} 项",
    " and {count} more": " 等，另有 {count} 项",
    "Judged by rule, not by record: {facts} is newer than the tables": "按规则推断，并无记录可查：{facts} 比数据表新",
    "Judged by rule, not by record: {facts} are newer than the tables": "按规则推断，并无记录可查：{facts} 比数据表新",
    "Judged by rule, not by record: newer than the tables: {facts}.": "按规则推断，并无记录可查：{facts} 比数据表新。",
    "To be sure: {how}": "要确认：{how}",
    "This explains: {ids}": "由此可以解释：{ids}",
    "This explains: {ids}.": "由此可以解释：{ids}。",
    "  [{id}]  more: {command}": "  [{id}]  详见：{command}",
    "{id}, more: {command}": "{id}，详见：{command}",
    # cures
    "What to do: {title}": "怎么办：{title}",
    "Step {number}: ": "第 {number} 步：",
    "{text} {marks}": "{text}{marks}",
    "({marks})": "（{marks}）",
    ", ": "，",
    "needs root": "需要 root",
    "needs a reboot": "需要重启",
    "needs the network": "需要网络",
    "interrupts jobs": "会中断作业",
    "changes this environment": "会改动当前环境",
    "changes the system": "会改动系统",
    "touches hardware": "要动硬件",
    "needs {what}": "需要 {what}",
    "To undo: {how}": "撤销：{how}",
    "  Or, where it applies (gpudoctor explain shows how):": "  或者，在适用的情况下（做法见 gpudoctor explain）：",
    # the whole
    "{act}, as in {number}": "{act}，同第 {number} 步",
    "To act on, in this order:": "按这个顺序处理：",
    "To act on, in this order": "按这个顺序处理",
    "Not judged ({count}), because": "未能判断（{count} 条），原因：",
    "Not judged ({count}): what no file can show, only a machine that runs.": (
        "未能判断（{count} 条）：这些只有在运行的机器上才看得到，文件里没有。"
    ),
    "the report does not say": "报告里没有提到",
    "not asked": "没有查询",
    "none of its messages is in the text that was read": "读到的文本里没有它的任何一条消息",
    "  The log of a job that failed can be judged too: gpudoctor read LOG": (
        "  失败作业的日志也可以诊断：gpudoctor read LOG"
    ),
    "  To have more judged, save the output of these, and read it with what you have:": (
        "  想多判断一些，请保存下列命令的输出，与手头的内容一起读："
    ),
    "{count} parts are left out, for a tracker takes no more: gpudoctor --json has all.": (
        "有 {count} 部分从略，因为工单系统放不下更多：全部见 gpudoctor --json。"
    ),
    "{count} rules were not judged": "{count} 条规则未能判断",
    "{count} rules passed": "{count} 条规则通过",
    "{found} found, {unjudged} not judged, {passed} passed": (
        "发现 {found} 条，未能判断 {unjudged} 条，通过 {passed} 条"
    ),
    " (no GPU to check)": "（没有可检查的 GPU）",
    "; {placed} of {all} lines of the report were understood": "；报告共 {all} 行，读懂 {placed} 行",
    "Explained by {id}: see to that first.": "这是 {id} 的后果：请先处理它。",
    # pictures
    "Hosts": "主机",
    "· passed, ! warning, ✗ error, ? not judged.": "· 通过，! 警告，✗ 错误，? 未能判断。",
    "Kernels, against what is expected": "内核实测值与预期值",
    "A bar for each GPU. Where that of a sound one ends is shaded; slow begins at the line."
    " Dashed: the maker's limit. ? was not measured.": (
        "每块 GPU 一根柱。正常的 GPU 会落在阴影里，从实线起算慢。虚线是厂商给出的上限。? 表示没有测量。"
    ),
    "GPUs, when they were read": "读取时各 GPU 的状态",
    "A bar for each GPU; dashed: its limit.": "每块 GPU 一根柱；虚线是它的上限。",
    "How long each source took": "各信息来源用了多久",
    "They are asked side by side.": "它们是同时查询的。",
    # pages of rules and facts, as explain and rules list show them
    "error": "错误",
    "warning": "警告",
    "info": "提示",
    "cause": "原因",
    "symptom": "症状",
    "layer {layer}": "层 {layer}",
    "of a job or a fleet of machines": "针对一个作业或一批机器",
    "judged for each {row}": "每个 {row} 分别判断",
    "conclusive": "可以定论",
    "suggestive": "仅供参考",
    "{title}:": "{title}：",
    "Found when all of these hold": "以下条件全部成立时判定",
    "Proof {number}, of which one must hold": "证据 {number}（其中一项须成立）",
    "Never where one of these holds": "以下任何一条成立时不判定",
    "Signs in machine-printed text": "机器输出文本中的特征",
    "Explains": "可以解释",
    "To be sure": "要确认",
    "What it will not catch": "它查不出什么",
    "Sources": "资料来源",
    "Proven by": "由这些用例证明",
    "[where {conditions}]": "[条件：{conditions}]",
    "Cure: {title}": "解决办法：{title}",
    "The steps are those of this machine: gpudoctor setup {what} prints them.": (
        "具体步骤因机器而异：运行 gpudoctor setup {what} 可以看到。"
    ),
    "in {unit}": "单位 {unit}",
    "one for each row": "每行一个",
    "Read by": "被这些规则读取",
    " [of many machines]": " [针对多台机器]",
    # what changed before something was found
    "What changed since it was last in order ({day})": "自上次正常（{day}）以来的变化",
    "What changed within the 14 days before": "此前 14 天内的变化",
    "{said}{when}{by} ({source})": "{said}{when}{by}（{source}）",
    " on {day}": "，时间：{day}",
    " by {who}": "，执行者：{who}",
    "{what} went from {before} to {after}": "{what} 从 {before} 变为 {after}",
    "{what} {version} was installed": "安装了 {what} {version}",
    "{what} {version} was removed": "移除了 {what} {version}",
    "{what} was not set and is {after}": "{what} 原先未设置，现在是 {after}",
    "{what} was {before} and is not set": "{what} 原先是 {before}，现在未设置",
    "{what} was {before} and is {after}": "{what} 原先是 {before}，现在是 {after}",
    "{day} {month} {year}": "{year} 年 {month} {day} 日",
    "January": "1 月",
    "February": "2 月",
    "March": "3 月",
    "April": "4 月",
    "May": "5 月",
    "June": "6 月",
    "July": "7 月",
    "August": "8 月",
    "September": "9 月",
    "October": "10 月",
    "November": "11 月",
    "December": "12 月",
    # what a machine must be, by somebody's profile, and is not
    "{what} is {wanted} on {held} {things}{where}, expected on {least} at least ({profile}){others}": (
        "{what} 为 {wanted} 的有 {held} 个 {things}{where}，至少应有 {least} 个（{profile}）{others}"
    ),
    "{what}: there are no {things}{where} here, expected {wanted} ({profile})": (
        "{what}：这里没有 {things}{where}，应为 {wanted}（{profile}）"
    ),
    "{what} is {found}{where}, expected {wanted} ({profile})": "{what} 为 {found}{where}，应为 {wanted}（{profile}）",
    '; its whole branch is written "{branch}.*"': '；整个分支写作 "{branch}.*"',
    "; a part of it is {form}": "；只写文本的一部分时用 {form}",
    " where {condition}": "（条件 {condition}）",
    "{value} on {rows}": "{value}（{rows}）",
    "and {count} other values": "以及另外 {count} 种值",
    "all {count} {things}": "全部 {count} 个 {things}",
    # ---- Cures that are worked out: the torch stack that fits, why, and plans ----
    # titles and steps of cures
    "the CPU": "CPU",
    " ": "",
    "; ": "；",
    " and ": "、",
    " or ": " 或 ",
    "{title} ({way})": "{title}（{way}）",
    "{sentence}.": "{sentence}。",
    "Not run: {why}. {text}": "不执行：{why}。{text}",
    "{word} holds characters that do not show": "{word} 含有不可见字符",
    "{word} is more than one word to a shell": "{word} 对 shell 来说不止一个词",
    "{word} is no {what}": "{word} 不是{what}",
    "program by its absolute path": "以绝对路径给出的程序",
    "https address": "https 地址",
    "absolute path": "绝对路径",
    "value of an option": "选项的值",
    "package name or version (PEP 508, PEP 440)": "包名或版本（PEP 508、PEP 440）",
    "package name of the system": "系统软件包名",
    "GPU's number, address or UUID": "GPU 的编号、地址或 UUID",
    "number": "数字",
    "host name": "主机名",
    "plain word": "普通的词",
    "Install torch {version} for {build}": "安装 torch {version}（{build}）",
    ", in an environment of its own": "，装进单独的环境",
    ", with {tool}": "，用 {tool}",
    "torch {version} for {build} fits": "合适的是 torch {version}（{build}）",
    "A new environment with Python {python}": "用 Python {python} 新建环境",
    "Remove the folder {name}": "删除目录 {name}",
    "conda-forge builds no torch for {build}: install it into an environment of its own, by pip or uv.": (
        "conda-forge 不提供 {build} 的 torch：请用 pip 或 uv 装进单独的环境。"
    ),
    "GPU and driver are not known here: on the machine itself gpudoctor setup torch chooses by them": (
        "这里不知道 GPU 和驱动：在那台机器上运行 gpudoctor setup torch，会按它们来选"
    ),
    "The newest release for any driver that serves the GPU, from {driver} on: which one it is was not said; gpudoctor"
    " setup torch chooses by the machine's own": (
        "支持该 GPU 的驱动（{driver} 起）都能用的最新版本：这里不知道是哪个驱动；"
        "在那台机器上运行 gpudoctor setup torch，会按它的驱动来选"
    ),
    "An environment of its own, in the folder that this is run in.": "单独的环境，建在运行命令的目录里。",
    " On Debian and Ubuntu this wants the package python3-venv.": "在 Debian 和 Ubuntu 上需要 python3-venv 包。",
    "Remove the old CUDA's packages first: they own files with the same names as the new build's, and removing them"
    " later would delete the new ones.": ("先删除原来 CUDA 的包：它们的文件与新构建的同名，以后再删会把新的一起删掉。"),
    "Made for the former torch, to be installed again: {names}.": "为原来的 torch 编译、需要重新安装的有：{names}。",
    "A project with a uv.lock takes it back at the next uv sync: gpudoctor setup torch --emit pyproject has the lines"
    " that name this index.": (
        "项目里有 uv.lock 时，下次 uv sync 会改回去：指定这个索引的写法见 gpudoctor setup torch --emit pyproject。"
    ),
    "conda-forge builds torch itself; a new release comes there later.": "conda-forge 自己构建 torch，新版本会晚一些。",
    "No torch fits this machine": "没有适合这台机器的 torch",
    "No torch fits this machine: gpudoctor setup torch says why.": (
        "没有适合这台机器的 torch：原因见 gpudoctor setup torch。"
    ),
    "No torch fits this machine as it is; it would with {change}.": (
        "照现在的样子，没有适合这台机器的 torch；有了这个就行：{change}。"
    ),
    "Or with: {changes}.": "或者：{changes}。",
    "gpudoctor setup torch says why.": "原因见 gpudoctor setup torch。",
    "First {change}": "先要：{change}",
    # what stands beside torch
    "All from one channel: a torchvision of another channel or of pip beside conda-forge's torch breaks.": (
        "全部来自同一个 channel：conda-forge 的 torch 配上别的 channel 或 pip 的 torchvision 会出错。"
    ),
    "A project with a uv.lock takes it back at the next uv sync: name the release in pyproject.toml as well.": (
        "项目里有 uv.lock 时，下次 uv sync 会改回去：请在 pyproject.toml 里也写上这个版本。"
    ),
    "Keep torch, install {names}": "保留 torch，安装 {names}",
    "They share their files with the wheels that torch pins.": "它们与 torch 锁定的 wheel 共用同样的文件。",
    "Put back the nvidia wheels that torch pins": "恢复 torch 锁定的 nvidia wheel",
    "This brings the libraries that torch pins.": "这会装上 torch 锁定的库。",
    "Install torch {version} anew": "重新安装 torch {version}",
    "Install triton {version}, which torch {torch} pins": "安装 torch {torch} 锁定的 triton {version}",
    "conda install --revision N, with the number that conda list --revisions shows for the state before": (
        "conda install --revision N，N 取 conda list --revisions 里改动之前的编号"
    ),
    "Install again what was there: {packages}": "把原来的装回去：{packages}",
    ", torch's from {index}": "，torch 的来自 {index}",
    # why this stack
    "a build of torch {version} that fits": "合适的 torch {version} 构建",
    "the newest release that fits": "合适的最新版本",
    "the newest release with a wheel of everything": "所有包都有 wheel 的最新版本",
    "the package index gives this build by itself": "包索引默认给的就是这个构建",
    "driver {driver} serves CUDA {cuda} in full": "驱动 {driver} 完整支持 CUDA {cuda}",
    "driver {driver} serves CUDA {cuda} as any driver from {floor} on does": (
        "驱动 {driver} 能跑 CUDA {cuda}：{floor} 及以后的驱动都可以"
    ),
    "what its wheel holds is not in the tables, it was judged by that of {like}": (
        "数据表里没有它的 wheel 内容，按 {like} 的推断"
    ),
    "a GPU runs it through PTX, which the driver compiles at the first start": (
        "有 GPU 要靠 PTX 运行，由驱动在首次启动时编译"
    ),
    "{names} must be compiled with nvcc {major}": "{names} 要用 nvcc {major} 编译",
    "fits too": "也合适",
    "fits too, an older release": "也合适，版本较旧",
    "fits too; needs the index of its CUDA": "也合适，需要用对应 CUDA 的索引",
    "fits too, with CUDA {cuda}": "也合适，CUDA {cuda}",
    "has no wheel for {what}": "没有 {what} 的 wheel",
    "needs glibc {needed}; this machine has {own}": "需要 glibc {needed}，这台机器是 {own}",
    "needs driver {floor}; this machine runs {own}": "需要驱动 {floor}，这台机器是 {own}",
    "has no {archs} code, only PTX, which this driver does not compile: {gpus}": (
        "没有 {archs} 的代码，只有 PTX，而这个驱动不能编译它：{gpus}"
    ),
    "has no {archs} code: {gpus}": "没有 {archs} 的代码：{gpus}",
    "{gpu} (compute capability {number})": "{gpu}（计算能力 {number}）",
    # the stack as text
    "a GPU that is not known": "未知的 GPU",
    "driver {version}": "驱动 {version}",
    "a driver that is not known": "未知的驱动",
    "any Python": "任意 Python",
    "for {machine}": "适用于 {machine}",
    "There is no command of {tool} for it: --emit pip or --emit uv gives one.": (
        "没有对应的 {tool} 命令：用 --emit pip 或 --emit uv。"
    ),
    "has": "现有",
    "not met, has": "不满足，现有",
    "Needs {what}": "需要 {what}",
    "driver": "驱动",
    "Brings {libraries}": "附带 {libraries}",
    "Nothing fits.": "没有合适的组合。",
    "It would with": "这样就行：",
    "or with": "或者：",
    "Why": "理由",
    "Also fits": "同样合适",
    "Rejected": "不合适",
    "  and {count} more: --json has them all": "  另有 {count} 项，全部见 --json",
    "Sources: {names}": "依据：{names}",
    # plans
    "Plan for {machine}: {title}": "{machine} 的方案：{title}",
    "Plan: {title}": "方案：{title}",
    "It changes packages in {environment}; there now: {packages}.": "它会改动 {environment} 里的包，现有：{packages}。",
    "It changes packages in {environment}.": "它会改动 {environment} 里的包。",
    "It downloads about {size}.": "大约要下载 {size}。",
    "What is wrong:": "问题：",
    "Before anything is changed, it is made sure that": "动手之前先确认",
    "{what} can be run": "{what} 能运行",
    "{what} can be written to": "{what} 可写",
    "{what} is as it was when this plan was made": "{what} 与制定方案时一样",
    "{place} has room for {size}": "{place} 有 {size} 的空间",
    "by hand": "手动",
    "expected: {facts}": "预期：{facts}",
    "not run: {why}": "不执行：{why}",
    "not installed": "未安装",
    "removed": "已删除",
    "{outcome}: {ids}": "{outcome}：{ids}",
    "no longer found": "不再发现",
    "found anew": "新发现",
    "still found": "仍然存在",
    "to be seen when the machine is read again": "要重新读取机器才知道",
    "Foreseen, once all of this is done:": "全部做完之后，预计：",
    "  nothing changes for any rule": "  所有规则的结论都不变",
    "Or, instead (gpudoctor explain shows how):": "或者改用（做法见 gpudoctor explain）：",
    "Nothing of this is run: {why}.": "以上都不会执行：{why}。",
    "Left to a person: step {numbers}.": "要由人来做：第 {numbers} 步。",
    "Left to a person: steps {numbers}.": "要由人来做：第 {numbers} 步。",
    "To undo by hand:": "手动撤销：",
    "nothing to cure": "没有要处理的",
    "verify: {rule} is gone": "复查：{rule} 已消失",
    "Reads again and judges again.": "重新读取，重新判断。",
    "not from here: {machine} is another machine": "不在这里：{machine} 是另一台机器",
    "the report": "报告里的",
    "by hand: done by a person": "手动：由人来做",
    "needs root, which this is not": "需要 root，而现在不是",
    "note what is installed now": "记下现在装了什么",
    "the record can tell what was there before": "以后能查到原来装了什么",
    "waits for step {number}": "要等第 {number} 步",
    "needs root: it is in the administrator's script": "需要 root：在给管理员的脚本里",
    "only what needs root is run": "只执行需要 root 的",
    "nothing reboots unattended": "无人值守时不重启",
    "nothing interrupts jobs unattended": "无人值守时不中断作业",
    "the machine runs what was installed": "机器用上刚装的",
    "it only looks": "只查看",
    "This was a dry run: nothing was changed.": "这只是演练：什么也没有改动。",
    # ---- What would make something fit, what is to be borne in mind, and many machines as one ----
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
    "Training canary: {ranks} ranks train {rate} sequences/s together, a step of {step} ms; products and exchange alone"
    " would take {reach} % of it.": (
        "训练试跑：{ranks} 个 rank 合计每秒训练 {rate} 条序列，每步 {step} 毫秒；单算矩阵乘和通信要用其中的 {reach} %。"
    ),
    " The slowest by itself is rank {rank} on {host}: {ratio} times the median of the others.": (
        "单独计算最慢的是 {host} 上的 rank {rank}：是其他 rank 中位数的 {ratio} 倍。"
    ),
    "Worked hard for {seconds} s; rounds of kernels: {rounds}.": "满负荷运行 {seconds} 秒；CUDA 内核轮数：{rounds}。",
    "{signal} ended it after {seconds} of {planned} s: what was measured until then is judged.": (
        "{signal} 在 {planned} 秒中的第 {seconds} 秒结束了它：判断的是到那时为止测到的。"
    ),
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

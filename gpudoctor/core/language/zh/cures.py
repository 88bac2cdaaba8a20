"""Cures that are worked out: the torch stack that fits, why, and plans."""

from __future__ import annotations

WORDS = {
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
}

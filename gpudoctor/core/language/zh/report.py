"""Reports: findings, what changed before them and what was expected; and the pages that explain them."""

from __future__ import annotations

WORDS = {
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
}

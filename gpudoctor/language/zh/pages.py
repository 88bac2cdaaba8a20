"""Pages of rules and facts, as ``explain`` and ``rules list`` show them."""

from __future__ import annotations

WORDS = {
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
}

"""What changed before something was found."""

from __future__ import annotations

WORDS = {
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
}

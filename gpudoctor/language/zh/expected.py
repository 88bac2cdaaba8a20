"""What a machine must be, by somebody's profile, and is not."""

from __future__ import annotations

WORDS = {
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

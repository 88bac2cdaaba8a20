"""What changed before something was found, in sentences that every view shares."""

from __future__ import annotations

import re

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.since import Since
from gpudoctor.views._terminal import one_line

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def since(finding: Finding) -> tuple[str, list[str]]:
    """Words that lead to it, and a sentence for each change; where it is known when it worked, only those since."""
    told = [one for one in finding.since if one.worked]
    if told:
        day = _day(str(told[0].worked))
        return say("What changed since it was last in order ({day})", day=day), [sentence(one) for one in told]
    return say("What changed within the 14 days before"), [sentence(one) for one in finding.since]


def sentence(one: Since) -> str:
    """``driver went from 550.90.07 to 580.95.05 on 3 November 2025 by unattended-upgrades (/var/log/...)``."""
    when = say(" on {day}", day=_day(one.at)) if one.at else ""
    by = say(" by {who}", who=one.by) if one.by else ""
    said = _setting(one) if one.source.startswith("env.") else _version(one)
    return one_line(say("{said}{when}{by} ({source})", said=said, when=when, by=by, source=one.source))


def _version(one: Since) -> str:
    if one.before and one.after:
        return say("{what} went from {before} to {after}", what=one.what, before=one.before, after=one.after)
    if one.after:
        return say("{what} {version} was installed", what=one.what, version=one.after)
    return say("{what} {version} was removed", what=one.what, version=one.before or "")


def _setting(one: Since) -> str:
    if one.before is None:
        return say("{what} was not set and is {after}", what=one.what, after=repr(one.after))
    if one.after is None:
        return say("{what} was {before} and is not set", what=one.what, before=repr(one.before))
    return say("{what} was {before} and is {after}", what=one.what, before=repr(one.before), after=repr(one.after))


def _day(moment: str) -> str:
    """``3 November 2025`` of 2025-11-03T06:25:14+01:00; the text itself where it is no such time."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)T", moment)
    if not match or not 1 <= int(match[2]) <= 12:
        return moment
    month = say(_MONTHS[int(match[2]) - 1])
    return say("{day} {month} {year}", day=int(match[3]), month=month, year=match[1])

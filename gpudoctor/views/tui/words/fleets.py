"""A fleet in cells and words: its checks and pairs as heat maps, its suspects, and what is known of a host."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.model.fleet import Fleet, Host, Outcome, Result, Suspect, Verdict
from gpudoctor.model.pairwise import Pair, Pairwise
from gpudoctor.model.rule import Severity
from gpudoctor.views._terminal import one_line, safe
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words.cells import ITSELF, Level, Mark, share, unread, wrong

GOOD = 0.9
"""Share of the expected bandwidth from which a pair is as it should be."""
MOST_ROWS = 32
"""Hosts up to which all are shown; of more, only those with something to see."""
VERDICT: dict[Verdict, tuple[str, str, str]] = {
    "go": ("✓", "GO", "sound"),
    "no-go": ("✗", "NO-GO", "broken"),
    "unknown": ("?", "UNKNOWN", "unknown"),
}
"""Glyph and word of each verdict, and the band's class."""
_OUTCOMES: dict[Outcome, tuple[str, Level]] = {
    "ok": ("·", "good"),
    "error": ("✗", "bad"),
    "warning": ("!", "low"),
    "info": ("i", "info"),
    "unjudged": ("?", "unread"),
}
_SEVERITIES: dict[Outcome, Severity] = {"error": "error", "warning": "warning", "info": "info"}
_HANG = 7


def mark(result: Result) -> Mark:
    """A check of a host as a cell: tenths where it measured, and the outcome's own glyph else."""
    glyph, level = _OUTCOMES[result.outcome]
    if result.ratio is not None and result.outcome in ("error", "warning"):
        glyph = share(result.ratio, good=1.0).glyph
    return Mark(glyph, level, result.words)


def pair_mark(pair: Pair) -> Mark:
    """A way between two as a cell."""
    if pair.source == pair.target:
        return ITSELF
    if pair.wrong:
        return wrong(pair.words)
    return unread(pair.words) if pair.ratio is None else share(pair.ratio, good=GOOD)


def shown_hosts(fleet: Fleet, everyone: bool) -> list[Host]:
    """All hosts, or of many those of which there is something to say."""
    if everyone or len(fleet.hosts) <= MOST_ROWS:
        return list(fleet.hosts)
    return [host for host in fleet.hosts if not _quiet(fleet, host)]


def _quiet(fleet: Fleet, host: Host) -> bool:
    return host.answered and all(fleet.result(host.name, check.id).outcome == "ok" for check in fleet.checks)


def about(fleet: Fleet) -> str:
    """``2 hosts to take out, 1 unreachable``."""
    silent = sum(not host.answered for host in fleet.hosts)
    said = [_many(len(fleet.drained), "host") + " to take out"] if fleet.drained else []
    said += [f"{silent} unreachable"] if silent else []
    return ", ".join(said) or {"go": "every host is sound", "no-go": "not to be trained on"}.get(
        fleet.verdict, "not all could be judged"
    )


def sizes(fleet: Fleet) -> list[str]:
    """``8 hosts · 64 × H100 80GB HBM3 · fleet check, 31 s``, and shorter."""
    gpus: dict[str, int] = {}
    for host in fleet.hosts:
        gpus[host.gpu] = gpus.get(host.gpu, 0) + host.gpus
    kinds = [f"{count} × {one_line(name)}" if name else f"{count} GPUs" for name, count in gpus.items() if count]
    took = f"fleet check, {fleet.seconds:.0f} s" if fleet.seconds else ""
    words = [word for word in (_many(len(fleet.hosts), "host"), ", ".join(kinds[:3]), took) if word]
    return [" · ".join(words[:count]) for count in range(len(words), 0, -1)]


def counts(fleet: Fleet) -> str:
    """``7 of 8 hosts answered · 66 passed · 10 not judged · 4 found``."""
    answered = sum(host.answered for host in fleet.hosts)
    found = sum(fleet.counts[outcome] for outcome in _SEVERITIES)
    return (
        f"{answered} of {_many(len(fleet.hosts), 'host')} answered · {fleet.counts['ok']} passed"
        f" · {fleet.counts['unjudged']} not judged · {found} found"
    )


def conclusion(fleet: Fleet) -> str:
    """``Without node04 and node07: 5 of 8 hosts are sound and may train.``"""
    drained = [host.name for host in fleet.hosts if host.name in fleet.drained]
    few = f"{', '.join(drained[:-1])} and {drained[-1]}" if 1 < len(drained) <= 4 else ", ".join(drained)
    without = f"Without {few if len(drained) <= 4 else f'{len(drained)} hosts'}: " if drained else ""
    return f"{without}{len(fleet.sound)} of {_many(len(fleet.hosts), 'host')} are sound and may train."


def drain_command(fleet: Fleet) -> str:
    """All that takes the hosts out, in one line; their names where no scheduler is known."""
    commands = [shlex.join(drain.argv) for drain in fleet.drain if drain.argv]
    return safe(" && ".join(commands) if commands else ",".join(sorted(fleet.drained)))


def drain_blocks(fleet: Fleet) -> Iterator[Block]:
    """The conclusion, and what takes the others out."""
    yield Block(plain(conclusion(fleet), "bold"))
    if fleet.drain:
        yield GAP
    for drain in fleet.drain:
        if drain.argv:
            yield Block(plain(safe(shlex.join(drain.argv)), "$primary"), Content.styled("$ ", "dim"), 2)
        else:
            yield Block(plain(f"{', '.join(drain.hosts)}: {drain.reason}"))
    if fleet.drain:
        yield GAP
        yield Block(Content.styled("● changes the system  c copies it all, w writes the sound hosts to a file", "dim"))


def suspects(fleet: Fleet) -> Sequence[Suspect]:
    """Those of the document; where it has none, what the pairs alone say."""
    return fleet.suspects or tuple(_suspects(fleet.pairwise) if fleet.pairwise else ())


def _suspects(pairwise: Pairwise) -> Iterator[Suspect]:
    """A row and column that are bad together are the host, one bad cell is the link."""
    bad = {
        (source, target): pair
        for source in pairwise.names
        for target in pairwise.names
        if (pair := pairwise.pair(source, target)).wrong or (pair.ratio is not None and pair.ratio < GOOD)
    }
    hosts = []
    for name in pairwise.names:
        ways = list(_ways(pairwise, name))
        if len(ways) > 2 and sum((pair.source, pair.target) in bad for pair in ways) > len(ways) / 2:
            hosts.append(name)
            yield _host_suspect(name, ways)
    links = {frozenset(way) for way in bad if not set(way) & set(hosts)}
    for link in sorted(map(sorted, links)):
        pairs = [bad[way] for way in (tuple(link), tuple(reversed(link))) if way in bad]
        yield _link_suspect(link, pairs)


def _ways(pairwise: Pairwise, name: str) -> Iterator[Pair]:
    """The measured ways from and to it."""
    for other in pairwise.names:
        for pair in (pairwise.pair(name, other), pairwise.pair(other, name)) if other != name else ():
            if pair.measured is not None:
                yield pair


def _host_suspect(name: str, ways: Sequence[Pair]) -> Suspect:
    ratios = sorted(pair.ratio for pair in ways if pair.ratio is not None)
    middle = ratios[len(ratios) // 2]
    title = f"most pairs with {name} are slow, the middle one at {middle * 100:.0f} %: the host, not a link"
    return Suspect("host", (name,), "warning", "possible", title)


def _link_suspect(link: Sequence[str], pairs: Sequence[Pair]) -> Suspect:
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    a_way = f"at {min(ratios) * 100:.0f} %" if ratios else "with wrong data"
    title = f"{link[0]} and {link[1]} alone, {a_way}; both are sound with others: the link, not a host"
    severity: Severity = "error" if any(pair.wrong for pair in pairs) else "warning"
    return Suspect("link", tuple(link), severity, "possible", title)


def who(suspect: Suspect) -> str:
    """``gpu041 GPU 6``, ``node01 ↔ node02``, ``node03 +2`` of three."""
    if len(suspect.names) > 2:
        return one_line(f"{suspect.names[0]} +{len(suspect.names) - 1}")
    between = {"link": " ↔ ", "gpu": " "}.get(suspect.kind, ", ")
    return one_line(between.join(suspect.names))


def suspect_blocks(suspect: Suspect) -> Iterator[Block]:
    """What is, how it is known, what to do."""
    glyph, word, colour = marks.SEVERITY[suspect.severity]
    head = Content.styled(f" {glyph} {word} ", f"bold reverse {colour}")
    yield Block(plain(_first_up(suspect.title), "bold"), Content.assemble(head, " "), head.cell_length + 1)
    yield GAP
    because = Content.styled("Since", "bold")
    for evidence in suspect.evidence:
        yield Block(plain(evidence), because, _HANG)
        because = Content("")
    if suspect.do:
        yield GAP
        yield Block(plain(suspect.do), Content.styled("Do", "bold"), _HANG)
    yield GAP
    where = f"{suspect.kind} {who(suspect)}"
    yield Block(plain(" · ".join(word for word in (where, suspect.confidence, suspect.id) if word), "dim"))


def host_blocks(fleet: Fleet, host: Host, check: str = "") -> Iterator[Block]:
    """What is known of a host, the check under the cursor first."""
    place = " · ".join(word for word in (f"{host.gpus} × {host.gpu}" if host.gpus else "", host.switch) if word)
    if not host.answered:
        yield Block(plain(host.because), Content.styled(" ? NOT JUDGED ", "bold reverse $primary"), 15)
        yield GAP
        yield Block(plain("Nothing is known of it: it counts neither as sound nor as bad."))
        yield Block(plain(place, "dim"))
        return
    results = [(one, fleet.result(host.name, one.id)) for one in fleet.checks]
    results.sort(key=lambda item: item[0].id != check)
    said = [(one, result) for one, result in results if result.outcome != "ok" or one.id == check]
    for one, result in said:
        yield Block(plain(one.title, "bold"), _lead(result.outcome), _HANG + 6)
        words = result.words or ("as it should be" if result.outcome == "ok" else "")
        if words:
            yield Block(plain(words), hang=_HANG + 6)
        if result.finding:
            yield Block(plain(result.finding, "dim"), hang=_HANG + 6)
    passed = sum(result.outcome == "ok" for _, result in results)
    yield GAP
    yield Block(plain(f"{passed} of {len(results)} checks passed · {place}", "dim"))


def _lead(outcome: Outcome) -> Content:
    if outcome == "ok":
        return Content.styled(f" {marks.PASSED} PASSED", "$success")
    if outcome == "unjudged":
        return Content.styled(f" {marks.UNREAD} UNJUDGED", "$primary")
    glyph, word, colour = marks.SEVERITY[_SEVERITIES[outcome]]
    return Content.styled(f" {glyph} {word}", f"bold {colour}")


def pair_blocks(pairwise: Pairwise, source: str, target: str) -> Iterator[Block]:
    """A way, the way back, and whose fault it looks like."""
    if source == target:
        yield Block(plain(f"{source} itself"))
        return
    for pair in (pairwise.pair(source, target), pairwise.pair(target, source)):
        yield Block(plain(_way(pair, pairwise.unit)), plain(f"{pair.source} → {pair.target}", "bold"), 22)
    yield GAP
    for name in (source, target):
        ways = list(_ways(pairwise, name))
        slow = sum(pair.wrong or (pair.ratio or 0) < GOOD for pair in ways)
        fault = "  ← the host, not one link" if len(ways) > 2 and slow > len(ways) / 2 else ""
        text = f"{slow} of {_many(len(ways), 'way')} below {GOOD * 100:.0f} %{fault}"
        yield Block(plain(text, "bold" if fault else ""), plain(name), 22)


def _way(pair: Pair, unit: str) -> str:
    if pair.ratio is None:
        return f"not measured{f': {pair.words}' if pair.words else ''}"
    said = f"{pair.measured:g} of {pair.expected:g} {unit}, {pair.ratio * 100:.0f} %"
    return f"{'WRONG DATA: ' if pair.wrong else ''}{said}{f'; {pair.words}' if pair.words else ''}"


def _first_up(text: str) -> str:
    """A sentence's first letter large, unless a name begins it."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"

"""A fleet in cells and words: its checks and pairs as heat maps, its suspects, and what is known of a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.core.fleet import Fleet, Host, Outcome, Pair, Pairwise, Result, Suspect, Verdict
from gpudoctor.core.language import and_list, say
from gpudoctor.core.rule import Severity
from gpudoctor.views._terminal import command, one_line, plural, safe
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.matrix import ITSELF, Level, Mark, share, unread, wrong
from gpudoctor.views.tui.widgets.prose import GAP, Block, badge, labelled, plain

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


def result_mark(result: Result) -> Mark:
    """The mark of a check's result: its outcome's glyph; tenths of the expected value if it was measured and is bad."""
    glyph, level = _OUTCOMES[result.outcome]
    if result.ratio is not None and result.outcome in ("error", "warning"):
        glyph = share(result.ratio, good=1.0).glyph
    return Mark(glyph, level, result.words)


_COMMANDS = (
    ("gpudoctor fleet --hosts node[01-08] --tui", "these, over ssh"),
    ("gpudoctor fleet --slurm --tui", "the nodes of this job"),
    ("gpudoctor fleet RESULTS… --tui", "from what each host wrote"),
)
_WHY = (
    "The same checks on every host show what one alone cannot: the driver that differs, the link that is slow, "
    "the host that all others wait for. Asked for with:"
)


def no_fleet_blocks(message: str) -> Iterator[Block]:
    """`message`, what a fleet check is for, and which commands check one."""
    yield Block(plain(say(message), "bold"))
    yield GAP
    yield Block(plain(say(_WHY)))
    yield GAP
    for line, about in _COMMANDS:
        yield Block(plain(say(about)), plain(f"{line:<43}", "$primary"), 43)


def shown_hosts(fleet: Fleet, everyone: bool) -> list[Host]:
    """All hosts; of more than `MOST_ROWS` only those without an answer or with something other than ok.

    `everyone`: all in any case.
    """
    if everyone or len(fleet.hosts) <= MOST_ROWS:
        return list(fleet.hosts)
    return [
        host
        for host in fleet.hosts
        if not host.answered or any(fleet.result(host.name, check.id).outcome != "ok" for check in fleet.checks)
    ]


def headline(fleet: Fleet) -> str:
    """The fleet's verdict in few words: ``2 hosts to take out, 1 unreachable``, ``every host is sound``."""
    silent = sum(not host.answered for host in fleet.hosts)
    parts = [say("{hosts} to take out", hosts=plural(len(fleet.drained), "host"))] if fleet.drained else []
    parts += [say("{silent} unreachable", silent=silent)] if silent else []
    whole = {"go": say("every host is sound"), "no-go": say("not to be trained on")}.get(
        fleet.verdict, "not all could be judged"
    )
    return say(", ").join(parts) or say(whole)


def size_lines(fleet: Fleet) -> list[str]:
    """Size of the fleet: ``8 hosts · 64 × H100 80GB HBM3 · fleet check, 31 s``, then ever shorter versions of it."""
    gpus: dict[str, int] = {}
    for host in fleet.hosts:
        gpus[host.gpu] = gpus.get(host.gpu, 0) + host.gpus
    kinds = [
        f"{count} × {one_line(name)}" if name else say("{count} GPUs", count=count)
        for name, count in gpus.items()
        if count
    ]
    took = say("fleet check, {seconds:.0f} s", seconds=fleet.seconds) if fleet.seconds else ""
    words = [word for word in (plural(len(fleet.hosts), "host"), ", ".join(kinds[:3]), took) if word]
    return [" · ".join(words[:count]) for count in range(len(words), 0, -1)]


def counts_line(fleet: Fleet) -> str:
    """Counts of hosts and of their checks' results: ``7 of 8 hosts answered · 66 passed · 10 not judged · 4 found``."""
    answered = sum(host.answered for host in fleet.hosts)
    found = sum(fleet.counts[outcome] for outcome in _SEVERITIES)
    return say(
        "{answered} of {hosts} answered · {counts} passed · {counts2} not judged · {found} found",
        answered=answered,
        hosts=plural(len(fleet.hosts), "host"),
        counts=fleet.counts["ok"],
        counts2=fleet.counts["unjudged"],
        found=found,
    )


def conclusion(fleet: Fleet) -> str:
    """Sentence that says how many hosts are sound: ``Without node04 and node07: 5 of 8 hosts are sound ...``."""
    drained = [host.name for host in fleet.hosts if host.name in fleet.drained]
    names = and_list(drained) if 0 < len(drained) <= 4 else plural(len(drained), "host")
    without = say("Without {names}: ", names=names) if drained else ""
    sound = "{count} of {hosts} is sound and may train."
    if len(fleet.sound) != 1:
        sound = "{count} of {hosts} are sound and may train."
    return without + say(sound, count=len(fleet.sound), hosts=plural(len(fleet.hosts), "host"))


def drain_command(fleet: Fleet) -> str:
    """The commands that drain the bad hosts, on one line; without a scheduler their names; empty without bad hosts."""
    commands = [command(drain.argv) for drain in fleet.drain if drain.argv]
    return " && ".join(commands) if commands else safe(",".join(sorted(fleet.drained)))


def drain_blocks(fleet: Fleet) -> Iterator[Block]:
    """How many hosts are sound, and the commands (or reasons, without a scheduler) to take the bad ones out."""
    yield Block(plain(conclusion(fleet), "bold"))
    if fleet.drain:
        yield GAP
    for drain in fleet.drain:
        if drain.argv:
            yield labelled("$ ", plain(command(drain.argv), "$primary"), 2, "dim")
        else:
            yield Block(plain(f"{', '.join(drain.hosts)}: {drain.reason}"))
    if fleet.drain:
        yield GAP
        yield Block(
            Content.styled(say("● changes the system  c copies it all, w writes the sound hosts to a file"), "dim")
        )


def suspects_of(fleet: Fleet) -> Sequence[Suspect]:
    """The fleet's suspects; if it has none, those that its bandwidths between hosts suggest."""
    return fleet.suspects or tuple(pair_suspects(fleet.pairwise) if fleet.pairwise else ())


def suspect_label(suspect: Suspect) -> str:
    """Names of a suspect: ``gpu041 GPU 6``, ``node01 ↔ node02``; with more than two names the first and how many
    others: ``node03 +2``.
    """
    if len(suspect.names) > 2:
        return one_line(f"{suspect.names[0]} +{len(suspect.names) - 1}")
    between = {"link": " ↔ ", "gpu": " "}.get(suspect.kind, ", ")
    return one_line(between.join(suspect.names))


def suspect_blocks(suspect: Suspect) -> Iterator[Block]:
    """All that is known of a suspect: title, evidence, advice, kind and confidence."""
    glyph, word, colour = marks.SEVERITY[suspect.severity]
    yield badge(_capitalized(suspect.title), f"{glyph} {word}", colour)
    yield GAP
    for at, evidence in enumerate(suspect.evidence):
        yield labelled("" if at else "Since", evidence, _HANG)
    if suspect.do:
        yield GAP
        yield labelled("Do", suspect.do, _HANG)
    yield GAP
    where = f"{say(suspect.kind)} {suspect_label(suspect)}"
    yield Block(plain(" · ".join(word for word in (where, say(suspect.confidence), suspect.id) if word), "dim"))


def host_blocks(fleet: Fleet, host: Host, check: str = "") -> Iterator[Block]:
    """The checks of a host that are not ok, and first that with the id `check`; or why the host was not judged."""
    place = " · ".join(word for word in (f"{host.gpus} × {host.gpu}" if host.gpus else "", host.switch) if word)
    if not host.answered:
        yield badge(host.because, "? NOT JUDGED", "$primary", style="")
        yield GAP
        yield Block(plain(say("Nothing is known of it: it counts neither as sound nor as bad.")))
        yield Block(plain(place, "dim"))
        return
    results = [(check_, fleet.result(host.name, check_.id)) for check_ in fleet.checks]
    results.sort(key=lambda item: item[0].id != check)
    shown = [(check_, result) for check_, result in results if result.outcome != "ok" or check_.id == check]
    for check_, result in shown:
        yield Block(plain(check_.title, "bold"), _outcome_label(result.outcome), _HANG + 6)
        words = result.words or (say("as it should be") if result.outcome == "ok" else "")
        if words:
            yield Block(plain(words), hang=_HANG + 6)
        if result.finding:
            yield Block(plain(result.finding, "dim"), hang=_HANG + 6)
    passed = sum(result.outcome == "ok" for _, result in results)
    yield GAP
    yield Block(
        plain(say("{passed} of {count} checks passed · {place}", passed=passed, count=len(results), place=place), "dim")
    )


def _outcome_label(outcome: Outcome) -> Content:
    """Glyph and word of an outcome, in its colour: ``✓ PASSED``, ``✗ ERROR``."""
    if outcome == "ok":
        return Content.styled(f" {marks.PASSED} {say('PASSED')}", "$success")
    if outcome == "unjudged":
        return Content.styled(f" {marks.UNREAD} {say('UNJUDGED')}", "$primary")
    glyph, word, colour = marks.SEVERITY[_SEVERITIES[outcome]]
    return Content.styled(f" {glyph} {say(word)}", f"bold {colour}")


def _capitalized(text: str) -> str:
    """The text with its first letter in upper case, unless its first word is a name such as node04."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


# ---- Pairs of hosts: how fast each way is, and whose fault a slow one looks like ----

GOOD = 0.9
"""Share of the expected bandwidth from which a pair is as it should be."""


def pair_mark(pair: Pair) -> Mark:
    """The mark of the bandwidth between two hosts: share of the expected, wrong data, unread, or the host itself."""
    if pair.source == pair.target:
        return ITSELF
    if pair.wrong:
        return wrong(pair.words)
    return unread(pair.words) if pair.ratio is None else share(pair.ratio, good=GOOD)


def pair_suspects(pairwise: Pairwise) -> Iterator[Suspect]:
    """Suspects by bandwidth: a host if most of its measured ways (three or more, both directions counted) are slow or
    wrong; the link between two hosts if a way is and neither host is such a suspect.
    """
    bad = {
        (source, target): pair
        for source in pairwise.names
        for target in pairwise.names
        if (pair := pairwise.pair(source, target)).wrong or (pair.ratio is not None and pair.ratio < GOOD)
    }
    hosts = []
    for name in pairwise.names:
        pairs = list(_measured_pairs(pairwise, name))
        if len(pairs) > 2 and sum((pair.source, pair.target) in bad for pair in pairs) > len(pairs) / 2:
            hosts.append(name)
            ratios = sorted(pair.ratio for pair in pairs if pair.ratio is not None)
            title = say("most pairs with {name} carried wrong values: the host, not a link", name=name)
            if ratios:
                middle = ratios[len(ratios) // 2]
                title = say(
                    "most pairs with {name} are slow, the middle one at {middle:.0f} %: the host, not a link",
                    name=name,
                    middle=middle * 100,
                )
            yield Suspect("host", (name,), "warning", "possible", title)
    links = {frozenset(way) for way in bad if not set(way) & set(hosts)}
    for link in sorted(map(sorted, links)):
        pairs = [bad[way] for way in (tuple(link), tuple(reversed(link))) if way in bad]
        yield _link_suspect(link, pairs)


def _measured_pairs(pairwise: Pairwise, name: str) -> Iterator[Pair]:
    """The measured pairs from and to the host of that name."""
    for other in pairwise.names:
        for pair in (pairwise.pair(name, other), pairwise.pair(other, name)) if other != name else ():
            if pair.measured is not None:
                yield pair


def _link_suspect(link: Sequence[str], pairs: Sequence[Pair]) -> Suspect:
    """The link between two hosts as suspect, with its lowest share; an error if data was wrong, else a warning."""
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    a_way = say("at {ratios:.0f} %", ratios=min(ratios) * 100) if ratios else say("with wrong data")
    title = say(
        "{link} and {link2} alone, {a_way}; both are sound with others: the link, not a host",
        link=link[0],
        link2=link[1],
        a_way=a_way,
    )
    severity: Severity = "error" if any(pair.wrong for pair in pairs) else "warning"
    return Suspect("link", tuple(link), severity, "possible", title)


def pair_blocks(pairwise: Pairwise, source: str, target: str) -> Iterator[Block]:
    """Bandwidth between two hosts in both directions, and for each of them how many of all its pairs are slow."""
    if source == target:
        yield Block(plain(say("{source} itself", source=source)))
        return
    for pair in (pairwise.pair(source, target), pairwise.pair(target, source)):
        yield Block(plain(_pair_text(pair, pairwise.unit)), plain(f"{pair.source} → {pair.target}", "bold"), 22)
    yield GAP
    for name in (source, target):
        measured = list(_measured_pairs(pairwise, name))
        slow = sum(pair.wrong or (pair.ratio or 0) < GOOD for pair in measured)
        fault = say("  ← the host, not one link") if len(measured) > 2 and slow > len(measured) / 2 else ""
        ways = plural(len(measured), "way")
        text = say(
            "{slow} of {ways} below {share} %{fault}", slow=slow, ways=ways, share=f"{GOOD * 100:.0f}", fault=fault
        )
        yield Block(plain(text, "bold" if fault else ""), plain(name), 22)


def _pair_text(pair: Pair, unit: str) -> str:
    """Bandwidth of a pair: ``12 of 45 GB/s, 27 %``, with remarks; or why it was not measured."""
    if pair.ratio is None:
        return say("not measured") + (say(": ") + say(pair.words) if pair.words else "")
    measured, expected = f"{pair.measured:g}", f"{pair.expected:g} {unit}"
    text = say("{now} of {most}, {share} %", now=measured, most=expected, share=f"{pair.ratio * 100:.0f}")
    remark = say("; ") + say(pair.words) if pair.words else ""
    return f"{say('WRONG DATA: ') if pair.wrong else ''}{text}{remark}"

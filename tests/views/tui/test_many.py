"""Five hundred findings are listed, moved through and read as quickly as five."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis
from tests.views.tui.conftest import WIDE, Opened, first_screen, shown
from tests.views.tui.machines import diagnosis_of
from tests.views.tui.streams import finding_of, with_findings

MANY = 500


def many(ids: int) -> Diagnosis:
    """So many findings under so many ids; every fifth explains three others."""
    one = finding_of("too-old-b200", "driver.too-old-for-gpu")
    names = [f"site.rule-{n % ids}" for n in range(MANY)]
    explains = [tuple(names[(n * 7 + k) % MANY] for k in (1, 2, 3)) if n % 5 == 0 else () for n in range(MANY)]
    return with_findings(
        diagnosis_of("too-old-b200"),
        *(
            replace(one, id=name, title=f"{one.title} {n}", subjects=({"gpu": n},), explains=explains[n])
            for n, name in enumerate(names)
        ),
    )


async def test_of_hundreds_that_differ_in_words_a_few_are_named_and_the_rest_counted(opened: Opened) -> None:
    whole = many(1)
    async with opened(work_on("a fleet", lambda _: iter([whole])), WIDE) as pilot:
        assert "487 more of this kind" in first_screen(pilot).detail.prose.text


async def test_a_search_shows_what_has_the_words_and_escape_all_again(opened: Opened) -> None:
    whole = many(500)
    async with opened(work_on("a fleet", lambda _: iter([whole]))) as pilot:
        screen = first_screen(pilot)
        await pilot.press("j", "slash", *"B200 rule-123")
        assert [entry.id for entry in screen.findings.entries] == ["site.rule-123"]
        assert screen.detail.border_title == "site.rule-123"
        await pilot.press(*"cenu")  # letters, not keys
        await pilot.pause()
        assert "nothing here has 'B200 rule-123cenu'" in "\n".join(shown(pilot))
        await pilot.press(*["backspace"] * 4, "enter", "c")
        assert pilot.app.clipboard.startswith("curl --fail ")
        await pilot.press("escape", "escape")
        assert len(screen.findings.entries) > 400
        assert screen.search
        assert not screen.search.opened

"""The compiled copies that a wheel and ``gpudoctor.pyz`` carry, so that an installed gpudoctor never parses TOML."""

from __future__ import annotations

from pathlib import Path

from gpudoctor import pages


def compiled_copies(folder: Path) -> dict[str, object]:
    """What `gpudoctor.pages.compiled` looks for beside the pages, by its place below `folder`.

    Every page is checked on the way: raises `RuleError` for a broken one.
    """
    from gpudoctor import rulebook
    from gpudoctor.knowledge import promise
    from gpudoctor.language import OTHERS
    from gpudoctor.rulebook.later import BUILT
    from gpudoctor.rulebook.setups import checked_setups
    from gpudoctor.rulebook.translation import checked

    tables = folder / "tables"
    return {
        "rules.json": rulebook.checked_pages(folder),
        **{f"{kind}.json": build(folder) for kind, build in BUILT.items()},
        "setup/setup.json": checked_setups(folder / "setup"),
        **{f"{language}.json": checked(folder, language) for language in OTHERS},
        "tables/tables-reach.json": promise.reach_of(tables),
        **{f"tables/tables-{path.stem}.json": pages.toml(path) for path in sorted(tables.glob("*.toml"))},
    }

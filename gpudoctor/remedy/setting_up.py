"""The plan that sets something up: the ways of its page that this machine has, the first of them chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.plan import Plan
from gpudoctor.model.rule import Fix
from gpudoctor.model.setup_page import SetupPage
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.remedy import plan


def plan_of(page: SetupPage, ways: Sequence[Fix], snapshot: Snapshot, root: bool = False) -> Plan:
    """Every way with its steps; those beside the first are left out. `root` is whether steps that need root can be
    run. There is nothing to verify: what was set up is judged with the whole machine.
    """
    name = f"setup {page.id}"
    asked = Finding(
        id=name,
        layer="host",
        severity="error",
        role="cause",
        confidence="certain",
        title=page.title,
        why="",
        evidence=(),
        fixes=tuple(ways),
        references=page.sources,
    )
    made = plan.of(Diagnosis(snapshot, "unknown", (asked,), (), (), ""), (name,), root)
    steps = (step for step in made.steps if not step.verify)
    return replace(made, title=page.title, steps=tuple(steps))

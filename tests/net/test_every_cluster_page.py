"""No page about a whole job or fleet is theory: for each, the real program is made to say it somewhere in the tests."""

from __future__ import annotations

import re
from pathlib import Path

from gpudoctor import rulebook

TESTS = Path(__file__).parent.parent
REAL = [*TESTS.glob("net/test_preflight*.py"), *TESTS.glob("cluster/test_*.py"), *TESTS.glob("unit/test_fleet_*.py")]
"""Hosts in namespaces, real schedulers, and the fold of documents that the program wrote."""

ELSEWHERE = {
    "host.clock-skew": "clocks of namespaces cannot differ; tests/unit/test_job_facts.py",
    "gloo.interface": "no host here has a GPU; tests/unit/test_job_facts.py",
}


def test_every_page_of_a_cluster_is_made_to_fire() -> None:
    quoted = {name for file in REAL for name in re.findall(r'"([a-z]+\.[a-z-]+)"', file.read_text())}
    pages = {rule.id for rule in rulebook.load().rules if rule.scope == "cluster"}
    assert pages - quoted == set(ELSEWHERE)
    unit = (TESTS / "unit" / "test_job_facts.py").read_text()
    assert [name for name in ELSEWHERE if f'"{name}"' not in unit] == []

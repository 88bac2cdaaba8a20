"""What a machine must be: a profile of lines, each a fact with what it is to be; a line that is unmet is a finding.

    text -> Profile (reading) -> outcomes on a Snapshot (judging) -> Diagnosis held to it (holding)

A profile is TOML, by hand or from a golden machine (writing); those that ship are under ``rules/profiles``.
"""

from __future__ import annotations

from gpudoctor.expect.holding import held_to
from gpudoctor.expect.profile import Profile
from gpudoctor.expect.reading import load

__all__ = ["Profile", "held_to", "load"]

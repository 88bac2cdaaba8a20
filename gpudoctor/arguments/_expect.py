"""The command about profiles of what a machine must be: ``expect``."""

from __future__ import annotations

from typing import Any

from gpudoctor.arguments._options import add_out, add_target, new_command

_ABOUT = """\
A profile says in TOML what a machine must be; check, read, preflight and fleet take it as --expect FILE, and every
line that is not met is a finding. Under [expect] stand facts and what they must be: gpu.count = 8, driver.version =
">= 570, < 590", limits.shm_mib = ">= 64 GiB", gpu.name = ["A", "B"] for one of several, gpu.ecc = { is = true,
severity = "warning", why = "...", do = "..." }; not, matches, has, lacks and present = false say more, and where and
at_least choose among ports or links. Under [line.NAME] stand conditions as on rule pages: each = "gpu", when = [...],
says = "...". Under [measure] stands what kernels reach at level deep: matmul.bf16 = ">= 600 TFLOP/s". A profile may
extend others: extends = "hgx-h100". gpudoctor explain FACT tells what a fact means, gpudoctor schema profile prints the
JSON Schema for editors. A line that cannot be judged leaves no verdict (exit code 3), unless a higher level would
measure it.
"""


def add_expect_command(commands: Any) -> None:
    """``expect list``, ``expect show NAME``, ``expect --from-here``."""
    expect = new_command(
        commands,
        "expect",
        "say what a machine must be: profiles that ship, and new ones written from a machine that is as it should be",
        usage="gpudoctor expect list | show NAME | --from-here [options] | --from FILE... [options]",
        description=_ABOUT,
    )
    expect.add_argument("what", nargs="?", choices=("list", "show"), metavar="list|show", help="profiles that ship")
    expect.add_argument("name", nargs="?", default="", metavar="NAME", help="the one to show")
    expect.add_argument("--from-here", dest="here", action="store_true", help="write one of this machine")
    about = "write one of saved snapshots or documents; what differs between several is left loose"
    expect.add_argument("--from", dest="files", nargs="+", default=[], metavar="FILE", help=about)
    expect.add_argument("--name", dest="profile", default="", metavar="NAME", help="what the new profile is called")
    add_out(expect)
    add_target(expect)

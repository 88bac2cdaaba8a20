"""Commands about what gpudoctor brings along: profiles, recipes, rules, schemas, ``pyz``, ``completion``, ``mcp``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.app.arguments.options import Intermixed, add_lang, add_out, add_rules, add_target, new_command
from gpudoctor.core.rule import LAYERS

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
    """Add the command ``expect``."""
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


SHELLS = ("bash", "zsh", "fish")


def add_installing(commands: Any) -> None:
    """Add the commands ``pyz`` and ``completion``."""
    pyz = new_command(
        commands,
        "pyz",
        "write gpudoctor as one file that runs wherever there is Python 3.10 or newer",
        description="Puts the installed gpudoctor and the packages that it needs into one file, which runs without"
        " being installed or unpacked: python3 gpudoctor.pyz. It starts at once in the Pythons that it was compiled"
        " for, and in others after a second.",
        epilog="Exit code: 0 the file is written, 2 misuse.",
    )
    pyz.add_argument(
        "-o", dest="out", metavar="FILE", default="gpudoctor.pyz", help="where to (default: gpudoctor.pyz)"
    )
    pyz.add_argument(
        "--without-tui", action="store_true", help="leave the terminal interface out: half the size, all else works"
    )
    pyz.add_argument(
        "--python",
        dest="pythons",
        metavar="PATH",
        action="append",
        default=[],
        help="compile for that Python as well as for ours; may be given more than once",
    )
    completion = new_command(
        commands,
        "completion",
        "print what lets a shell complete commands, options and the names of rules",
        description="Prints the completion of a shell. A wheel installs it where shells look for it below the same"
        " prefix; in an environment of its own, have the shell read what is printed.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def add_mcp(commands: Any) -> None:
    """Add the command ``mcp``."""
    mcp = new_command(
        commands,
        "mcp",
        "serve check, read, explain and setup to assistants, by the Model Context Protocol",
        description="Answers an assistant on standard input and output until it hangs up: tools that look and tell,"
        " and never change anything. Answers are hidden as by --share.",
    )
    mcp.add_argument("--python", metavar="PATH", default="", help="the interpreter whose torch is meant")
    mcp.add_argument(
        "--folder",
        dest="folders",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="let the assistant read the files under that folder, links excepted; may be given again (default: none)",
    )
    mcp.add_argument(
        "--no-share",
        dest="share",
        action="store_false",
        help="leave names, addresses and serial numbers in the answers: the assistant may see them",
    )


def add_recipes(commands: Any) -> None:
    """Add the commands ``recipe list``, ``show`` and ``write``."""
    recipes = commands.add_parser(
        "recipe",
        help="files to build gpudoctor into images, clusters and CI",
        description="Each recipe is a file, or a folder, that says where it goes and what each exit code leads to.",
    ).add_subparsers(metavar="WHAT", required=True, parser_class=Intermixed)
    new_command(recipes, "list", "every recipe, and what it does", act="recipe list")
    show = new_command(recipes, "show", "print one", act="recipe show")
    write = new_command(recipes, "write", "write one to a folder; what is there stays as it is", act="recipe write")
    for command in (show, write):
        command.add_argument("name", metavar="NAME", help="as recipe list has it: cloud-init, ansible, slurm-prolog.sh")
    write.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path(), help="default: the current one")


def add_rulebook(commands: Any) -> None:
    """Add the commands ``rules list``, ``test`` and ``new``."""
    rules = commands.add_parser("rules", help="the rulebook").add_subparsers(
        metavar="WHAT", required=True, parser_class=Intermixed
    )
    listing = new_command(rules, "list", "every rule, one a line", act="rules list")
    add_rules(listing)
    add_lang(listing)
    test = new_command(rules, "test", "run the cases on the pages", act="rules test")
    test.add_argument(
        "places", nargs="*", default=[], type=Path, metavar="DIR", help="folders of pages, or pages (default: ours)"
    )
    new = new_command(rules, "new", "write a page to fill in, with what belongs where", act="rules new")
    new.add_argument("id", metavar="ID", help="<topic>.<what-is>: driver.too-old, site.no-quota")
    new.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path("rules"), help="default: rules")
    new.add_argument("--layer", choices=LAYERS, help="what it is about, from the ground up (default: the topic's)")


def add_schema(commands: Any) -> None:
    """Add the command ``schema``."""
    schema = new_command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=("diagnosis", "snapshot", "kernels", "plan", "run", "stack", "fleet", "diff", "history", "profile"),
        default="diagnosis",
        help="of which (default: diagnosis)",
    )

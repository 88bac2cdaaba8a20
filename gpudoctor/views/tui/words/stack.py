"""A torch stack in words: the choices, what fits them, the command, and why that and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from gpudoctor.core.language import say
from gpudoctor.core.stack import EMITS, EXTRAS, GPU, MACHINE, TOOLS, Stack, Wishes
from gpudoctor.core.system import shell_line
from gpudoctor.views._terminal import one_line, padded
from gpudoctor.views.tui.widgets.prose import GAP, Block, labelled, plain
from gpudoctor.views.tui.words import summary

LABELS = {
    "gpus": "GPU",
    "driver": "driver",
    "python": "Python",
    "os": "system",
    "arch": "arch",
    "torch": "torch",
    "extras": "with",
    "wants": "want",
    "tool": "tool",
    "emit": "emit",
}
"""The fields of the wishes, in the order in which they are asked."""
FILES = {
    "command": "install-torch.sh",
    "requirements": "requirements-torch.txt",
    "pyproject": "pyproject-torch.toml",
    "dockerfile": "Dockerfile.torch",
    "environment": "environment-torch.yml",
    "pixi": "pixi-torch.toml",
}
"""What each form is written to: names that no project's own files have."""
_STANDING = {"chosen": ("✓", "$success", "chosen"), "fits": ("✓", "$success", ""), "rejected": ("✗", "$error", "")}
_HANG = 15
_MAX_OFFERED = 4
"""Values of a field that are offered, the newest; any other can be typed."""


@dataclass(frozen=True, slots=True)
class Option:
    """One value that a field can have; fields with `several` may have any number of values."""

    field: str
    value: object
    text: str
    chosen: bool
    note: str = ""

    @property
    def several(self) -> bool:
        """True if its field can have several values, so that choosing it does not unselect the others."""
        return self.field == "extras"


def field_options(wishes: Wishes, read: Wishes, stack: Stack | None) -> Iterator[Option]:
    """Options of every field of the wishes, in `LABELS` order: as read, as set, and offered by the solver (`stack`)."""
    for name in LABELS:
        now = getattr(wishes, name)
        if name == "extras":
            for extra in dict.fromkeys((*EXTRAS, *now)):
                yield Option(name, extra, extra, extra in now)
            continue
        values = _values(name, wishes, read, stack)
        for value in values:
            yield Option(name, value, value_label(name, value), value == now, _note(name, value, wishes, read))


def _values(name: str, wishes: Wishes, read: Wishes, stack: Stack | None) -> list[object]:
    """Values offered for a field, without duplicates: as read (or none), as set, and the newest that the solver offers.

    For ``tool`` and ``emit`` all that there are.
    """
    if name in ("tool", "emit"):
        return list(TOOLS if name == "tool" else EMITS)
    offered: Sequence[object] = stack.offers.get(name, ())[:_MAX_OFFERED] if stack else ()
    if name == "gpus":
        offered = [(GPU(str(value)),) for value in offered]
    first = [""] if name == "torch" else [()] if name == "wants" else [getattr(read, name)]
    return list(dict.fromkeys([*first, getattr(wishes, name), *offered]))


def _note(name: str, value: object, wishes: Wishes, read: Wishes) -> str:
    """Where a value of a field of the machine comes from: ``you said``, ``read``; empty for others."""
    if name not in MACHINE:
        return ""
    if value == getattr(wishes, name) and name in wishes.set_by_user:
        return say("you said")
    return say("read") if value and value == getattr(read, name) else ""


def value_label(name: str, value: object) -> str:
    """A field's value as shown; an empty one in words: ``newest that fits``, ``nothing more``, ``not known``."""
    if name == "gpus":
        return gpus_label(value) if isinstance(value, tuple) else ""
    if name == "torch":
        return one_line(str(value)) or say("newest that fits")
    if name == "wants":
        return one_line(" ".join(value)) if isinstance(value, tuple) and value else say("nothing more")
    return one_line(str(value)) or say("not known")


def gpus_label(models: tuple[GPU, ...]) -> str:
    """GPUs in words: ``8 × H100 80GB HBM3 (cc 9.0)``; ``none known`` without any."""
    words = []
    for gpu in models:
        count = f"{gpu.count} × " if gpu.count > 1 else ""
        capability = f" (cc {gpu.compute_capability})" if gpu.compute_capability else ""
        words.append(one_line(f"{count}{summary.short_name(gpu.name)}{capability}"))
    return ", ".join(words) or say("none known")


def fit_blocks(stack: Stack, wishes: Wishes, command_first: bool = False) -> Iterator[Block]:
    """Packages, libraries, needs and command of the stack; if nothing fits, the smallest changes that would help.

    `command_first` puts the command on top.
    """
    if not stack.torch:
        yield Block(Content(say("Nothing fits these choices.")), Content.styled("✗ ", "bold $error"), 2)
        for number, remedy in enumerate(stack.smallest, 1):
            label = say("It would with" if number == 1 else "or with")
            yield labelled(label, plain(remedy.text, "bold"), _HANG, "dim")
        if stack.smallest:
            yield GAP
            yield Block(Content(say("s sets the first of these, s again the next.")))
        yield from _driver_first_blocks(stack)
        return
    if command_first:
        yield from command_blocks(stack, wishes)
        yield GAP
    for name, version in stack.packages:
        yield labelled(name, plain(version, "bold"), _HANG, "dim")
    for name, version in stack.libraries:
        yield labelled(name, version, _HANG, "dim")
    for need in stack.needs:
        mark = ("✓", "$success") if need.met else ("✗", "bold $error")
        have = plain(f"   {need.have} ", "dim") if need.have else Content("   ")
        needed = (
            say("{needed}, for {because}", needed=need.needed, because=need.because) if need.because else need.needed
        )
        yield labelled(
            say("needs {what}", what=say(need.what)), Content.assemble(plain(needed), have, mark), _HANG, "dim"
        )
    if not command_first:
        yield GAP
        yield from command_blocks(stack, wishes)


def _driver_first_blocks(stack: Stack) -> Iterator[Block]:
    """What to type for the first change that is a driver, and what installs torch then; nothing if none is."""
    driver = next((remedy for remedy in stack.smallest if remedy.commands), None)
    if not driver:
        return
    yield GAP
    for heading, argvs in (
        (say("For driver {value}, and then torch", value=driver.value), driver.commands),
        (say("By the tables, the second will give"), driver.installs),
    ):
        if argvs:
            yield Block(plain(heading, "bold"))
        for argv in argvs:
            yield Block(plain(shell_line(argv), "$primary"), Content.styled("$ ", "dim"), 4)


def command_blocks(stack: Stack, wishes: Wishes) -> Iterator[Block]:
    """The commands, or the file's lines, for the wishes' tool and form, under a heading; or that there is none."""
    text = stack.written(wishes.tool, wishes.emit)
    heading = (
        say("Command, with {tool}", tool=wishes.tool)
        if wishes.emit == "command"
        else FILES.get(wishes.emit, wishes.emit)
    )
    yield Block(plain(heading, "bold"))
    if not text:
        yield Block(
            plain(
                say("There is none for {more} here.", more=wishes.tool if wishes.emit == "command" else wishes.emit),
                "dim",
            )
        )
    for line in text.splitlines():
        lead = Content.styled("$ ", "dim") if wishes.emit == "command" else Content("  ")
        yield Block(plain(line, "$primary"), lead, 4 if wishes.emit == "command" else 2)


def reason_blocks(stack: Stack) -> Iterator[Block]:
    """Every candidate with the reason why it was chosen, fits too or was rejected; then remarks and sources."""
    if stack.heading:
        yield Block(plain(stack.heading, "bold"))
    width = max((cell_len(reason.candidate) for reason in stack.reasons), default=0) + 5
    for reason in stack.reasons:
        glyph, look, word = _STANDING[reason.standing]
        lead = Content.assemble("  ", plain(padded(reason.candidate, width - 5)), "  ", (glyph, look), " ")
        head = Content.styled(f"{say(word)}{say(': ')}", "bold") if word else Content("")
        yield Block(Content.assemble(head, plain(reason.because)), lead, width + 2)
    if stack.remarks:
        yield GAP
        yield from (Block(plain(remark)) for remark in stack.remarks)
    if stack.sources:
        yield GAP
        yield labelled("Sources", plain(say("; ").join(stack.sources), "dim"), 9, "dim")


def no_machine_blocks() -> Iterator[Block]:
    """That no stack can be worked out without a single machine, and which commands help."""
    yield Block(
        Content(say("What fits is worked out for one machine, and this is none.")), Content.styled("? ", "bold"), 2
    )
    yield GAP
    yield Block(Content(say("On a host itself, or for one that is not here:")))
    yield Block(Content(say("the stack that fits, and why")), Content.styled("gpudoctor setup torch", "$primary"), 28)
    yield Block(Content(say("CUDA builds; e opens it here")), Content.styled("gpudoctor explain torch", "$primary"), 28)

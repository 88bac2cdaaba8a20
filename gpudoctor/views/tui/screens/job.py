"""A running job: its ranks and what each does, who is waited for and why, the GPUs' curves; as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.fact import Row, listed, value_of
from gpudoctor.core.language import phrase, say
from gpudoctor.views._terminal import one_line, plural
from gpudoctor.views.job import UNSEEN
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import Band
from gpudoctor.views.tui.screens.gpus import LiveScreen
from gpudoctor.views.tui.screens.help import PageScreen
from gpudoctor.views.tui.widgets.gpu_table import GPUTable
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rank_table import RankTable, counts_text
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import job as words
from gpudoctor.views.tui.words.diagnosis import commands
from gpudoctor.views.tui.words.gpu import GpuState
from gpudoctor.views.tui.work import JobLook, JobWatch, Work, call_in_app, error_text, run_in_thread

_VIEWS = ("found", "rank", "gpus")
_NOT_HERE = "a report or a recording has no running job"


class JobScreen(LiveScreen):
    """A running job, live; `v` goes through findings, rank and GPUs where there is room for one of them alone."""

    NAME = "job"
    AUTO_FOCUS = "#job-ranks"
    CSS = """
    #job { height: 1fr; }
    #job-gpus { height: auto; }
    #job-below { height: 1fr; layout: horizontal; }
    #job-below Pane { width: 1fr; height: 1fr; }
    .-narrow #job-below Pane, .-narrow #job-gpus, JobScreen.-cpu #job-gpus { display: none; }
    JobScreen.-narrow.-found #job-found, JobScreen.-narrow.-rank #job-rank { display: block; }
    JobScreen.-narrow.-gpus #job-gpus { display: block; height: 1fr; }
    JobScreen.-narrow.-gpus #job-below { display: none; }
    JobScreen.-none #job-ranks, JobScreen.-none #job-rank, JobScreen.-none #job-gpus { display: none; }
    JobScreen.-none #job-found { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "read", "read stacks"),
        Binding("v", "view", "view"),
        Binding("J", "turn", "Another job of this machine", show=False),
        Binding("c", "copy", "copy command"),
    ]
    CLOCK = 1.0
    """Seconds between two looks at how old the stacks are."""

    def __init__(self) -> None:
        super().__init__()
        self.job = JobLook()
        self._watch: JobWatch | None = None
        self._asked_at = -1.0
        """The reading that is to be followed by another; -1 where none is wanted."""
        self._view = _VIEWS[0]
        self._copied = 0

    def body(self) -> Iterable[Widget]:
        """The table of ranks; below it the job's GPUs, then what was found beside the rank under the cursor."""
        self.ranks, self.gpus = RankTable(), GPUTable()
        self.found, self.rank = Pane("Found", id="job-found"), Pane("Rank", id="job-rank")
        with Container(id="job"):
            yield self.ranks
            with Container(id="job-gpus"):
                yield self.gpus
            with Container(id="job-below"):
                yield self.found
                yield self.rank

    def on_mount(self) -> None:
        """Start watching the job and sampling the GPUs in threads, and a clock; or say that there is no job here."""
        self.set_interval(self.CLOCK, self._tick)
        self.set_class(True, f"-{self._view}")
        app, work = self.app, self.doctor.work
        if work.job is None:
            self._receive(JobLook(trouble=_NOT_HERE))
            return
        follow = work.job
        self._receive(JobLook(trouble=say("looking for its processes"), reading=True))
        receive = lambda look: call_in_app(app, lambda: self._receive(look))  # noqa: E731
        run_in_thread(app, "job", lambda: follow(receive), self._receive_watch)
        self.follow_samples()

    def on_unmount(self) -> None:
        """Stop watching the job."""
        if self._watch:
            self._watch.stop()

    def on_screen_suspend(self) -> None:
        """Pause watching the job while another screen is shown; samples of the GPUs go on."""
        if self._watch:
            self._watch.rest(True)

    def on_screen_resume(self) -> None:
        """Go on watching the job."""
        if self._watch:
            self._watch.rest(False)

    def on_resize(self) -> None:
        """Redraw everything for the new size, after the layout."""
        self.call_after_refresh(self._draw)

    def _receive_watch(self, answer: JobWatch | BaseException) -> None:
        """Keep the started watch on the job, or stop it if the screen was closed; an exception is shown as trouble."""
        if isinstance(answer, BaseException):
            self._receive(JobLook(trouble=error_text(answer)))
        elif self.is_attached:
            self._watch = answer
        else:
            answer.stop()

    def _receive(self, look: JobLook) -> None:
        """Show this look at the job; if it has no diagnosis, the former one stays with the trouble of this one.

        Where the job is the app's first screen, a diagnosis that says something new becomes the app's.
        """
        if not self.is_attached:
            return
        before = self.job
        if look.diagnosis is None and before.diagnosis is not None:
            self.job = replace(before, trouble=look.trouble, reading=False)
        else:
            self.job = look
        if look.read_at > self._asked_at:
            self._asked_at = -1.0
        if look.read_at and look.diagnosis and self.doctor.work.first == self.NAME:
            known = self.doctor.diagnosis
            if look.read_at != before.read_at or known is None or known.findings != look.diagnosis.findings:
                self.doctor.diagnosis = look.diagnosis  # it is what all screens are about
        self._draw()

    def _tick(self) -> None:
        """Redraw the first two lines, with the age of the stacks, and the GPUs' numbers if they became outdated."""
        self.reframe()
        if self._samples.age():
            self.draw_samples()

    def _draw(self) -> None:
        """Redraw ranks, panes, GPUs and frame from the latest look; without a diagnosis only why there is none."""
        look, diagnosis = self.job, self.job.diagnosis
        self.set_class(diagnosis is None, "-none")
        if diagnosis is None:
            blocks = (
                [Block(plain(f"{say(look.trouble)} …"))] if look.reading else list(words.nothing_blocks(look.trouble))
            )
            self.found.put("Job", blocks, keep=True)
            if self.focused in (None, self.ranks):
                self.found.focus()
        else:
            count = len(listed(diagnosis.snapshot.rows("rank")))
            share = 5 if self.has_class("-narrow") else 4
            self.ranks.styles.height = min(count + 3, max(self.size.height * share // 12, 6))
            self.ranks.border_title = Content(f"{plural(count, 'rank')}{say(': ')}{counts_text(diagnosis)}")
            awaited = any(map(words.is_awaited, listed(diagnosis.snapshot.rows("rank"))))
            self.ranks.border_subtitle = say("◂ the others wait for it") if awaited else ""
            self.ranks.put(look, diagnosis)
            if self.focused in (None, self.found) and not self._asked_to_scroll:
                self.ranks.focus()
            self._draw_panes()
        self.draw_samples()
        self.reframe()

    _asked_to_scroll = False
    """Whether the user went to a pane: then it keeps the focus."""

    def on_descendant_focus(self) -> None:
        """Remember whether the user went to another pane than the ranks, so that it keeps the focus."""
        self._asked_to_scroll = self.job.diagnosis is not None and self.focused is not self.ranks

    def _draw_panes(self) -> None:
        """Redraw what was found, and the rank under the cursor; nothing before a diagnosis."""
        look, row = self.job, self.ranks.rank
        diagnosis = look.diagnosis
        if diagnosis is None:
            return
        if look.read_at:
            count = len(diagnosis.findings)
            title = say("Found") if not count else f"{say('Found')} · {count}"
            self.found.put(title, list(words.found_blocks(look, diagnosis, self.has_class("-narrow"))), keep=True)
        else:
            self.found.put("Found", [Block(plain(say("The stacks are being read; nothing is judged yet.")))], keep=True)
        if row is not None:
            title = words.rank_name(row)
            same = str(self.rank.border_title) == title
            self.rank.put(title, list(words.rank_blocks(diagnosis, row, look)), keep=same)

    def draw_samples(self) -> None:
        """Draw the GPUs that the job's ranks use, or all of the machine if no rank's GPUs are known.

        The table is hidden if the job runs elsewhere or there are no live samples.
        """
        rows = listed(self.job.diagnosis.snapshot.rows("rank")) if self.job.diagnosis else ()
        used = {number for row in rows for number in _gpus_of(row)}
        shown = self._samples.shown
        chosen = {index: gpu for index, gpu in shown.gpus.items() if not used or index in used}
        here = self.job.local and bool(chosen) and self._samples.live
        self.set_class(not here, "-cpu")
        if not here:
            if self._view == "gpus":
                self.action_view()
            return
        lines = sum(1 + len(gpu.instances) for gpu in chosen.values()) + 3
        self.gpus.styles.height = "1fr" if self.has_class("-narrow") else min(lines, max(self.size.height // 4, 5))
        self.gpus.left_out = ("memory",) if self.has_class("-narrow") else ()  # the curve is worth more than its bar
        self.gpus.border_title = Content(
            say("GPUs of the job" if used else "GPUs of this machine; NVML names no process of the job")
        )
        self.gpus.border_subtitle = one_line(self._samples.trouble)
        self.gpus.put(GpuState(chosen, shown.health, shown.histories, shown.moment, shown.struck))
        self._go_to_gpu()

    def _go_to_gpu(self) -> None:
        """Put the GPU table's cursor on the first GPU of the rank under the cursor, unless that table has the focus."""
        row = self.ranks.rank
        if row is not None and not self.gpus.has_focus:
            for index in _gpus_of(row)[:1]:
                self.gpus.go(index)

    def band(self) -> Band:
        """The first line: for whom the ranks wait, that stacks are being read, or that there is no job or it ended."""
        look, diagnosis = self.job, self.job.diagnosis
        if diagnosis is None:
            look_and_word = ("reading", "… READING") if look.reading else ("unknown", f"{marks.UNREAD} NO JOB")
            return Band(*look_and_word, say(look.trouble))
        rights = tuple(words.size_lines(diagnosis))
        if look.ended_at:
            return Band("unknown", f"{marks.ABSENT} ENDED", words.headline(look), rights)
        if not look.read_at:
            return Band("reading", "… READING", words.headline(look), rights)
        glyph, word = marks.VERDICT[diagnosis.verdict]
        return Band(diagnosis.verdict, f"{glyph} {word}", words.headline(look), rights)

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: what could not be seen, the age of the stacks, how many other jobs there are."""
        look, diagnosis = self.job, self.job.diagnosis
        if diagnosis is None:
            return ("",)
        left = words.freshness(look, self._asked_at >= 0, self.doctor.work.recorded)
        if look.trouble:
            left = say("{left} · not looked at again: {trouble}", left=left, trouble=look.trouble)
        unseen = diagnosis.snapshot.texts("job.unseen")
        if unseen and look.read_at:
            return Content.styled(f"{marks.UNREAD} {one_line(phrase(unseen[0], UNSEEN))}", "bold"), left
        if look.also:
            return left, say("{count} more here: J", count=len(look.also))
        return (left,)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the rank under the cursor, and go to its GPU; moves in the GPU table are ignored."""
        row = self.ranks.rank
        if event.rows is self.ranks and row is not None:
            self._draw_panes()
            self._go_to_gpu()

    async def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Open the stacks of the rank under the cursor, if a row of the ranks was chosen."""
        if event.rows is self.ranks:
            self.action_stacks()

    def action_stacks(self) -> None:
        """Open a screen with the stacks of all threads of the rank under the cursor; only a message without a rank."""
        row, watch = self.ranks.rank, self._watch
        if row is None or watch is None:
            self.doctor.say("there is no rank whose stacks could be read")
            return
        self.app.push_screen(StacksScreen(words.rank_name(row), lambda: watch.stacks(row)))

    def action_read(self) -> None:
        """Have the stacks read now, by the watching thread; only a message without a job."""
        if self._watch is None or self.job.diagnosis is None:
            self.doctor.say("there is no job to look at")
            return
        self._asked_at = self.job.read_at
        self._watch.read()
        self.reframe()

    def action_turn(self) -> None:
        """Watch the next job of this machine; only a message if there is no other."""
        if self._watch is None or not self.job.also:
            self.doctor.say("no other job is found on this machine")
            return
        self._watch.turn()
        self.doctor.say("going on to {name}", name=self.job.also[0])

    def action_view(self) -> None:
        """Show the next of the panes ``found``, ``rank`` and ``gpus`` (if there are any) on a narrow screen."""
        after = [*_VIEWS, *_VIEWS][_VIEWS.index(self._view) + 1 :]
        view = next(view for view in after if view != "gpus" or not self.has_class("-cpu"))
        for name in _VIEWS:
            self.set_class(name == view, f"-{name}")
        self._view = view
        self.draw_samples()

    def action_copy(self) -> None:
        """Copy the next command of all findings' fixes, after the last the first; only a message without commands."""
        diagnosis = self.job.diagnosis
        every = [line for finding in diagnosis.findings for line in commands(finding)] if diagnosis else []
        if not every:
            self.doctor.say("nothing found here has a command")
            return
        command = every[self._copied % len(every)]
        self._copied += 1
        self.app.copy_to_clipboard(command)
        self.doctor.say("copied: {command}", command=command)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for ``fix``, for actions on a job before its diagnosis, ``read`` in a recording, ``view`` if wide."""
        if action == "fix" or (self.job.diagnosis is None and action in ("stacks", "read", "copy", "view")):
            return False
        if action == "view":
            return self.has_class("-narrow")
        if action == "read":
            return not self.doctor.work.recorded
        return super().check_action(action, parameters)


def _gpus_of(row: Row) -> tuple[int, ...]:
    """The GPUs' numbers in the column ``gpus`` of a row of ``rank``; empty if they are not known."""
    numbers = value_of(row.get("gpus"))
    return tuple(number for number in numbers if isinstance(number, int)) if isinstance(numbers, tuple) else ()


# ---- The stacks of one rank: all threads, and those of its DataLoader's workers ----


class StacksScreen(PageScreen):
    """All stacks of a rank over the job's screen, read when it is opened and again by `r`."""

    WAITING = "Reading them …"
    COPIED, NOTHING_TO_COPY = "copied {lines} lines", "there is nothing to copy"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "dismiss", "back", key_display="esc"),
        Binding("r", "read", "read again"),
        Binding("c", "copy", "copy all"),
    ]

    def __init__(self, rank: str, ask: Callable[[], Sequence[tuple[str, Sequence[str]]]]) -> None:
        about = say("{rank}: all threads, and its DataLoader's workers, as py-spy reads them", rank=rank)
        super().__init__(say("Stacks of {rank}", rank=rank), about)
        self._ask = ask

    def read(self, work: Work) -> tuple[str, Iterable[Block]]:  # noqa: ARG002 - a job's stacks are not the machine's
        """The stacks of all threads of the rank and its workers, asked for now, as text to copy and as blocks."""
        entries = self._ask()
        lines = [line for heading, frames in entries for line in (heading, *(f"  {frame}" for frame in frames))]
        return "\n".join(lines), words.stack_blocks(entries)

    def trouble(self, error: BaseException) -> Block:
        """The block shown in place of the stacks if reading them raised this error."""
        return Block(plain(error_text(error), "bold"))

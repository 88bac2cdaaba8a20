"""Profiles of what a machine must be: ``expect list``, ``expect show``, ``expect --from-here``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import SOUND
from gpudoctor.model.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.diagnosis import Diagnosis


def expect(options: argparse.Namespace) -> int:
    wanted = [options.what is not None, options.here, bool(options.files)]
    if wanted.count(True) != 1 or (options.what == "list" and options.name):
        raise UsageError("expect: one of list, show NAME, --from-here, --from FILE; gpudoctor expect --help")
    if options.what == "list":
        print(_listing())
    elif options.what == "show":
        from gpudoctor.expect import reading

        if not options.name:
            raise UsageError("which one? gpudoctor expect list shows the profiles that ship")
        print(reading.text_of(options.name), end="")
    else:
        _write(options)
    return SOUND


def _write(options: argparse.Namespace) -> None:
    """A profile of this machine, or of what several files say; what is wrong there is told beside it."""
    import time

    from gpudoctor import doctor, output, rulebook
    from gpudoctor.commands.reports import snapshots_in
    from gpudoctor.expect.reading import NAME
    from gpudoctor.expect.writing import written
    from gpudoctor.views.progress import progress_on

    if options.profile and not NAME.match(options.profile):
        raise UsageError(f"--name {options.profile[:80]}: a profile's name is in lower case: our-h100")
    output.check(options.out)  # before minutes are spent on what cannot be kept
    if options.here:
        with progress_on(sys.stderr) as progress:
            snapshots = [doctor.look(options.level, options.python, progress)]
    else:
        snapshots = snapshots_in(options.files)
    book = rulebook.load()
    diagnoses = [doctor.diagnose(snapshot, book) for snapshot in snapshots]
    text = written(
        [diagnosis.snapshot for diagnosis in diagnoses], time.strftime("%Y-%m-%d", time.gmtime()), options.profile
    )
    output.put(text, options.out)
    for diagnosis in diagnoses:
        _warn(diagnosis)


def _warn(diagnosis: Diagnosis) -> None:
    """A machine that is not as it should be makes a profile that others should not be held to."""
    wrong = [finding.id for finding in diagnosis.findings if finding.severity == "error"]
    if wrong:
        from gpudoctor.views._terminal import one_line

        name, ids = one_line(diagnosis.snapshot.target.name), ", ".join(dict.fromkeys(wrong))
        print(f"gpudoctor: {name} is not sound ({ids}): the profile describes it as it is", file=sys.stderr)


def _listing() -> str:
    """Every profile that ships with what it is about, one a line."""
    from gpudoctor.expect import reading

    profiles = [reading.load(name) for name in reading.shipped()]
    width = max((len(profile.name) for profile in profiles), default=0)
    return "\n".join(f"{profile.name:{width}}  {profile.about}" for profile in profiles)

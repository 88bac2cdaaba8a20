"""``expect list``, ``expect show``, ``expect --from-here``: profiles of what a machine must be."""

from __future__ import annotations

import argparse
import sys
import time

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.read import snapshots_in
from gpudoctor.app.output import SOUND
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.expect import reading
from gpudoctor.diagnosis.expect.reading import NAME
from gpudoctor.diagnosis.expect.writing import profile_text
from gpudoctor.views._terminal import one_line
from gpudoctor.views.progress import progress_on


def expect(options: argparse.Namespace) -> int:
    """``gpudoctor expect``: list or show profiles, or write one of this machine or of files; exit code 0.

    Raises `UsageError` unless exactly one of these is asked for.
    """
    wanted = [options.what is not None, options.here, bool(options.files)]
    if wanted.count(True) != 1 or (options.what == "list" and options.name):
        raise UsageError(say("expect: one of list, show NAME, --from-here, --from FILE; gpudoctor expect --help"))
    if options.what == "list":
        profiles = [reading.load(name) for name in reading.shipped_names()]
        width = max((len(profile.name) for profile in profiles), default=0)
        print("\n".join(f"{profile.name:{width}}  {profile.about}" for profile in profiles))
    elif options.what == "show":
        if not options.name:
            raise UsageError(say("which one? gpudoctor expect list shows the profiles that ship"))
        print(reading.text_of(options.name), end="")
    else:
        _write(options)
    return SOUND


def _write(options: argparse.Namespace) -> None:
    """Write a profile of this machine or of the files' machines, and warn on stderr of those that are not sound.

    Raises `UsageError` for a bad name of the profile or a place that cannot be written to.
    """
    if options.profile and not NAME.match(options.profile):
        raise UsageError(
            say("--name {profile}: a profile's name is in lower case: our-h100", profile=options.profile[:80])
        )
    output.check(options.out)  # before minutes are spent on what cannot be kept
    if options.here:
        with progress_on(sys.stderr) as progress:
            snapshots = [pipeline.look(options.level, options.python, progress)]
    else:
        snapshots = snapshots_in(options.files)
    book = rulebook.load()
    diagnoses = [pipeline.diagnose(snapshot, book) for snapshot in snapshots]
    text = profile_text(
        [diagnosis.snapshot for diagnosis in diagnoses], time.strftime("%Y-%m-%d", time.gmtime()), options.profile
    )
    output.put(text, options.out)
    for diagnosis in diagnoses:
        wrong = [finding.id for finding in diagnosis.findings if finding.severity == "error"]
        if wrong:
            name, ids = one_line(diagnosis.snapshot.target.name), ", ".join(dict.fromkeys(wrong))
            sentence = "{name} is not sound ({ids}): the profile describes it as it is"
            output.put_message(say(sentence, name=name, ids=ids))

"""Checks of this machine that are kept, and what changed since one of them found it in order.

A kept run is a file of some 10 KB (gzip: a line about the run, a line with its snapshot), readable by its owner alone,
under ``gpudoctor/history/HOST`` in the user's state folder. ``GPUDOCTOR_STATE`` names another folder,
``GPUDOCTOR_HISTORY=off`` keeps and reads none. Whatever goes wrong here is no matter of the check.
"""

from __future__ import annotations

from gpudoctor.history.shelf import Shelf, of_this_machine
from gpudoctor.history.since import dated, kept

__all__ = ["Shelf", "dated", "kept", "of_this_machine"]

"""Logs of package managers, one file per kind of log: what was exchanged, when, and by whom."""

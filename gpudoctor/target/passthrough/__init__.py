"""A command that runs as it would without us: its terminal, signals, environment, output and end.

`command` starts it and ends as it ended, `outputs` and `relay` pass its output on and keep the end of it.
"""

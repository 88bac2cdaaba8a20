"""One step of a plan, run.

`engine` goes through the steps and records them, `guard` refuses what would change another environment, `commands` runs
a command, `system_packages` notes what dpkg, rpm or pacman had before and after.
"""

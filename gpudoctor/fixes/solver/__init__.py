"""What to install so that it works here: torch stack, driver, toolkit, container support; worked out from tables.

    Wishes -> Machine, Wants -> Fit | Rejected for every Build -> Solution -> Stack with commands and files

- `described_machine`: ``--for`` and the machine it describes; `machine`: what of a machine decides; `requirements`:
  ``--want``; `environment`: where packages go
- `builds`, `companions`: torch's builds, and the packages beside them; `fitting_builds`: which fit
- `solver`, `solution`: the answer and its reasons; `smallest_change`: what to change where nothing fits
- `stacks`, `install_commands`: commands and files that install it; `index`: whether a package index has it
- `cure`, `repairs`: the same as fixes of rules
"""

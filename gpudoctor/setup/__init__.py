"""What to install so that it works here: torch stack, driver, toolkit, container support; worked out from tables."""

SOLVED = ("torch", "torch same", "other python", "companions", "nvidia wheels", "torch again", "triton")
"""What a rule page may name as what is set up that the solver works out; the rest stands on pages of its own."""

"""Secrets and names planted wherever a text may stand, and no shared view in which one of them is to be seen."""

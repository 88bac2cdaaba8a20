"""Kept checks of a machine, and what changed since one of them."""

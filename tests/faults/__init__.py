"""Faults put into results before they are judged: ``python -m tests.faults --trials 2000``."""

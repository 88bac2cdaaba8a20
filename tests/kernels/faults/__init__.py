"""Faults put into results before they are judged: ``python -m tests.kernels.faults --trials 2000``."""

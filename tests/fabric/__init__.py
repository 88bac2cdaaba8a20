"""A simulated fabric: hosts below leaf switches, some of them bad. ``python -m tests.fabric --trials 500``."""

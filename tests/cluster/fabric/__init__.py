"""A simulated fabric: hosts below leaf switches, some of them bad. ``python -m tests.cluster.fabric --trials 500``."""

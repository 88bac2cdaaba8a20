"""Facts in, Diagnosis out: judge, what is expected of a machine, its history, comparison.

Its data is TOML in ``rules/`` beside this package: a page per rule, ``rules/tables``, ``rules/profiles``.
"""

"""Facts in, Diagnosis out. Its data is TOML in ``rules/``: a page per rule, ``rules/tables``, ``rules/profiles``.

- `diagnose`: all of it: complete the facts, judge, annotate; `judge`: rules to findings, root causes first
- `rulebook`: rule pages read, checked and compiled; `page_cache`: their compiled copies; `expression`: conditions
- `knowledge`: the tables, and facts that follow from them
- `expect`: profiles of what a machine must be; `history`: earlier checks of this machine; `compare`: two diagnoses
- `catalog`: every fact that is declared anywhere
"""

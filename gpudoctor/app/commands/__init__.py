"""What each command does: a function that takes the parsed options and returns the exit code.

A command is in the module of its name, except ``soak`` in `bench`; ``snapshot``, ``history``, ``diff``, ``replay`` in
`snapshots`; ``recipe``, ``schema``, ``completion``, ``pyz``, ``mcp`` in `bundled`. Shared: `apply_plan` runs a plan at
the terminal, `interface` opens the terminal interface, `reports` prints a diagnosis. `gpudoctor.app.cli` calls them and
catches their errors.
"""

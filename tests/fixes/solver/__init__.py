"""The solver against an oracle of its own and against cases that were worked out by hand."""

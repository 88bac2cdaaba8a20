"""The doctor beside a command: watching while it runs, and at its end one diagnosis of all that was seen."""

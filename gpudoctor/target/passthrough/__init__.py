"""A command that runs as it would without us, and how it ends: its terminal, signals, environment, output and end."""

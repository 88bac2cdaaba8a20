"""The check before a job trains: its hosts against each other, and who is to blame."""

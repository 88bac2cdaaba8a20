"""What was run: journals that outlast a crash, and who runs one now."""

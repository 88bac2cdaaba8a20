"""What others rely on inside a major version: stored for 1.0, and held against what the program promises now."""

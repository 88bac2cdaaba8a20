"""From what was found to what is done about it."""

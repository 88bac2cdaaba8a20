"""The terminal interface. Knows the model and nothing else: what it can have done is handed to it as a `Work`."""

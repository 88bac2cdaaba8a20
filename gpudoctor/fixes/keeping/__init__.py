"""An environment as it is, kept before a run so that it can be put back."""

"""What libcuda's child told, in our terms."""

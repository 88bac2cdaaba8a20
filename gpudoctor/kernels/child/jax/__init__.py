"""JAX in the target interpreter, where it is installed."""

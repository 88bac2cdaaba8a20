"""TensorFlow in the target interpreter, where it is installed."""

"""From findings to what is done about them: the solver of torch stacks; plan, apply, verify, undo."""

"""What a plan is made of: cures in order, what they would bring about, and what keeps a step from being run."""

"""What people note of a machine in a form of their own: labels with values, commands, figures; not sentences."""

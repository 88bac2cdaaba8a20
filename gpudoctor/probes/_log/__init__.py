"""The kernel's log: its lines, and the events among them."""

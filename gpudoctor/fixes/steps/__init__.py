"""What running one step takes: what must hold, whom it acts on, its command, and what came of it."""

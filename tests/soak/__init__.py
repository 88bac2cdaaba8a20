"""A process that checks machines for a long time: what it holds afterwards, beside what it held at the start."""

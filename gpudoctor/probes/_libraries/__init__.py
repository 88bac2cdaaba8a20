"""Native libraries, read without loading one: ELF, fat binaries, symbols, and what the loader would choose."""

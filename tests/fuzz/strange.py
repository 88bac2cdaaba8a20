"""What strangers write where they should not: control characters, endless runs, numbers without measure."""

from __future__ import annotations

CONTROLS = (
    "\x00", "\x07", "\x08", "\x1b[31m", "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]8;;http://x\x1b\\", "\x1bP1$r\x1b\\",
    "\x1b", "\x9b2J", "\x7f", "\x85", "\r", "\v\f", "\u2028", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800",
    "\udcff", "\U000e0041", "\U0010ffff",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "-0", "00000000000000000001", "9" * 19, "9" * 400, "9" * 5000, "1e400", "1" + ".1" * 300,
    "0x" + "f" * 200, "NaN", "inf", "½", "²", "٣٤", "1,024", "1_000", "1..2", "999.999.999",
)  # fmt: skip
ODD = (
    "", " ", ":", "=", "N/A", "None", "[]", "{}", "{0}", "{gpu.name}", "%s%n", "\\", "'", '"', "`", "$(reboot)",
    "; rm -rf /", "İıſK", "ﬁ", "é" * 3, "漢字", "👩‍💻", "../../..", "(" * 30, "[" * 30, "|" * 3, "a.b.c.d", "+cu",
    "sm_", "GPU 0:", ">>> ", "$ ", "```", "> " * 9,
)  # fmt: skip
RUNS = (
    "a", " ", "\t", ": ", ":", "MiB / ", "1 ", "1", "1.", "-", "| ", "=", "a.", "a b ", "[", "(", "{", "<", "/", "/a",
    "\\", "'", '"', ", ", "sm_90 ", "GPU 0: ", "Error: ", "Error", "NVRM: ", "NVRM: Xid (PCI:0000:01:00): ", "CUDA ",
    "torch ", "$ ", "> ", ">", "[rank0]: ", "\u00e9", "İ", "0x", "f" * 8 + "-", "a_", "A=", "a-1 | ", "\n", " \n",
    ":\n", "0: \n",
)  # fmt: skip
"""Units of long runs: what patterns of readers and signs are made of, repeated until one of them despairs."""
LENGTHS = (30, 300, 3000, 4100, 50_000)

"""What a record hides: the same name by the same word, and by one of the same length in binary files."""

from __future__ import annotations

import struct

from gpudoctor.app.commands.record import Hider


def test_names_are_replaced_by_the_same_word_everywhere() -> None:
    hider = Hider("gpu-node-17.example.org", ["jdoe"])
    hider.learn("/home/annette/env")
    said = hider.text(
        "jdoe@gpu-node-17.example.org gpu-node-17: /home/annette/env /nfs/home/jdoe b8:59:9f:d4:1a:2c"
        " GPU-8b0e7153-bf7c-3706-d85c-524e44006655 https://me:pass@host/x hf_abcdefghijklmnopqrst"
        " fe80:0000:0000:0000:b859:9f03:00d4:1a2c"
    )
    for name in ("jdoe", "annette", "gpu-node", "b8:59", "8b0e7153", "pass", "hf_abc", "b859"):
        assert name not in said
    assert said.count(hider.user("jdoe")) == 2
    assert said.count("host1") == 2
    assert "fe80:0000:0000:0000:" in said


def test_what_only_looks_personal_stays() -> None:
    hider = Hider("vm", ["root", "user"])
    hider.learn("MASTER_ADDR=10.1.2.3")
    for text in ("/proc/sys/vm/swappiness", "/opt/.cache", "cudnn 9.1.0.70", "0000:3b:00.0", "12.8.90.1", "127.0.0.1"):
        assert hider.text(text) == text
    assert hider.text("MASTER_ADDR=10.1.2.3 and 10.1.2.3") == "MASTER_ADDR=10.2.1.1 and 10.2.1.1"


def test_a_user_has_a_name_of_the_same_length_in_binary_files() -> None:
    hider = Hider("x", ["jdoe"])
    raw = b"\x7fELF/home/jdoe/env/lib\0" + struct.pack("<Q", 5)
    assert len(hider.raw(raw)) == len(raw)
    assert b"jdoe" not in hider.raw(raw)
    assert hider.raw(raw)[4:].startswith(hider.text("/home/jdoe/env/lib").encode())

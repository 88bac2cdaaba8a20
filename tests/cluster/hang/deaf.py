"""A file system that lists one file and never answers a read of it, as NFS whose server is gone: ``deaf.py FOLDER``.

Speaks the kernel's FUSE protocol (include/uapi/linux/fuse.h, version 7.31); needs root. It prints ``mounted``; when it
ends, the kernel lets go whoever waits.
"""

import ctypes
import os
import struct
import sys

_INIT, _LOOKUP, _FORGET, _GETATTR, _OPEN, _READ = 26, 1, 2, 3, 14, 15
_NOT_IMPLEMENTED = -38
_SIZE = 4096


def attributes(node: int) -> bytes:
    """The root folder, or the file."""
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, _SIZE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int) -> bytes | None:
    """What the kernel gets; None where it waits for ever."""
    if opcode == _INIT:
        return struct.pack("<4I2H2I2HI7I", 7, 31, 65536, 0, 8, 8, 65536, 1, 16, 0, 0, *([0] * 7))
    if opcode == _LOOKUP:
        return struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    if opcode == _GETATTR:
        return struct.pack("<Q2I", 3600, 0, 0) + attributes(node)
    if opcode == _OPEN:
        return struct.pack("<Q2I", 1, 1, 0)
    return None if opcode == _READ else b""


def main() -> None:
    """Mount, and answer."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"filer:/data", sys.argv[1].encode(), b"fuse.deaf", 0, options):
        raise SystemExit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 17)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        body = answer(opcode, node)
        if body is not None and opcode != _FORGET:
            error = _NOT_IMPLEMENTED if body == b"" else 0
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


if __name__ == "__main__":
    main()

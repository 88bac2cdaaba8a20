"""Measuring between two hosts over plain sockets: who reaches whom, how fast, with what losses. No GPU, no torch.

- `tcp`: how an attempt to connect ends, and how fast data passes over a connection
- `flow`: the asking side: `flow.measure` measures the link to a `server.Server` on another host
- `server`: the listening side
- `protocol`: their authenticated messages

All give figures and words, never whether they are good.
"""

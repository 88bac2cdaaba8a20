"""Measuring between two hosts over plain sockets: who reaches whom, how fast, with what losses. No GPU, no torch.

`tcp` says how a connection ends and how fast data passes. `flow.measure` asks a `server.Server` on the other host; both
speak by `lines`. All say figures and words, never whether they are good.
"""

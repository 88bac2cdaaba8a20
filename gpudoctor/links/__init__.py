"""Measuring between two hosts over plain sockets: who reaches whom, how fast, with what losses. No GPU, no torch.

`reach` says how a connection ends, `names` what a host name leads to, `interfaces` and `choice` which addresses there
are and which of them NCCL and Gloo take. `flow.measure` asks a `server.Server` on the other host. All say figures and
words, never whether they are good.
"""

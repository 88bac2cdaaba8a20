"""Whether the tests still guard: faults planted one at a time, each of which some test must notice.

``python -m tests.mutants`` plants every fault of ``mutants.toml`` in a copy of the checkout and runs the tests most
likely to notice it; ``--whole`` runs all of them where those did not. ``--only NAME`` takes one fault or one room,
``--jobs N`` works on several at a time, ``--at-least N`` fails where fewer are noticed. The checkout is never changed.

A fault is a text that stands in its file exactly once, and what replaces it: small, and such that a user would meet
it. ``caught_by`` is only a hint, the test that noticed it last, so that this one is run first.
"""

"""Who measures with whom, and who is to blame: pure functions over what pairs of hosts measured.

``rounds`` makes the pairs of each round, ``culprits`` names the suspects; the others are what these two are made of.
"""

"""Hosts on one network, with faults: network namespaces of the machine that runs the tests.

with Hosts(4) as hosts:
    with hosts[1].drop(29500):
        done = hosts[0].run(["python3", "-m", "gpudoctor", "check"])
"""

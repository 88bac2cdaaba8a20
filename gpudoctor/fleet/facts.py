"""The facts of a fleet: what pages of scope ``cluster`` read."""

from __future__ import annotations

from gpudoctor.model.catalog import column, fact

FACTS = (
    fact("fleet.hosts", "int", "hosts that were asked"),
    fact("fleet.answered", "int", "hosts whose answer could be read"),
    fact("fleet.silent", "list", "names of the hosts that gave no answer that could be read"),
    column("node.name", "text", "the host's name, as it was asked or as it calls itself"),
    column("node.switch", "text", "the leaf switch or rack it hangs on; absent where nobody told"),
    column("node.image", "text", "its operating system, as /etc/os-release prints it"),
    column("node.answered", "bool", "whether its answer could be read"),
    column("node.because", "text", "why there is no answer; absent where there is one"),
    column("node.verdict", "text", "sound, impaired, broken or unknown, by its own diagnosis"),
    column("node.errors", "list", "ids of its findings of severity error"),
    column("node.warnings", "list", "ids of its findings of severity warning"),
    column("node.gpus", "int", "how many GPUs it has"),
    column("node.gpu", "text", "their name; several are separated by commas"),
    column("outlier.fact", "text", "the fact that differs: driver.version; of a rate the kernel: matmul.bf16"),
    column("outlier.about", "text", "what the fact is, in words: driver"),
    column("outlier.value", "text", "its value on the few hosts"),
    column("outlier.usual", "text", "its value on most hosts of that kind; of a rate the median"),
    column("outlier.hosts", "list", "the few hosts"),
    column("outlier.count", "int", "how many they are"),
    column("outlier.of", "int", "how many hosts of that kind told theirs"),
    column("outlier.kind", "text", "the GPUs of the hosts among which it was compared; absent where all were"),
    column("outlier.matters", "bool", "whether jobs over hosts that differ in it fail or wait for each other"),
    column("outlier.share", "float", "of a rate: the share of the usual that the slowest of them reaches; else absent"),
    column("split.fact", "text", "a fact that has no usual value among the hosts: driver.version"),
    column("split.about", "text", "what the fact is, in words: driver"),
    column("split.values", "list", "its values, each with how many hosts have it: 570.124.06 (4 hosts)"),
    column("split.of", "int", "how many hosts told theirs"),
    column("split.matters", "bool", "whether jobs over hosts that differ in it fail or wait for each other"),
)

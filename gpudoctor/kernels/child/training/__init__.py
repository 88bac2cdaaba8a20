"""Training readiness: what a training step needs beyond a right matmul, each measured and checked."""

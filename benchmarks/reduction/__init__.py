"""Element-wise reductions against memcpy: python -m benchmarks.reduction."""

"""Benchmarks of altorch, each runnable from the repository's root: python -m benchmarks.<name> --help."""

# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks of altorch, each runnable from the repository's root: python -m benchmarks.<name> --help."""

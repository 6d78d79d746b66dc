# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of the others when one rank fails: `python -m tests.drill --help`, docs/reliability/drill.md."""

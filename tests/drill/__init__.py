"""What becomes of the others when one rank fails: `python -m tests.drill --help`, docs/reliability/drill.md."""

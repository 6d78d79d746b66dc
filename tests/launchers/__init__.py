# SPDX-License-Identifier: BSD-3-Clause
"""altorch under each launcher that this machine has: `python -m tests.launchers`."""

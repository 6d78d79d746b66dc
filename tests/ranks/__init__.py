# SPDX-License-Identifier: BSD-3-Clause
"""Starts processes for tests, the drill, endurance runs and benchmarks: ranks by `launch`, forks by `fork_server`."""

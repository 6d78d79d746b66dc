# SPDX-License-Identifier: BSD-3-Clause
"""Long runs: ranks that are killed, leave and come a thousand times; mixed operations for half an hour."""

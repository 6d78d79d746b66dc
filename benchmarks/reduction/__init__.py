# SPDX-License-Identifier: BSD-3-Clause
"""Element-wise reductions against memcpy: python -m benchmarks.reduction."""

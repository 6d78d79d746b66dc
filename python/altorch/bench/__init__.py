# SPDX-License-Identifier: BSD-3-Clause
"""What `altorch bench` and the suites of `benchmarks/` measure with.

process_group  the default group of a rank: how it starts and ends
cases          the operations: buffers, one call, a check of what it gave, bytes on the bus
contenders     process groups of several backends and routes, alive in the same processes
clocks         time on the host, on a device, on a device whose host is left out
figures        of many batches on many ranks
turns          contenders take turns, batch by batch
floors         a copy of as many bytes, and the links between host and GPUs
sweep          operations, types and sizes one after another
rows           what a row says, where it was measured, JSON lines
table          rows for people
aims           rows beside what they should reach
"""

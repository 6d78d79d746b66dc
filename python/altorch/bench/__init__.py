"""What `altorch bench` and the suites of `benchmarks/` measure with.

launcher    ranks as fresh processes
cases       the operations: buffers, one call, a check of what it gave, bytes on the bus
contenders  process groups of several backends and routes, alive in the same processes
clocks      time on the host, on a device, on a device whose host is left out
turns       contenders take turns, batch by batch
rows        what a row says, where it was measured, JSON lines
"""

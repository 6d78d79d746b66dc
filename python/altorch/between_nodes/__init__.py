# SPDX-License-Identifier: BSD-3-Clause
"""`altorch check --between-nodes`: latency, bandwidth and message rate between the nodes of a job.

schedule    nodes, and rounds of disjoint pairs
board       keeps the ranks in step over the rendezvous store
measure     the phases: all pairs at once, pairs alone, all ranks at once
links       what was measured, by direction
outliers    which node or link is slow beside the others
about       what a node says of itself: host, load, network
document    all of it as JSON; notes: what else is worth a look
tables      the same for people
job         what each rank does
"""

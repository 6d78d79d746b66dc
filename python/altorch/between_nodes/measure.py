# SPDX-License-Identifier: BSD-3-Clause
"""Measures between nodes. Each phase returns the rows that this rank measured: figures from one node to another.

together    one rank of each node, all pairs of a round at once
alone       one rank of each node, one pair after the other, with a plain TCP socket beside
all_ranks   all ranks of each node, all pairs of a round at once
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from altorch.bench import messages, tcp_floor
from altorch.bench.rows import Row
from altorch.between_nodes.board import Board
from altorch.between_nodes.schedule import Node, Pair, rounds

ROUNDS_OF_ALL_RANKS = 8


class Job(NamedTuple):
    rank: int
    nodes: Sequence[Node]
    board: Board
    seconds: float  # of one sample
    timeout: float
    addresses: Sequence[str]  # of each node, for TCP
    report: Callable[[str], None]  # takes what is measured now

    @property
    def node(self) -> int:
        return next(number for number, node in enumerate(self.nodes) if self.rank in node.ranks)

    @property
    def leads(self) -> bool:
        return self.rank == self.nodes[self.node].leader

    def other(self, pair: Pair) -> int:
        return pair[1] if pair[0] == self.node else pair[0]


def together(job: Job) -> list[Row]:
    rows = []
    schedule = rounds(len(job.nodes))
    for number, pairs in enumerate(schedule):
        job.report(f"all pairs at once, round {number + 1} of {len(schedule)}")
        for pair in pairs:
            if job.leads and job.node in pair:
                rows.append(_visit(job, pair, f"together/{number}", len(pairs)))
                job.board.advance()
    return rows


def alone(job: Job, pairs: Sequence[Pair], phase: str) -> list[Row]:
    rows = []
    for number, pair in enumerate(pairs):
        job.report(f"{phase}, pair {number + 1} of {len(pairs)}")
        takes_part = job.leads and job.node in pair
        if number and (takes_part or job.rank == 0):  # rank 0 follows, to report
            job.board.read(f"{phase}/{number - 1}")
        if takes_part:
            rows += [_visit(job, pair, f"{phase}/{number}", 1), *_tcp(job, pair, f"{phase}/{number}/tcp")]
            job.board.advance()
            if job.node == pair[0]:
                job.board.post(f"{phase}/{number}")
    return rows


def all_ranks(job: Job) -> list[Row]:
    """Each row is of two ranks, one of each node: the nodes have the sum of theirs."""
    rows = []
    schedule = rounds(len(job.nodes))[:ROUNDS_OF_ALL_RANKS]
    place = job.nodes[job.node].ranks.index(job.rank)
    for number, pairs in enumerate(schedule):
        job.report(f"all ranks at once, round {number + 1} of {len(schedule)}")
        ranks = {pair: min(len(job.nodes[node].ranks) for node in pair) for pair in pairs}
        for pair in pairs:
            if job.node in pair and place < ranks[pair]:
                peer = job.nodes[job.other(pair)].ranks[place]
                rows.append(_in_turns(job, pair, peer, f"all/{number}", sum(ranks.values())))
                job.board.advance()
    return rows


def _in_turns(job: Job, pair: Pair, peer: int, key: str, drivers: int) -> Row:
    first = job.node == pair[0]
    if not first:
        messages.serve(peer)
    row = _bandwidth(job, pair, peer, f"{key}/{first}", drivers)
    messages.stop(peer)
    if first:
        messages.serve(peer)
    return row


def _visit(job: Job, pair: Pair, key: str, drivers: int) -> Row:
    """All figures of a pair: the first node drives, then the second."""
    first, peer = job.node == pair[0], job.nodes[job.other(pair)].leader
    if not first:
        messages.serve(peer)
    row = messages.latency(peer, job.seconds / 4) if first else {}
    row["messages_per_second"] = messages.message_rate(peer, job.seconds / 2)
    row |= _bandwidth(job, pair, peer, f"{key}/{first}", drivers)
    messages.stop(peer)
    if first:
        messages.serve(peer)
    return row


def _bandwidth(job: Job, pair: Pair, peer: int, key: str, drivers: int) -> Row:
    rate = messages.bandwidth(peer, job.seconds, lambda: job.board.barrier(key, drivers))
    return {"from": job.node, "to": job.other(pair), "GBps": rate / 1e9}


def _tcp(job: Job, pair: Pair, key: str) -> list[Row]:
    """Latency and bandwidth of a plain socket; nothing once a socket failed: a firewall costs seconds each time."""
    first, other = job.node == pair[0], job.other(pair)
    here, there = job.addresses[job.node], job.addresses[other]
    # A loopback address belongs to the host of the store; other hosts cannot connect to it.
    same = tcp_floor.is_loopback(here) == tcp_floor.is_loopback(there)
    accepts = first if same else tcp_floor.is_loopback(there)
    try:
        if accepts:
            if job.board.has("tcp/failed"):
                job.board.post(key, 0)
                return []
            connection = tcp_floor.accept(here, lambda port: job.board.post(key, port))
        else:
            port = job.board.read(key)
            if not port:
                return []
            connection = tcp_floor.connect(there, port)
        with connection:
            row = tcp_floor.measure(connection, first, job.seconds / 2, job.timeout)
    except OSError as error:
        names = " and ".join(job.nodes[number].name for number in pair)
        job.board.post("tcp/failed", f"{names}: {error}")
        if accepts:
            job.board.post(key, 0)  # the other node may still wait for a port
        return []
    received = {"from": other, "to": job.node, "tcp_GBps": row.pop("received") / 1e9}
    return [received, {"from": job.node, "to": other, **row}] if first else [received]

# SPDX-License-Identifier: BSD-3-Clause
"""What each rank does: it finds its node, measures with the others, and rank 0 reports."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from altorch.bench.rows import Row
from altorch.between_nodes import about, document, links, measure, outliers, schedule, tables
from altorch.between_nodes.board import LOOK_AROUND, Board, Stopped
from altorch.cli._output import Progress, print_json

PAIRS_ALONE = 32  # all pairs of 8 nodes
SUSPECTS, RETRIES = 16, 2  # pairs that are measured again before they are called slow, and how often
SHORTEST_SAMPLE, LONGEST_SAMPLE = 0.004, 0.1  # seconds
ONE_NODE = 2  # exit status


def run(arguments: argparse.Namespace, launcher: Any) -> int:
    import torch.distributed as dist

    began = time.perf_counter()
    init = "mpi://" if launcher.starts_mpi and "MASTER_ADDR" not in os.environ else None
    dist.init_process_group(arguments.backend, init_method=init, timeout=timedelta(seconds=arguments.timeout))
    init_seconds = time.perf_counter() - began
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("altorch-between-nodes", dist.distributed_c10d._get_default_store())
    board = Board(store, arguments.timeout)
    try:
        status = _check(arguments, launcher, board, init_seconds)
        board.barrier("done", size)
        board.leave(rank, size)
    except Exception as error:
        return _failed(board, rank, error)
    dist.destroy_process_group()
    return status


def _failed(board: Board, rank: int, error: Exception) -> int:
    """The rank that failed says so; the others end without a word."""
    if not isinstance(error, Stopped):
        print(f"altorch check: rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    with suppress(Exception):  # the store is gone if the rank that hosts it is
        board.fail()
    if rank == 0:
        time.sleep(2 * LOOK_AROUND)  # it may host the store: others shall see why they end
    return 1


def _check(arguments: argparse.Namespace, launcher: Any, board: Board, init_seconds: float) -> int:
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    began = time.perf_counter()
    nodes = _find_nodes(board, rank, size)
    if len(nodes) < 2:
        if rank == 0:
            print(f"altorch check: {_one_node(nodes[0])}", file=sys.stderr)
        return ONE_NODE
    described = _describe(board, rank, nodes, about.carrier(arguments.backend))
    with Progress(_steps(len(nodes)), quiet=rank != 0) as progress:
        job = measure.Job(
            rank,
            nodes,
            board,
            sample_seconds(len(nodes), arguments.seconds),
            arguments.timeout,
            [row["address"] for row in described],
            progress.at,
        )
        found, measured = _measure(job)
    if rank == 0:
        tcp_failure = board.read("tcp/failed") if board.has("tcp/failed") else ""
        run = {
            "backend": arguments.backend,
            "ranks": size,
            "launcher": launcher.name,
            "init_seconds": init_seconds,
            "seconds": time.perf_counter() - began,
            "sample_seconds": job.seconds,
        }
        whole = document.make(run, nodes, described, measured, found, tcp_failure)
        print_json(whole) if arguments.json else tables.show(whole)
        board.post("status", int(bool(found)))
    return int(board.read("status"))


def _find_nodes(board: Board, rank: int, size: int) -> list[schedule.Node]:
    board.post(f"place/{rank}", about.place())
    if rank == 0:
        board.post("places", [board.read(f"place/{each}") for each in range(size)])
    return schedule.of_ranks([(identity, name) for identity, name in board.read("places")])


def _one_node(node: schedule.Node) -> str:
    return (
        f"--between-nodes compares nodes, and all ranks ({len(node.ranks)}) are on one, {node.name}. Start the job on "
        "several: torchrun --nnodes 2 ... -m altorch check --between-nodes. Different values of ALTORCH_NODE cut one "
        "machine into nodes, to try it."
    )


def _describe(
    board: Board, rank: int, nodes: Sequence[schedule.Node], carried_by: str
) -> list[dict[str, Any]]:
    for number, node in enumerate(nodes):
        if rank == node.leader:
            board.post(f"about/{number}", about.node(carried_by))
    if rank == 0:
        board.post("about", [board.read(f"about/{number}") for number in range(len(nodes))])
    rows: list[dict[str, Any]] = board.read("about")
    return rows


def sample_seconds(nodes: int, seconds: float) -> float:
    """Of one sample, so that all take about `seconds`. The factors count samples of a round or a pair."""
    rounds, pairs = len(schedule.rounds(nodes)), len(schedule.pairs_alone(nodes, [], PAIRS_ALONE))
    samples = 4 * rounds + 6 * pairs + 3 * min(rounds, measure.ROUNDS_OF_ALL_RANKS)
    return min(LONGEST_SAMPLE, max(SHORTEST_SAMPLE, seconds / samples))


def _steps(nodes: int) -> int:
    rounds, pairs = len(schedule.rounds(nodes)), len(schedule.pairs_alone(nodes, [], PAIRS_ALONE))
    return rounds + pairs + min(rounds, measure.ROUNDS_OF_ALL_RANKS)


def _measure(job: measure.Job) -> tuple[list[outliers.Finding], links.Links]:
    """Complete on rank 0 alone."""
    found: list[outliers.Finding] = []
    measured: links.Links = {}
    links.add_together(measured, _gather(job, "together", measure.together(job)))
    suspects = outliers.worst_pairs(measured)
    pairs = _agree(job, "pairs", schedule.pairs_alone(len(job.nodes), suspects, PAIRS_ALONE))
    links.add_alone(measured, _gather(job, "alone", measure.alone(job, pairs, "pairs alone")))
    for again in range(1, RETRIES + 1):
        pairs = _agree(job, f"suspects/{again}", outliers.pairs_of(outliers.find(measured))[:SUSPECTS])
        rows = measure.alone(job, pairs, f"slow pairs again ({again})")
        links.add_alone(measured, _gather(job, f"again/{again}", rows))
    _agree(job, "measured", [])  # until here other ranks than leaders wait, outside of any message
    if any(len(node.ranks) > 1 for node in job.nodes):
        links.add_all_ranks(measured, _gather(job, "all", measure.all_ranks(job), leaders=False))
    if job.rank == 0:
        found = outliers.find(measured)
    return found, measured


def _gather(job: measure.Job, phase: str, rows: list[Row], leaders: bool = True) -> list[Row]:
    """The rows of all leaders, or of all ranks, on rank 0; the others return none."""
    if job.leads or not leaders:
        job.board.post(f"rows/{phase}/{job.rank}", rows)
    if job.rank != 0:
        return []
    ranks = [rank for node in job.nodes for rank in (node.ranks[:1] if leaders else node.ranks)]
    return [row for rank in ranks for row in job.board.read(f"rows/{phase}/{rank}")]


def _agree(job: measure.Job, key: str, pairs: list[schedule.Pair]) -> list[schedule.Pair]:
    """Rank 0 chooses."""
    if job.rank == 0:
        job.board.post(key, pairs)
    return [(a, b) for a, b in job.board.read(key)]

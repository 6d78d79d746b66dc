# SPDX-License-Identifier: BSD-3-Clause
"""`altorch explain all_reduce --bytes 4M --ranks 6`: the route that a call takes, why, and its rounds."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from altorch.cli import _fabric
from altorch.cli._output import human_bytes, parse_bytes, print_json, print_pairs, print_table

SUMMARY = "Which route and algorithm a call takes, why, what its rounds are and what the alternatives cost."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "operation", help="all_reduce, broadcast, ... (see: altorch algorithms), send, or window"
    )
    parser.add_argument(
        "--bytes",
        default="4M",
        metavar="SIZE",
        help="size of the tensor, or of one block: 4096, 64K, 4M, 1G (default: %(default)s)",
    )
    parser.add_argument("--ranks", type=int, default=2, help="ranks of the group (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=0, help="whose rounds to show (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="float32", help="element type, torch's name (default: %(default)s)"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="where the tensors are (default: %(default)s)",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        help="nodes that the ranks are on (default: %(default)s)",
    )
    parser.add_argument("--shared-gpus", action="store_true", help="several ranks use one GPU; --device cuda")
    parser.add_argument("--nvlink", action="store_true", help="NVLink links all GPUs; --device cuda")
    parser.add_argument(
        "--mpi",
        action=argparse.BooleanOptionalAction,
        help="MPI carries the group's messages (default: on several nodes, where there is an MPI library)",
    )
    parser.add_argument("--algorithm", help="explain this one instead of the chosen one")


def run(arguments: argparse.Namespace) -> int:
    from altorch import _tuned
    from altorch._extension import extension

    try:
        _tuned.apply()
        size = parse_bytes(arguments.bytes)
        if arguments.ranks < 1 or not 0 <= arguments.rank < arguments.ranks:
            raise ValueError(
                f"--ranks must be at least 1 and --rank between 0 and --ranks - 1; "
                f"they are {arguments.ranks} and {arguments.rank}."
            )
        if arguments.nodes < 1:
            raise ValueError(f"--nodes must be at least 1; it is {arguments.nodes}.")
        if arguments.algorithm and (arguments.device == "cuda" or arguments.operation == "window"):
            raise ValueError(
                "--algorithm is of collectives on CPU tensors; ALTORCH_ROUTE names what carries others"
            )
        found = extension().explain(
            arguments.operation,
            arguments.dtype,
            size,
            arguments.ranks,
            rank=arguments.rank,
            algorithm=arguments.algorithm,
            on_gpus=arguments.device == "cuda",
            nodes=arguments.nodes,
            share_gpus=arguments.shared_gpus,
            linked=arguments.nvlink,
            over_mpi=_over_mpi(arguments),
        )
    except (ValueError, RuntimeError) as error:
        print(f"altorch explain: {error}", file=sys.stderr)
        return 2
    if arguments.nodes > 1 and arguments.device == "cpu":
        found["fabric"] = _fabric.of_this_process()
        del found["fabric"]["probe"]
    if arguments.json:
        print_json(found)
        return 0

    if arguments.operation == "window":
        where = f"{arguments.ranks} ranks, {arguments.device}"
        print_pairs(f"window among {where}", {"route": found["route"], "why": found["reason"]})
        rows = [[name, reason] for name, reason in found["routes_not_taken"].items()]
        print_table("Other routes (ALTORCH_ROUTE=window=... picks one)", ["route", "why not"], rows)
        return 0
    if arguments.device == "cuda":
        _print_on_gpus(arguments, size, found)
        return 0
    what = f"{arguments.operation} of {human_bytes(size)} {arguments.dtype} among {arguments.ranks} ranks"
    pairs = {"route": found["route"], "algorithm": chosen(found, "algorithm"), "why": found["reason"]}
    if found["cost_seconds"]:  # native collectives have no model
        pairs["cost"] = f"{found['cost_seconds'] * 1e6:.1f} us by the cost model"
    if "fabric" in found:
        pairs["between nodes"] = _fabric.summary(found["fabric"])
    print_pairs(what, pairs)
    _fabric.print_warnings(found.get("fabric", {}).get("warnings", []))
    for name, reason in found["routes_not_taken"].items():
        print(f"{name} is passed over: {reason}\n")
    if found["rounds_text"]:
        print(f"Rounds of rank {arguments.rank}\n{found['rounds_text']}")
    if found["alternatives"]:
        rows = [_alternative(row) for row in found["alternatives"]]
        print_table(
            "Alternatives (ALTORCH_ROUTE picks another)",
            ["algorithm", "cost [us]", "chosen among messages"],
            rows,
            right=["cost [us]"],
        )
    return 0


def _print_on_gpus(arguments: argparse.Namespace, size: int, found: dict[str, Any]) -> None:
    what = (
        f"{arguments.operation} of {human_bytes(size)} {arguments.dtype} among {arguments.ranks} GPUs' ranks"
    )
    print_pairs(
        what, {"route": chosen(found, "route"), "why": found["reason"], "steps": found["rounds_text"].strip()}
    )
    rows = [[name, reason] for name, reason in found["routes_not_taken"].items()]
    choice = "" if found["route"] == "alone" else " (ALTORCH_ROUTE=cuda=... picks one)"
    print_table("Other routes and protocols" + choice, ["route", "why not"], rows)


def _over_mpi(arguments: argparse.Namespace) -> bool:
    if arguments.mpi is not None:
        return bool(arguments.mpi)
    if arguments.nodes == 1 or arguments.operation not in ("window", "send", "recv"):
        return False
    from altorch import _mpi

    return _mpi.find().path is not None


def chosen(found: dict[str, Any], kind: str) -> str:
    """Route or algorithm as ALTORCH_ROUTE names it: `nccl`, or `peer/ll128` where it has several protocols."""
    return f"{found[kind]}/{found['protocol']}" if found["protocol"] else str(found[kind])


def _alternative(row: dict[str, Any]) -> list[str]:
    return [row["name"], f"{row['cost_seconds'] * 1e6:.1f}", row["chosen_for"]]

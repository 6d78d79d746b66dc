# SPDX-License-Identifier: BSD-3-Clause
"""`altorch routes --device cuda --ranks 4`: which route carries which sizes; `--markdown` writes docs/routes.md."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from altorch.cli._output import human_bytes, print_json, print_table

SUMMARY = "Which route carries which operations and sizes, and why."

OPERATIONS = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "scan",
    "exscan",
)
SMALLEST, LARGEST = 8, 1 << 30  # bytes


class World(NamedTuple):
    """The ranks of a group, and what they share."""

    device: str = "cpu"
    ranks: int = 2
    nodes: int = 1
    nvlink: bool = False
    shared_gpus: bool = False
    messages_only: bool = False  # on one node, without shared memory

    def __str__(self) -> str:
        where = f"{self.ranks} ranks" + (f" on {self.nodes} nodes" if self.nodes > 1 else "")
        if self.device == "cpu":
            return where + (", messages only" if self.messages_only else "")
        if self.shared_gpus:
            return f"{where}, one GPU for all"
        return f"{where}, a GPU each, " + ("linked by NVLink" if self.nvlink else "linked by PCIe")


# What docs/routes.md shows.
PAGE = (
    World(ranks=2),
    World(ranks=8, nodes=2),
    World(ranks=2, messages_only=True),
    World(ranks=8, messages_only=True),
    World(ranks=16, messages_only=True),
    World("cuda", 2, nvlink=True),
    World("cuda", 4, nvlink=True),
    World("cuda", 8, nvlink=True),
    World("cuda", 2),
    World("cuda", 4),
    World("cuda", 2, shared_gpus=True),
    World("cuda", 4, nodes=2, nvlink=True),
)

_PAGE_BEGINS = f"""# Routes by size

Which route carries a call, for common groups. Sizes are those of the tensor, or of one block where an operation has a
block for each rank; the element type is float32. `altorch routes` prints the same for other groups, and `altorch
explain` says all about one call:

    altorch routes --device cuda --ranks 3 --nvlink
    altorch explain all_reduce --device cuda --ranks 3 --nvlink --bytes 4M

[streams.md](streams.md#routes) describes the routes for CUDA tensors, [algorithms.md](algorithms.md) the algorithms for
CPU tensors. `ALTORCH_ROUTE` overrides the choice: `all_reduce:0-1m=ring`, `cuda=host_staged`, or a protocol of a route,
`all_reduce:0-64k=peer/ll128`, for the calls that it can carry. `all_reduce@16/2=ring` is for groups of 16 ranks on 2
nodes ([tuning.md](tuning.md)). The tables end at
{human_bytes(LARGEST)}.

<!-- Made by `altorch routes --markdown` from csrc/select/ and csrc/gpu/*/protocols.cpp: change it there. -->
"""


class Range(NamedTuple):
    """Sizes that one route carries in one way, up to `last` bytes; None: there is no limit."""

    last: int | None
    route: str
    how: str
    reason: str  # of the smallest size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="where the tensors are (%(default)s)"
    )
    parser.add_argument("--ranks", type=int, default=2, help="ranks of the group (default: %(default)s)")
    parser.add_argument(
        "--nodes", type=int, default=1, help="nodes that the ranks are on (default: %(default)s)"
    )
    parser.add_argument("--shared-gpus", action="store_true", help="several ranks use one GPU; --device cuda")
    parser.add_argument("--nvlink", action="store_true", help="NVLink links all GPUs; --device cuda")
    parser.add_argument("--messages-only", action="store_true", help="without shared memory; --device cpu")
    parser.add_argument("--markdown", action="store_true", help="print the page docs/routes.md")


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(_PAGE_BEGINS + "".join(_section(world) for world in PAGE) + _chosen_once(), end="")
        return 0
    if arguments.ranks < 1 or arguments.nodes < 1:
        print("altorch routes: --ranks and --nodes must be at least 1", file=sys.stderr)
        return 2
    from altorch import _tuned

    _tuned.apply()
    world = World(
        arguments.device,
        arguments.ranks,
        arguments.nodes,
        arguments.nvlink,
        arguments.shared_gpus,
        arguments.messages_only,
    )
    found = ranges_of(world)
    if arguments.json:
        print_json({name: [each._asdict() for each in ranges] for name, ranges in found.items()})
        return 0
    rows = [row for names, ranges in _merged(found) for row in _rows(names, ranges)]
    print_table(f"Routes: {world}", ["operation", "sizes", "route", "how", "why"], rows)
    return 0


def ranges_of(world: World) -> dict[str, list[Range]]:
    """By operation: the ranges of sizes, the smallest first."""
    with _shared_memory(not world.messages_only):
        return {name: list(_ranges(world, name)) for name in OPERATIONS}


def _ranges(world: World, operation: str) -> Iterator[Range]:
    sizes = [SMALLEST << power for power in range((LARGEST // SMALLEST).bit_length())]
    begin = _ask(world, operation, SMALLEST)
    for size, following in itertools.pairwise(sizes):
        found, low = _ask(world, operation, following), size
        while found[:2] != begin[:2]:
            high = following
            while high - low > SMALLEST:
                middle = (low + high) // 2 // SMALLEST * SMALLEST
                same = _ask(world, operation, middle)[:2] == begin[:2]
                low, high = (middle, high) if same else (low, middle)
            yield Range(low, *begin)
            begin, low = _ask(world, operation, high), high
    yield Range(None, *begin)


def _ask(world: World, operation: str, size: int) -> tuple[str, str, str]:
    from altorch._extension import extension
    from altorch.cli.explain import chosen

    found: dict[str, Any] = extension().explain(
        operation,
        "float32",
        size,
        world.ranks,
        on_gpus=world.device == "cuda",
        nodes=world.nodes,
        share_gpus=world.shared_gpus,
        linked=world.nvlink,
    )
    if world.device == "cuda":
        how = found["rounds_text"].split(":")[0].split("\n")[0]
        # How many pieces differs with every size.
        how = re.sub(r"^\d+ piece\(s\) of up to \S+ \S+", "in pieces", how)
        return chosen(found, "route"), how, found["reason"]
    protocol = f"/{found['protocol']}" if found["protocol"] else ""
    return found["algorithm"] + protocol, found["route"], found["reason"]


@contextmanager
def _shared_memory(wanted: bool) -> Iterator[None]:
    """Lets altorch explain groups without shared memory."""
    before = os.environ.get("ALTORCH_SHM_BYTES")
    if not wanted:
        os.environ["ALTORCH_SHM_BYTES"] = "0"
    try:
        yield
    finally:
        if not wanted:
            os.environ.pop("ALTORCH_SHM_BYTES")
            if before is not None:
                os.environ["ALTORCH_SHM_BYTES"] = before


def _merged(found: dict[str, list[Range]]) -> list[tuple[str, list[Range]]]:
    """Operations that go the same ways, together."""
    groups: dict[tuple[Range, ...], list[str]] = {}
    for name, ranges in found.items():
        groups.setdefault(tuple(ranges), []).append(name)
    return [
        ("all" if len(names) == len(OPERATIONS) else ", ".join(names), list(ranges))
        for ranges, names in groups.items()
    ]


def _rows(names: str, ranges: list[Range]) -> Iterator[list[str]]:
    for place, each in enumerate(ranges):
        yield ["" if place else names, _sizes(each.last, len(ranges)), each.route, each.how, each.reason]


def _sizes(last: int | None, ranges: int) -> str:
    if last is None:
        return "larger" if ranges > 1 else "all"
    return (
        f"below {human_bytes(last + SMALLEST)}"
        if (last + SMALLEST) % 1024 == 0
        else f"up to {human_bytes(last)}"
    )


def _section(world: World) -> str:
    title = ("CUDA tensors, " if world.device == "cuda" else "CPU tensors, ") + str(world)
    lines = [f"\n## {title}\n", "| operation | sizes | route | how | why |", "|---|---|---|---|---|"]
    for names, ranges in _merged(ranges_of(world)):
        for names_shown, sizes, route, how, reason in _rows(names, ranges):
            lines.append(f"| {names_shown} | {sizes} | `{route}` | {how} | {reason} |")
    return "\n".join(lines) + "\n"


# What is chosen when a window is opened, or a group is made.
_GROUPS: dict[str, dict[str, Any]] = {
    "CPU, one node": {},
    "CPU, two nodes, MPI": {"nodes": 2, "over_mpi": True},
    "CPU, two nodes, no MPI": {"nodes": 2},
    "CUDA, one node": {"on_gpus": True},
    "CUDA, two nodes": {"on_gpus": True, "nodes": 2},
}


def _chosen_once() -> str:
    text = ""
    for title, operation in (("Windows", "window"), ("Messages between CPU tensors", "send")):
        lines = [f"\n## {title}\n", "| memory | by | why | passed over |", "|---|---|---|---|"]
        for memory, asked in _GROUPS.items():
            if operation == "send" and "on_gpus" in asked:
                continue
            lines.append(f"| {memory} | {_once(operation, asked)} |")
        text += "\n".join(lines) + "\n"
    return text


def _once(operation: str, asked: dict[str, Any]) -> str:
    from altorch._extension import extension

    found: dict[str, Any] = extension().explain(operation, "float32", 4, 2, **asked)
    others = "; ".join(f"`{name}`: {reason}" for name, reason in found["routes_not_taken"].items())
    return f"`{found['protocol'] or found['route']}` | {found['reason']} | {others}"

# SPDX-License-Identifier: BSD-3-Clause
"""Runs a notebook in a real kernel: a group of one rank in the kernel, then ranks that a cell starts."""

from __future__ import annotations

import sys

KERNEL = """
import torch.distributed as dist
from tests.launchers import checks

dist.init_process_group("al", store=dist.HashStore(), rank=0, world_size=1)
print(checks.check())
dist.destroy_process_group()
"""
# Forked, as accelerate's notebook_launcher does it: a function of a cell is in no module.
FORKED = """
import os

import torch.multiprocessing as mp
from tests.ranks.ports import free_port

def train(rank, ranks, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("al")
    checks.report(checks.check())
    dist.destroy_process_group()

mp.start_processes(train, args=(2, free_port()), nprocs=2, start_method="fork")
"""


def main() -> int:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (KERNEL, FORKED)])
    nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3").execute()
    kernel, forked = ("".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells)
    sys.stderr.write(f"the kernel itself: {kernel}")
    sys.stdout.write(forked)
    return 0 if "'size': 1" in kernel else 1


if __name__ == "__main__":
    sys.exit(main())

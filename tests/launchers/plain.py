# SPDX-License-Identifier: BSD-3-Clause
"""Starts a command once per rank, with variables: what a program does that starts its ranks by itself.

    python -m tests.launchers.plain 2 RANK={rank} WORLD_SIZE={size} MASTER_PORT={port} ... -- python train.py

{rank}, {size} and a free {port} are filled in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.ranks.ports import free_port


def main() -> int:
    end = sys.argv.index("--")
    ranks, variables, command = int(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1 :]
    port = free_port()
    processes = []
    for rank in range(ranks):
        told = dict(each.format(rank=rank, size=ranks, port=port).split("=", 1) for each in variables)
        processes.append(subprocess.Popen(command, env={**os.environ, **told}))
    while processes:
        time.sleep(0.05)
        codes = [process.poll() for process in processes]
        if any(codes):  # the others would wait for the rank that failed
            for process in processes:
                process.terminate()
            return 1
        processes = [process for process, code in zip(processes, codes, strict=True) if code is None]
    return 0


if __name__ == "__main__":
    sys.exit(main())

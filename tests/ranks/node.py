# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of one node, forked there: `python node.py PROGRAM FOLDER FIRST COUNT` ("module:function", its folder).

WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, which is that of the ranks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.ranks.fork_server import ForkServer, die_with_parent


def main(program: str, folder: str, first: int, count: int) -> int:
    die_with_parent()
    sys.path.append(folder)
    env = dict(os.environ)
    with ForkServer(env, preload=[program.partition(":")[0]]) as server:
        local = [{"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)} for rank in range(count)]
        ranks = [
            server.start(program, env | {"RANK": str(first + rank)} | variables)
            for rank, variables in enumerate(local)
        ]
        return max(abs(rank.wait()) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

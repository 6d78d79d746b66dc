# SPDX-License-Identifier: BSD-3-Clause
"""Two torchrun agents on two virtual nodes. A worker of node "b", or node "b"'s agent, is killed once.

    python -m tests.launchers.agents worker /a/flag/that/is/not/there

Ends with 0 when all workers have ended well after that. An agent that was killed is started again, as a cluster's
scheduler does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.ranks.ports import free_port


def main() -> int:
    whom, flag = sys.argv[1], Path(sys.argv[2])
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"),
        *("--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"),
        *("--rdzv-id", "launchers", "--monitor-interval", "0.1"),
        *("--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60"),
        *("-m", "tests.launchers.checks", "--die-once", str(flag), whom),
    ]

    def start(node: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env={**os.environ, "ALTORCH_NODE": node})

    agents = {"a": start("a")}
    time.sleep(1)  # the first agent there keeps the store, so that it is not lost with node "b"
    agents["b"] = start("b")
    started_again = 0
    while any(agent.poll() is None for agent in agents.values()):
        time.sleep(0.1)
        if agents["b"].poll() == -signal.SIGKILL and started_again == 0:
            started_again += 1
            agents["b"] = start("b")
    codes = {node: agent.returncode for node, agent in agents.items()}
    print(f"agents ended with {codes}, {started_again} started again", file=sys.stderr)
    return 0 if not any(codes.values()) and flag.exists() else 1


if __name__ == "__main__":
    sys.exit(main())

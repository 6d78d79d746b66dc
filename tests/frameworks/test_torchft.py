# SPDX-License-Identifier: BSD-3-Clause
"""torchft makes a process group for every set of replicas that are alive: altorch.make_backend() gives its backend."""

from __future__ import annotations

import pytest

pytest.importorskip("torchft")

RECONFIGURE = """
import json, os, torch, torch.distributed as dist
from datetime import timedelta
import altorch
from torchft.process_group import ProcessGroupGloo, ProcessGroupWrapper, ReconfigureOptions

class ProcessGroupAl(ProcessGroupWrapper):
    def _create_pg(self, store, rank, world_size):
        backend = altorch.make_backend(store, rank, world_size, timeout=self._timeout, name="replicas")
        group = dist.ProcessGroup(store, rank, world_size)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(kind)
        group._register_backend(torch.device("cpu"), kind, backend)
        return group
    def getBackendName(self):
        return "torchft-al"

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)
make = {"al": ProcessGroupAl, "gloo": ProcessGroupGloo}[os.environ["BACKEND"]]
group = make(timeout=timedelta(seconds=30))
sums = []
for quorum, alive in enumerate(([0, 1, 2], [0, 1], [0, 1, 2])):
    if rank in alive:
        store.set(f"handle{quorum}/{rank}", group.get_reconfigure_handle())
        options = ReconfigureOptions()
        options.uuid = quorum
        options.handles = [store.get(f"handle{quorum}/{each}").decode() for each in alive]
        group.reconfigure(options).wait()
        for count in (1, 1000, 100_000):
            x = torch.full((count,), float(rank + 1))
            group.allreduce([x], dist.ReduceOp.SUM).wait()
            sums.append(x.sum().item())
        parts = [[torch.empty(2) for _ in alive]]
        group.allgather(parts, [torch.full((2,), float(rank))], dist.distributed_c10d.AllgatherOptions()).wait()
        sums.append([part[0].item() for part in parts[0]])
    store.set(f"quorum{quorum}/{rank}", "done")
    store.wait([f"quorum{quorum}/{each}" for each in range(size)])
group.shutdown()
store.set(f"left{rank}", "1")
if rank == 0:
    store.wait([f"left{each}" for each in range(size)])
    print()
    print(json.dumps({"sums": sums}))
"""


def test_replicas_come_and_go_as_over_gloo(ranks):
    assert ranks(RECONFIGURE, 3, BACKEND="al") == ranks(RECONFIGURE, 3, BACKEND="gloo")

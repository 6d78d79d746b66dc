# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch Geometric leaves the process group to the program: a graph network, each rank with its part of the graphs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric")

TRAIN = """
import torch, torch.distributed as dist, torch_geometric as pyg
from program import report, start, time_steps, total
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
rank, size = start()
pyg.seed_everything(7)
data = FakeDataset(num_graphs=32, avg_num_nodes=20, num_channels=16, num_classes=4)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 32), GCNConv(32, 4)
    def forward(self, batch):
        x = self.first(batch.x, batch.edge_index).relu()
        return global_mean_pool(self.second(x, batch.edge_index), batch.batch)

model = DistributedDataParallel(Net())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
sampler = DistributedSampler(data, seed=3)
loader = DataLoader(data, batch_size=4, sampler=sampler)

def step(batch):
    loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        loss = step(batch)
with torch.no_grad():  # each rank counts what it has, the sum is of all
    right = sum((model.module(batch).argmax(-1) == batch.y).sum() for batch in loader)
dist.all_reduce(right)
dist.all_reduce(loss)
report(right=right.item(), loss=loss.item(), weights=total(model.parameters()))
time_steps(lambda: step(batch))
dist.destroy_process_group()
"""


def test_graphs_are_learned_as_over_gloo(compare):
    compare(TRAIN, name="PyTorch Geometric", rel=1e-5)

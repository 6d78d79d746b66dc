# SPDX-License-Identifier: BSD-3-Clause
"""TorchX starts torchrun in the folder of the caller (local_cwd): the program names its backend itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torchx")

LAUNCH = '''
import os, pathlib, sys
from torchx.runner import get_runner
os.environ["REPORT"] = os.path.abspath("figures.json")
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    del os.environ[name]
pathlib.Path("train.py").write_text("""
import torch, torch.distributed as dist
from program import report, start, time_steps, total
from torch import nn
rank, size = start()
torch.manual_seed(7)
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(number=0):
    g = torch.Generator().manual_seed(10 * number + rank)
    nn.functional.mse_loss(model(torch.randn(8, 16, generator=g)), torch.randn(8, 4, generator=g)).backward()
    optimizer.step()
    optimizer.zero_grad()

for each in range(5):
    step(each)
report(size=size, weights=total(model.parameters()))
time_steps(step)
dist.destroy_process_group()
""")
torchrun = pathlib.Path("bin/torchrun")  # of the environment that has torchx
torchrun.parent.mkdir()
torchrun.write_text(f'#!/bin/sh\\nexec {sys.executable} -m torch.distributed.run "$@"\\n')
torchrun.chmod(0o755)
os.environ["PATH"] = f"{torchrun.parent.resolve()}:{os.environ['PATH']}"
with get_runner() as runner:
    job = runner.run_component("dist.ddp", ["-j", "1x2", "--script", "train.py"], "local_cwd",
                               cfg={"log_dir": os.path.abspath("logs")})
    status = runner.wait(job, wait_interval=0.2)
if str(status.state) != "SUCCEEDED":
    for log in pathlib.Path("logs").rglob("std*.log"):
        print(log, log.read_text()[-2000:])
    raise SystemExit(f"the job ended with {status}")
print()
print(pathlib.Path(os.environ["REPORT"]).read_text())
'''


def test_a_job_computes_what_it_does_over_gloo(compare):
    compare(LAUNCH, 1, name="TorchX, local_cwd", workers=2)

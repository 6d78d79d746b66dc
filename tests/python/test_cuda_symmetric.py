# SPDX-License-Identifier: BSD-3-Clause
"""torch's symmetric memory over groups of backend "al": torch's own kernels and copies, which want a group for its
store, its ranks and its barrier only. Marked gpu: skipped where there is none, and where ranks would share one."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks

pytestmark = pytest.mark.gpu
symmetric = pytest.importorskip("torch.distributed._symmetric_memory")
OPERATORS = ("one_shot_all_reduce", "two_shot_all_reduce_")


@pytest.fixture(autouse=True)
def _a_gpu_for_each():
    if torch.cuda.device_count() < 2:
        pytest.skip(f"symmetric memory needs a GPU for each rank, {torch.cuda.device_count()} are visible")


def device(world):
    torch.cuda.set_device(world.rank)
    return torch.device("cuda", world.rank)


def made(world, group, *shape, dtype=torch.float32):
    """A tensor in symmetric memory, and the handle by which the ranks know each other's."""
    tensor = symmetric.empty(*shape, dtype=dtype, device=device(world))
    # torch 2.11 clears the signals without a wait: on a busy GPU that may come after a peer's first
    # signal.
    torch.cuda.synchronize()
    return tensor, symmetric.rendezvous(tensor, group.group_name)


def groups():
    return dist.group.WORLD, dist.new_group()


@on_ranks(2)
def test_buffers_of_the_others(world):
    for group in groups():
        tensor, handle = made(world, group, 1000)
        tensor.fill_(world.rank + 1.0)
        handle.barrier(channel=0)
        theirs = handle.get_buffer(1 - world.rank, (1000,), torch.float32)
        assert theirs.eq(2.0 - world.rank).all()
        assert (handle.rank, handle.world_size) == (world.rank, 2)
        handle.barrier(channel=0)


@on_ranks(2)
def test_signals(world):
    tensor, handle = made(world, dist.group.WORLD, 1000)
    tensor.zero_()
    handle.barrier(channel=0)
    for turn in range(1, 20):
        if world.rank == 0:
            handle.get_buffer(1, (1000,), torch.float32).fill_(float(turn))
            handle.put_signal(dst_rank=1, channel=0)
            handle.wait_signal(src_rank=1, channel=1)
        else:
            handle.wait_signal(src_rank=0, channel=0)
            assert tensor.eq(float(turn)).all(), (turn, tensor[:3])
            handle.put_signal(dst_rank=0, channel=1)
    torch.cuda.synchronize()


@on_ranks(2)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_torchs_all_reduce_among_ours(world, name, dtype):
    group = dist.group.WORLD
    tensor, _ = made(world, group, 4096, dtype=dtype)
    for turn in range(10):
        tensor.fill_(float(turn + world.rank))
        found = getattr(torch.ops.symm_mem, name)(tensor, "sum", group.group_name)
        ours = torch.full((4096,), float(turn + world.rank), dtype=dtype, device=tensor.device)
        dist.all_reduce(ours)
        assert found.equal(ours), (turn, found[:3], ours[:3])
    torch.cuda.synchronize()
    dist.barrier()


@on_ranks(2)
def test_products_that_move_what_they_multiply(world):
    """What torch's async tensor parallelism is made of: all_gather + matmul, matmul + reduce_scatter."""
    here, group = device(world), dist.group.WORLD
    symmetric.enable_symm_mem_for_group(group.group_name)
    torch.manual_seed(7)
    whole = torch.randn(256, 128, device=here)
    right = torch.randn(128, 64, device=here)
    gathered, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
        whole.chunk(2)[world.rank].contiguous(), [right], gather_dim=0, group_name=group.group_name
    )
    assert gathered.equal(whole)
    torch.testing.assert_close(product, whole @ right, rtol=1e-3, atol=1e-3)
    mine = whole * (world.rank + 1)
    scattered = torch.ops.symm_mem.fused_matmul_reduce_scatter(
        mine, right, "sum", scatter_dim=0, group_name=group.group_name
    )
    torch.testing.assert_close(scattered, (3 * whole @ right).chunk(2)[world.rank], rtol=1e-3, atol=1e-3)
    torch.cuda.synchronize()
    dist.barrier()


@on_ranks(2, deadline=240)
def test_inductor_fuses_our_collectives_with_products(world):
    """torch's pass replaces funcol's all_gather + matmul by its own operator: no group can offer one there."""
    pytest.importorskip("triton")
    import torch.distributed._functional_collectives as funcol
    from torch._inductor.utils import run_and_get_triton_code

    here, group = device(world), dist.group.WORLD
    symmetric.enable_symm_mem_for_group(group.group_name)
    torch.manual_seed(3)
    part, right = torch.randn(64, 128, device=here), torch.randn(128, 64, device=here)

    def layer(part, right):
        return funcol.all_gather_tensor(part, 0, group) @ right

    with warnings.catch_warnings(), torch._inductor.config.patch(_micro_pipeline_tp=True):
        warnings.simplefilter("ignore")
        compiled = torch.compile(layer)
        code = run_and_get_triton_code(compiled, part, right)
        found = compiled(part, right)
    assert "fused_all_gather_matmul" in code
    torch.testing.assert_close(found, layer(part, right), rtol=1e-3, atol=1e-3)
    torch.cuda.synchronize()
    dist.barrier()


def all_reduce_over_nvshmem(world):
    here = device(world)
    symmetric.set_backend("NVSHMEM")
    tensor, handle = made(world, dist.group.WORLD, 512)
    tensor.fill_(world.rank + 1.0)
    torch.cuda.synchronize()
    dist.barrier()
    assert handle.get_buffer(1 - world.rank, (512,), torch.float32).eq(2.0 - world.rank).all()
    found = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", dist.group.WORLD.group_name)
    assert found.eq(3).all() and found.device == here
    torch.cuda.synchronize()
    dist.barrier()


def test_over_nvshmem():
    """In processes of their own: torch chooses its backend once."""
    if not symmetric.is_nvshmem_available():
        pytest.skip("torch finds no NVSHMEM here")
    with Cluster(2, launcher="plain") as cluster:
        for outcome in cluster.run(all_reduce_over_nvshmem, deadline=60):
            assert outcome.ok, outcome.report()

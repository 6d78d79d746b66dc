# SPDX-License-Identifier: BSD-3-Clause
"""How the name "al" becomes known to torch, and what importing altorch does and does not do."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks

from tests.ranks.launch import backend_under_test, clean_environment, free_port

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own registration: ALTORCH_TEST_BACKEND is not al"
)


def python(program, *, env=None, cwd=None, check=True):
    """Run a program in a fresh interpreter, as one rank of one."""
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **(env or {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if check and done.returncode:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    return done


def installed(group):
    return any(point.name in ("al", "altorch") for point in importlib.metadata.entry_points(group=group))


FORMS = {
    "al": "al",
    "cpu:al": "al",
    "AL": "al",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    done = python(
        f"""
import altorch, torch, torch.distributed as dist
dist.init_process_group({form!r})
t = torch.ones(3)
dist.all_reduce(t)
print(type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__, dist.get_backend())
dist.destroy_process_group()
"""
    )
    kind, name = done.stdout.split()[-2:]
    assert kind != "ProcessGroupGloo" and FORMS[form] in name.split(",")[0], done.stdout


@pytest.mark.parametrize("form", ["cpu:al,cuda:al", "cpu:gloo,cuda:al"])
def test_forms_with_a_gpu(form):
    """Without a GPU the CPU half still works, or the error names the missing device."""
    done = python(
        f"""
import altorch, torch, torch.distributed as dist
dist.init_process_group({form!r})
t = torch.ones(3)
dist.all_reduce(t)
assert t.tolist() == [1, 1, 1]
dist.destroy_process_group()
print("works")
""",
        check=False,
    )
    if done.returncode:
        assert re.search(r"cuda|device|backend", done.stderr.strip().splitlines()[-1], re.IGNORECASE), (
            done.stderr
        )
    else:
        assert "works" in done.stdout


def test_without_any_import_through_the_entry_points():
    if not installed("torch.backends") and not installed("torch.distributed.backends"):
        pytest.skip("altorch is on the path but not installed, so there are no entry points")
    python(
        """
import torch, torch.distributed as dist
dist.init_process_group("al")
dist.barrier()
dist.destroy_process_group()
"""
    )


def test_the_lazy_entry_point_of_newer_torch_is_enough():
    if not installed("torch.distributed.backends"):
        pytest.skip("altorch is on the path but not installed, so there are no entry points")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
        pytest.skip("torch asks torch.distributed.backends from 2.14 on")
    python(
        """
import torch, torch.distributed as dist
dist.init_process_group("al")
dist.barrier()
dist.destroy_process_group()
""",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )


def test_import_loads_neither_mpi_nor_the_extension():
    done = python(
        """
import sys, torch, altorch
maps = open("/proc/self/maps").read()
print("altorch._C" in sys.modules, "altorch/lib/" in maps, "libmpi" in maps, "libmpich" in maps)
"""
    )
    assert done.stdout.split() == ["False"] * 4, done.stdout


def test_import_works_without_any_mpi():
    done = python(
        """
import altorch, torch, torch.distributed as dist
dist.init_process_group("al")
t = torch.ones(3)
dist.all_reduce(t)
print("libmpi" in open("/proc/self/maps").read())
dist.destroy_process_group()
""",
        env={"ALTORCH_MPI": "none"},
    )
    assert done.stdout.split()[-1] == "False", done.stdout


def copy_of_the_package(target):
    """The Python half of the installed package and of its hooks, to be spoilt."""
    import altorch_hooks

    import altorch

    source = Path(altorch.__file__).parent
    shutil.copytree(source, target / "altorch", ignore=shutil.ignore_patterns("__pycache__", "lib"))
    shutil.copy(altorch_hooks.__file__, target)
    return target / "altorch"


def test_another_torch_minor_is_refused_with_a_sentence(tmp_path):
    package = copy_of_the_package(tmp_path)
    for minor in ("1.9", "1.10"):
        folder = package / "lib" / f"torch{minor}"
        folder.mkdir(parents=True)
        (folder / "_C.so").touch()
    done = python("import altorch", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0 and last.startswith("ImportError"), done.stderr
    assert "torch 1.9 and 1.10" in last and ".".join(torch.__version__.split(".")[:2]) in last, last
    assert "pip install" in last or "make build" in last, f"no remedy: {last}"


def test_another_python_is_refused_with_a_sentence(tmp_path):
    package = copy_of_the_package(tmp_path)
    folder = package / "lib" / f"torch{'.'.join(torch.__version__.split('.')[:2])}"
    folder.mkdir(parents=True)
    (folder / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    done = python("import altorch", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0 and "for another Python (_C.cpython-39-x86_64-linux-gnu.so)" in last, (
        done.stderr
    )


def test_a_broken_altorch_never_breaks_import_torch(tmp_path):
    """torch.backends runs at every `import torch`: whatever is wrong with altorch, the hook stays quiet."""
    package = copy_of_the_package(tmp_path)
    (package / "__init__.py").write_text("raise RuntimeError('broken on purpose')\n")
    done = python(
        "import torch, altorch_hooks; altorch_hooks.autoload(); print('alive')",
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert "alive" in done.stdout


@on_ranks(1, 2)
def test_options(world):
    import copy

    import altorch

    options = altorch.Options(is_high_priority_stream=False, max_ctas=4)
    assert not options.is_high_priority_stream and altorch.Options().is_high_priority_stream
    with pytest.raises(TypeError):
        altorch.Options(max_ctas="many")
    group = dist.new_group(pg_options=options, timeout=timedelta(seconds=33))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [world.size] * 2
    backend = group._get_backend(torch.device("cpu"))
    assert not backend.options.is_high_priority_stream
    if world.size > 1:  # a rank alone has no communicator, and needs none
        with pytest.raises(RuntimeError, match="no NCCL communicator yet"):
            backend.add_buffer(4096, 4096, False)
    else:
        backend.add_buffer(4096, 4096, False)
        backend.remove_buffer(4096)
    dist.destroy_process_group(group)
    assert isinstance(copy.deepcopy(altorch.Options()), altorch.Options)
    assert options._timeout is not None  # dynamo reads it


def start_bound_to_a_device(world):
    world.start(device_id=torch.device("cpu:0"))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world.size] * 2
    half = dist.split_group(split_ranks=[[0], [1]])
    assert dist.get_world_size(half) == 1
    # Rank 1 belongs to no part here.
    only = dist.split_group(split_ranks=[[0]])
    group = dist.new_group([0])
    assert (only is dist.GroupMember.NON_GROUP_MEMBER or only is None) == (world.rank == 1)
    dist.all_reduce(tensor)
    del group
    return True


def test_device_id_of_the_cpu():
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        pytest.skip("this torch takes no CPU as device_id")
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(start_bound_to_a_device)


def of_another_world(world, port):
    """Two worlds of two ranks over one store, each with one rank here: neither is complete."""
    store = dist.TCPStore("127.0.0.1", port, 2, world.rank == 0)
    mine = dist.PrefixStore("AB"[world.rank], store)
    with pytest.raises(dist.DistError, match="has not come"):
        dist.init_process_group("al", store=mine, rank=world.rank, world_size=2, timeout=timedelta(seconds=3))
    store.add("done", 1)
    while world.rank == 0 and store.add("done", 0) < 2:  # Rank 0 holds the store: it leaves last.
        time.sleep(0.05)


def test_worlds_under_prefixes_of_one_store_stay_apart():
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(of_another_world, port=free_port())

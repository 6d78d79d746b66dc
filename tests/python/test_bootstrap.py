# SPDX-License-Identifier: BSD-3-Clause
"""Every MPI on this machine, started by torchrun, by plain variables and by its own mpirun; and none at all."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PROGRAM_DEADLINE, Cluster
from mpi_libraries import all_mpis

from tests.ranks.launch import backend_under_test, clean_environment, free_port

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own bootstrap: ALTORCH_TEST_BACKEND is not al"
)
MPIS = pytest.mark.parametrize("name", all_mpis())


def library_or_skip(name, *, mpirun=False):
    mpi = all_mpis()[name]
    if not mpi.library:
        pytest.skip(f"{name}: {mpi.reason}")
    if mpirun and not mpi.mpirun:
        pytest.skip(f"{name} has no mpirun on this machine")
    return mpi


def work(world):
    """A little of everything, small and large enough for every protocol of an MPI; returns what carried it."""
    for size in (1, 1000, 100_000, 3_000_000):
        tensor = torch.full((size,), float(world.rank + 1))
        dist.all_reduce(tensor)
        assert (tensor == world.size * (world.size + 1) / 2).all(), size
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    if world.size > 1:
        for size in (10, 500_000):
            got = torch.empty(size)
            receive = dist.irecv(got, before)
            dist.isend(torch.full((size,), float(world.rank)), after).wait()
            receive.wait()
            assert (got == before).all()
    group = dist.new_group([0])
    dist.barrier()
    if world.rank == 0:
        dist.barrier(group)
    dist.broadcast(torch.ones(5), world.size - 1)
    return describe(world)


def describe(world):
    from altorch._extension import extension

    return str(extension().describe_job()) if world.is_al else "gloo"


# By these an MPI process is told who it is; the settings of the libraries themselves (..._MCA_...)
# are harmless.
IDENTITY = re.compile(r"(PMI_|PMIX_(RANK|NAMESPACE|SERVER)|FLUX_|OMPI_COMM_WORLD|MPIR_CVAR|UCX_|FI_)")


def identities():
    """As a child process sees them: what C code sets does not show in os.environ."""
    done = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True)
    return {entry for entry in done.stdout.split("\0") if IDENTITY.match(entry)}


def signal_handlers():
    """The address of each signal's handler; real-time signals belong to the libraries' threads and are left out."""
    libc, action = ctypes.CDLL(None), ctypes.create_string_buffer(512)  # larger than any struct sigaction
    handlers = {}
    for number in range(1, 32):
        assert libc.sigaction(number, None, action) == 0
        handlers[number] = ctypes.c_void_p.from_buffer(action).value
    return handlers


def signals_and_environment(world):
    """What MPI_Init may change behind one's back: signal handlers and variables."""
    import altorch  # noqa: F401

    handlers, names = signal_handlers(), identities()
    world.start()
    dist.barrier()
    taken = [
        signal.Signals(number).name
        for number, handler in signal_handlers().items()
        if handler != handlers[number]
    ]
    assert not taken, f"signals that another handler handles now: {taken}"
    assert identities() == names, f"changed in the environment: {identities() ^ names}"
    return describe(world)


@MPIS
@pytest.mark.parametrize(("launcher", "size"), [("torchrun", 4), ("plain", 3)])
def test_started_over_the_store(name, launcher, size):
    mpi = library_or_skip(name)
    env = {"ALTORCH_MPI": mpi.library, **dict(mpi.env)}
    with Cluster(size, launcher=launcher, env=env) as cluster:
        carried = cluster.check(work, deadline=120)
        assert all(mpi.says in text for text in carried), carried
        cluster.close()  # ends cleanly, with status 0


@MPIS
@pytest.mark.parametrize("init_method", ["mpi://", "env://"])
def test_started_by_its_own_mpirun(name, init_method):
    mpi = library_or_skip(name, mpirun=True)
    env = {"ALTORCH_MPI": mpi.library, "ALTORCH_TEST_INIT_METHOD": init_method, **dict(mpi.env)}
    with Cluster(3, launcher="mpirun", mpirun=mpi.mpirun, env=env) as cluster:
        carried = cluster.check(work, deadline=120)
        assert all(mpi.says in text for text in carried), carried
        cluster.close()


@MPIS
def test_mpirun_without_naming_the_library(name):
    """altorch takes the MPI of the launcher that started it."""
    mpi = library_or_skip(name, mpirun=True)
    if name == "Open MPI 5":
        pytest.skip("an MPI in a prefix of its own is named with ALTORCH_MPI")
    with Cluster(2, launcher="mpirun", mpirun=mpi.mpirun, env=dict(mpi.env)) as cluster:
        carried = cluster.check(work, deadline=120)
        assert all(mpi.says in text for text in carried), carried


@MPIS
def test_signals_and_environment_stay(name):
    mpi = library_or_skip(name)
    # What altorch itself takes for its trace, it takes on purpose.
    env = {"ALTORCH_MPI": mpi.library, "ALTORCH_TRACE": "socket", **dict(mpi.env)}
    with Cluster(2, group=False, launcher="plain", env=env) as cluster:
        carried = cluster.check(signals_and_environment, deadline=120)
        assert all(mpi.says in text for text in carried), carried


LEAKED = {
    "PMI_RANK": "5",
    "PMI_SIZE": "9",
    "PMI_FD": "77",
    "PMIX_RANK": "5",
    "PMIX_NAMESPACE": "leaked",
    "PMIX_SERVER_URI41": "leaked.0;tcp4://127.0.0.1:1",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "9",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "9",
}


@MPIS
def test_variables_of_an_outer_launcher_do_no_harm(name):
    """`srun torchrun` leaves the step's variables in every rank."""
    mpi = library_or_skip(name)
    env = {"ALTORCH_MPI": mpi.library, **LEAKED, **dict(mpi.env)}
    with Cluster(2, launcher="torchrun", env=env) as cluster:
        carried = cluster.check(work, deadline=120)
        assert all(mpi.says in text for text in carried), carried


FROM_SRUN = """
import os, altorch, torch, torch.distributed as dist
assert os.environ["LOCAL_RANK"] == os.environ["SLURM_LOCALID"]
dist.init_process_group("al")
tensor = torch.ones(2)
dist.all_reduce(tensor)
assert tensor.tolist() == [2, 2]
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "plugin", [{}, {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "PMI_FD": "99"}, {"PMIX_RANK": "{rank}"}]
)
def test_srun_needs_no_variables_of_torch(plugin):
    """With Slurm's default, as with pmi2 and pmix: the step says which rank this is, and where the store can be."""
    step = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": "2",
    }
    ranks = []
    for rank in range(2):
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        own |= {name: value.format(rank=rank) for name, value in plugin.items()}
        ranks.append(subprocess.Popen([sys.executable, "-c", FROM_SRUN], env=clean_environment(step | own)))
    try:
        assert [rank.wait(PROGRAM_DEADLINE) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("PALS", {"PALS_RANKID": "1", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "2", "PMI_SIZE": "4",
                  "PMI_RANK": "1", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}),
        ("PALS", {"PALS_RANKID": "1", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "2", "PALS_SIZE": "4"}),
        ("Cray PMI", {"ALPS_APP_PE": "1", "PMI_RANK": "1", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1",
                      "PMI_LOCAL_SIZE": "2"}),
        ("mpiexec (hydra)", {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}),
    ],
    ids=["pals_with_cray_pmi", "pals", "cray_pmi", "hydra"],
)  # fmt: skip
def test_variables_of_launchers_with_pmi(name, env):
    """PALS_SIZE is not set by every PALS: Cray's PMI has the size."""
    from altorch._launcher import detect

    assert detect(env) == (name, 1, 4, 1, 2, True, None)
    assert detect({"PMI_RANK": "1", "PMI_SIZE": "4"}).name == "none"
    assert detect({**env, "TORCHELASTIC_RUN_ID": "job", "RANK": "0", "WORLD_SIZE": "1"}).name == "torchrun"


def test_the_first_node_of_a_step():
    from altorch._launcher import first_node

    assert first_node("gpu[07-09,12],cpu1") == "gpu07"
    assert first_node("node1,node2") == "node1"
    assert first_node("rack[2-3]node[01-04]") == "rack2node01"
    assert first_node("one") == "one"


APART = {
    "users": "setpriv --reuid 65533 --regid 65533 --clear-groups",
    "process ids": "unshare --pid --fork --mount-proc",
    "1 MiB of /dev/shm": "unshare --mount sh -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"' sh",
    "files of 50 KiB": "sh -c 'ulimit -f 100 && exec \"$@\"' sh",
    "nothing in /proc": "unshare --mount sh -c 'mount -t tmpfs tmpfs /proc && exec \"$@\"' sh",
    "no sched_getaffinity": f"{sys.executable} {Path(__file__).with_name('refuse_affinity.py')}",
}
ONE_SUM = """
import time, torch, torch.distributed as dist
began = time.monotonic()
dist.init_process_group("al")
tensor = torch.ones(100_000)
dist.all_reduce(tensor)
assert tensor.eq(2).all()
assert time.monotonic() - began < 10, "UCX waits 20 s for memory that it cannot have"
dist.destroy_process_group()
"""


@pytest.mark.parametrize("apart", APART)
def test_a_rank_that_is_kept_apart(apart):
    """Users, containers, sandboxes: the second rank is kept from the first one's memory, or from starting an MPI."""
    wrapper = shlex.split(APART[apart])
    tried = subprocess.run(
        [*wrapper, sys.executable, "-c", "import altorch"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"no rank with other {apart} can be started here: {tried.stderr.decode()[-200:]}")
    env = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "ALTORCH_SHM_BYTES": "0",
    }
    ranks = [
        subprocess.Popen(
            [*command, sys.executable, "-c", ONE_SUM], env=clean_environment(env | {"RANK": str(rank)})
        )
        for rank, command in enumerate(([], wrapper))
    ]
    try:
        assert [rank.wait(PROGRAM_DEADLINE) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


def shared_memory_of(processes):
    """The files in /dev/shm that these processes have mapped, whether the names are still there or not."""
    maps = "".join(Path(f"/proc/{process}/maps").read_text() for process in processes)
    return {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}


@MPIS
@pytest.mark.parametrize("end", ["ended", "killed"])
@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
def test_nothing_is_left_in_shared_memory(name, launcher, end):
    mpi = library_or_skip(name, mpirun=launcher == "mpirun")
    env = {"ALTORCH_MPI": mpi.library, **dict(mpi.env)}
    with Cluster(3, launcher=launcher, mpirun=mpi.mpirun, env=env) as cluster:
        cluster.check(work, deadline=120)
        files = shared_memory_of(cluster.pids.values())
        if end == "ended":
            cluster.close()
        else:
            for rank in range(3):
                cluster.kill(rank)
            # Open MPI's mpirun removes them when it sees its ranks die.
            deadline = time.monotonic() + 20
            while launcher == "mpirun" and any(map(Path.exists, files)) and time.monotonic() < deadline:
                time.sleep(0.1)
    assert files, "this MPI uses no shared memory: the test looks in the wrong place"
    assert not [file for file in files if file.exists()]


def test_no_mpi_at_all():
    with Cluster(3, launcher="torchrun", env={"ALTORCH_MPI": "none"}) as cluster:
        carried = cluster.check(work, deadline=120)
        assert not any(re.search(r"MPICH|Open MPI", text) for text in carried), carried
        cluster.close()


def test_one_rank_without_mpi_does_not_hang_the_others():
    """The ranks agree before any of them touches MPI: all of them take Gloo, or all of them say why not."""
    with Cluster(2, group=False, launcher="plain") as cluster:
        outcomes = cluster.run(start_with_own_mpi, deadline=60, per_rank={1: {"library": "none"}})
        assert {outcome.status for outcome in outcomes} <= {"ok", "error"}, [o.report() for o in outcomes]
        assert len({outcome.status for outcome in outcomes}) == 1, [o.report() for o in outcomes]
        for outcome in outcomes:
            assert outcome.ok or "MPI" in outcome.message, outcome.report()


def start_with_own_mpi(world, library=""):
    if library:
        os.environ["ALTORCH_MPI"] = library
    world.start(timeout=30)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world.size] * 3
    return describe(world)


@pytest.mark.parametrize("library", ["/nowhere/libmpi.so", "nonsense"])
def test_an_mpi_that_cannot_be_loaded_is_an_error_with_a_reason(library):
    with Cluster(2, group=False, launcher="plain", env={"ALTORCH_MPI": library}) as cluster:
        outcomes = cluster.run(start_with_own_mpi, deadline=60)
        for outcome in outcomes:
            assert outcome.status == "error", outcome.report()
            assert library in outcome.message, outcome.message


def start_after_mpi(world, library):
    """What mpi4py does: the program initialises MPI before altorch, and finalises it too."""
    mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    provided = ctypes.c_int()
    assert mpi.MPI_Init_thread(None, None, 2, ctypes.byref(provided)) == 0
    world.start()
    carried = work(world)
    dist.destroy_process_group()
    finalized = ctypes.c_int(-1)
    mpi.MPI_Finalized(ctypes.byref(finalized))
    assert finalized.value == 0, "altorch ended an MPI that it had not started"
    mpi.MPI_Finalize()
    return carried


@MPIS
def test_mpi_that_the_program_initialised(name):
    mpi = library_or_skip(name, mpirun=True)
    env = {"ALTORCH_MPI": mpi.library, **dict(mpi.env)}
    with Cluster(2, group=False, launcher="mpirun", mpirun=mpi.mpirun, env=env) as cluster:
        carried = cluster.check(start_after_mpi, deadline=120, library=mpi.library)
        assert all(mpi.says in text for text in carried), carried
        cluster.close()


def start_after_mpi4py(world):
    from mpi4py import MPI

    world.start()
    carried = work(world)
    assert MPI.COMM_WORLD.allreduce(1) == world.size
    return carried


def test_mpi4py():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    mpi = library_or_skip("mpich wheel", mpirun=True)
    with Cluster(2, group=False, launcher="mpirun", mpirun=mpi.mpirun) as cluster:
        carried = cluster.check(start_after_mpi4py, deadline=120)
        assert all("another user of MPI" in text for text in carried), carried


@MPIS
@pytest.mark.parametrize("per_node", [1, 2])
def test_two_virtual_nodes(name, per_node, nodes):
    """A torchrun on each node; between them MPI must go over the wire."""
    mpi = library_or_skip(name)
    env = {"ALTORCH_MPI": mpi.library, "MASTER_ADDR": nodes[0].address, **dict(mpi.env)}
    if name == "mpich wheel" and per_node == 1:  # ucx carries the nodes of test_mpi_bootstrap.py
        env["MPIR_CVAR_CH4_NETMOD"] = "ofi"
    prefixes = [list(node.prefix) for node in nodes]
    with Cluster(2 * per_node, launcher="torchrun", env=env, node_prefixes=prefixes) as cluster:
        carried = cluster.check(work, deadline=150)
        assert all(mpi.says in text for text in carried), carried


def test_two_virtual_nodes_without_mpi(nodes):
    env = {"ALTORCH_MPI": "none", "MASTER_ADDR": nodes[0].address}
    prefixes = [list(node.prefix) for node in nodes]
    with Cluster(2, launcher="torchrun", env=env, node_prefixes=prefixes) as cluster:
        cluster.check(work, deadline=120)

# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own DistributedTest, told that the backend under test is one that it knows.

The suite decides by the backend's name, at import, which tests to skip. Impersonation makes it see "gloo" (or "mpi",
"nccl") there, while `init_process_group` is given the backend under test. Imported by the runner and by every rank.

Environment: ALTORCH_TEST_SUITE_IMPERSONATES, ALTORCH_TEST_SUITE_BACKEND, WORLD_SIZE.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import sys
import types
import unittest
from typing import Any
from unittest import mock

IMPERSONATED = os.environ["ALTORCH_TEST_SUITE_IMPERSONATES"]
BACKEND = os.environ["ALTORCH_TEST_SUITE_BACKEND"]
os.environ["BACKEND"] = IMPERSONATED

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if "al" in BACKEND.split(":"):
    import altorch  # noqa: F401 - registers the backend, loads no MPI
# "mpi" must look available while the suite decides what to skip.
with mock.patch.object(dist, "is_mpi_available", lambda: True):
    from torch.testing._internal.common_distributed import initialize_temp_directories

    initialize_temp_directories()
    from torch.testing._internal.distributed import distributed_test as suite


class ImpersonatedBackend(str):
    """The name of the backend under test, which also equals that of the impersonated backend."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == IMPERSONATED  # type: ignore[no-any-return]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class ImpersonatedDistributed(types.ModuleType):
    """torch.distributed, whose groups of the impersonated backend are groups of the backend under test."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    def new_group(self, *args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        return dist.new_group(*args, backend=BACKEND if backend == IMPERSONATED else backend, **kwargs)


suite.BACKEND = ImpersonatedBackend(BACKEND)
# Gloo groups stay what they are: tests keep the ranks in step with them while the group under test
# fails.
if IMPERSONATED not in (BACKEND, "gloo"):
    suite.dist = ImpersonatedDistributed("torch.distributed")
# The suite asks only the backends it knows for profiler events; on request this one is asked like
# the impersonated one.
if os.environ.get("ALTORCH_TEST_SUITE_PROFILING"):
    for names in (
        suite.PROFILING_SUPPORTED_BACKENDS,
        suite.CUDA_PROFILING_SUPPORTED_BACKENDS,
        suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
    ):
        if not any(str(name) == BACKEND for name in names):
            names.append(BACKEND)


@functools.cache
def start_method() -> str:
    """How ranks are started: forked from a server that has imported everything, unless its imports touched CUDA."""
    if chosen := os.environ.get("ALTORCH_TEST_SUITE_START"):
        return chosen
    if torch.cuda.is_available():
        # CUDA is of no use in the forks of a process that has used it. This one has imported what
        # the server will.
        probe = torch.multiprocessing.get_context("fork").Process(target=torch.cuda.init)
        probe.start()
        probe.join()
        if probe.exitcode != 0:
            print("importing the suite touched CUDA: every rank is a fresh process", file=sys.stderr)
            return "spawn"
    return "forkserver"


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
    def setUp(self) -> None:
        method = start_method()  # asked before setUp, which uses CUDA in this process
        super().setUp()
        context = torch.multiprocessing.get_context(method)
        if method == "forkserver":
            # Ranks are forked from a process that has imported everything and has a single thread.
            context.set_forkserver_preload(["torch_suite_cases"])

        def process(target: Any, name: str, args: Any, kwargs: Any) -> Any:
            # setUp has changed the environment since the fork server was started.
            return context.Process(target=_run_rank, name=name, args=(dict(os.environ), target, args, kwargs))

        self._start_processes(process)


def _run_rank(environment: dict[str, str], target: Any, args: Any, kwargs: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # The suite asks a rank that hangs where it is, but hears nothing any more once the test itself
    # is over.
    deadline = float(environment.get("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "300"))
    faulthandler.dump_traceback_later(0.9 * deadline)
    target(*args, **kwargs)


def all_names() -> list[str]:
    return unittest.TestLoader().getTestCaseNames(TorchSuite)  # type: ignore[return-value]

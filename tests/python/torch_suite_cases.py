"""PyTorch's own DistributedTest, told that the backend under test is the persona it knows.

The suite decides by the backend's name, at import, which tests to skip. A persona makes it see "gloo" (or "mpi")
there, while `init_process_group` is given the backend under test. Imported by the runner and by every rank.

Environment: ALTORCH_TEST_SUITE_PERSONA, ALTORCH_TEST_SUITE_BACKEND, WORLD_SIZE.
"""

from __future__ import annotations

import os
import unittest
from typing import Any
from unittest import mock

PERSONA = os.environ["ALTORCH_TEST_SUITE_PERSONA"]
BACKEND = os.environ["ALTORCH_TEST_SUITE_BACKEND"]
os.environ["BACKEND"] = PERSONA

import torch.distributed as dist  # noqa: E402

if "al" in BACKEND.split(":"):
    import altorch  # noqa: F401 - registers the backend, loads no MPI
# "mpi" must look available while the suite decides what to skip.
with mock.patch.object(dist, "is_mpi_available", lambda: True):
    from torch.testing._internal.common_distributed import initialize_temp_directories

    initialize_temp_directories()
    from torch.testing._internal.distributed import distributed_test as suite


class PersonaBackend(str):
    """The name of the backend under test, which also equals its persona."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == PERSONA  # type: ignore[no-any-return]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


suite.BACKEND = PersonaBackend(BACKEND)
# The suite asks only the backends it knows for profiler events; on request this one is asked like its persona.
if os.environ.get("ALTORCH_TEST_SUITE_PROFILING"):
    for names in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if not any(str(name) == BACKEND for name in names):
            names.append(BACKEND)


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
    start_method = os.environ.get("ALTORCH_TEST_SUITE_START", "forkserver")

    def setUp(self) -> None:
        super().setUp()
        import torch

        context = torch.multiprocessing.get_context(self.start_method)
        if self.start_method == "forkserver":
            # Ranks are forked from a process that has imported everything and has a single thread.
            context.set_forkserver_preload(["torch_suite_cases"])

        def process(target: Any, name: str, args: Any, kwargs: Any) -> Any:
            # setUp has changed the environment since the fork server was started.
            return context.Process(target=_run_rank, name=name, args=(dict(os.environ), target, args, kwargs))

        self._start_processes(process)


def _run_rank(environment: dict[str, str], target: Any, args: Any, kwargs: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*args, **kwargs)


def all_names() -> list[str]:
    return unittest.TestLoader().getTestCaseNames(TorchSuite)  # type: ignore[return-value]

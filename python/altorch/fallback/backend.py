# SPDX-License-Identifier: BSD-3-Clause
"""What torch asks of a backend, and messages."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from altorch.fallback import engine
from altorch.fallback.blocks import Blocks
from altorch.fallback.collectives import Collectives
from altorch.fallback.exchanges import Exchanges
from altorch.fallback.tensors import flat_of, store_back
from altorch.fallback.work import PythonWork

alive: set[PythonBackend] = set()  # torch's debug wrapper keeps the C++ half of a backend only
_BARRIER_TAG = (1 << 30) - 7  # of messages that no program sends


class PythonBackend(Collectives, Blocks, Exchanges):
    """One process group of CPU tensors on one node."""

    def getBackendName(self) -> str:
        return self._served

    @property
    def options(self) -> Any:
        return self._own_options

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def supports_coalescing(self) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = self._own_options._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            engine.library().altorch_close(self.handle, b"the group was destroyed")
            self.release_all()
            engine.library().altorch_leave(self.handle)

    def stats(self) -> list[Any]:
        return engine.stats(self.handle)

    def abort(self) -> None:
        self._end(b"the group was aborted")

    def shutdown(self) -> None:
        self._end(b"the group was destroyed")

    def _end(self, why: bytes) -> None:
        engine.library().altorch_close(self.handle, why)
        alive.discard(self)

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """Rank 0 waits for a message of every peer, and answers all: unlike a barrier, it can name who has not come."""
        own = options.timeout if options.timeout > timedelta(0) else self._timeout
        token = [torch.zeros(1, dtype=torch.uint8)]
        if self._rank != 0:
            self.send(token, 0, _BARRIER_TAG).wait()
            self.recv(token, 0, _BARRIER_TAG).wait(own)
            return
        peers = range(1, len(self._ranks))
        arrivals = [self.recv([token[0].clone()], peer, _BARRIER_TAG) for peer in peers]
        began, missing = time.monotonic(), []
        for peer, arrival in zip(peers, arrivals, strict=True):
            try:
                arrival.wait(
                    max(own - timedelta(seconds=time.monotonic() - began), timedelta(milliseconds=1))
                )
            except dist.DistBackendError:
                missing.append(peer)
        if missing:
            named = missing if wait_all_ranks else missing[:1]
            text = f"{'Ranks' if len(named) > 1 else 'Rank'} {', '.join(map(str, named))}"
            raise dist.DistBackendError(
                f"altorch: group '{self._name}', rank 0: [Rank 0]: {text} failed to pass monitoredBarrier in "
                f"{engine.milliseconds(own)} ms; look what they do, or raise the timeout"
            )
        for peer in peers:
            self.send(token, peer, _BARRIER_TAG).wait()

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> PythonWork:
        (tensor,) = tensors
        flat = flat_of(tensor)
        refused = self.rank_problem(peer, "dst")
        return self.issue(
            "send",
            tensor,
            source=flat,
            count=flat.numel(),
            root=peer,
            tag=tag,
            refused=refused,
            asynchronous=True,
        )

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> PythonWork:
        (tensor,) = tensors
        target = flat_of(tensor)
        return self.issue(
            "recv",
            tensor,
            target=target,
            count=target.numel(),
            root=peer,
            tag=tag,
            refused=self.rank_problem(peer, "src"),
            outputs=tensors,
            done=lambda: store_back(tensor, target),
            asynchronous=True,
        )

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> PythonWork:
        raise NotImplementedError(
            f"altorch: group '{self._name}', rank {self._rank}: recv from any rank needs an altorch with an "
            f"extension for torch {torch.__version__}, because torch takes no sender from a Work in Python; name src"
        )

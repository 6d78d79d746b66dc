# SPDX-License-Identifier: BSD-3-Clause
"""What torch asks of a backend, and messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from altorch.fallback import engine
from altorch.fallback.blocks import Blocks
from altorch.fallback.collectives import Collectives
from altorch.fallback.exchanges import Exchanges
from altorch.fallback.tensors import flat_of, store_back
from altorch.fallback.work import PythonWork


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
        self._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            engine.library().altorch_leave(self.handle)

    def abort(self) -> None:
        engine.library().altorch_close(self.handle, b"the group was aborted")

    def shutdown(self) -> None:
        engine.library().altorch_close(self.handle, b"the group was destroyed")

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

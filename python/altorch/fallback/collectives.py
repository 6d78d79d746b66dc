# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of one tensor on each rank. What is not contiguous is copied, and copied back where it is an output."""

from __future__ import annotations

from typing import Any

import torch

from altorch.fallback.calls import Calls
from altorch.fallback.tensors import flat_of, store_back
from altorch.fallback.work import PythonWork


class Collectives(Calls):
    """broadcast, all_reduce, reduce and barrier of PythonBackend."""

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> PythonWork:
        (tensor,) = tensors
        flat, root = flat_of(tensor), options.rootRank
        writes = self._rank != root
        return self.issue(
            "broadcast",
            tensor,
            target=flat,
            count=flat.numel(),
            root=root,
            options=options,
            refused=self.rank_problem(root, "src"),
            outputs=tensors,
            done=lambda: store_back(tensor, flat) if writes else None,
        )

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> PythonWork:
        (tensor,) = tensors
        return self._in_place("all_reduce", tensor, options)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any) -> PythonWork:
        return self.one_work(tensors, [self._in_place("all_reduce", tensor, options) for tensor in tensors])

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> PythonWork:
        (tensor,) = tensors
        return self._in_place("reduce", tensor, options, options.rootRank)

    def _in_place(self, kind: str, tensor: torch.Tensor, options: Any, root: int | None = None) -> PythonWork:
        flat = flat_of(tensor)
        writes = root in (None, self._rank)
        return self.issue(
            kind,
            tensor,
            source=flat,
            target=flat,
            count=flat.numel(),
            root=root or 0,
            reduction=options.reduceOp,
            options=options,
            refused=None if root is None else self.rank_problem(root, "dst"),
            outputs=[tensor],
            done=lambda: store_back(tensor, flat) if writes else None,
        )

    def barrier(self, options: Any) -> PythonWork:
        return self.issue("barrier", None, options=options)

# SPDX-License-Identifier: BSD-3-Clause
"""Collectives with a block for each rank: gathers and scatters."""

from __future__ import annotations

from typing import Any

import torch

from altorch.fallback.calls import Calls
from altorch.fallback.tensors import flat_of, joined, store_back, store_blocks
from altorch.fallback.work import PythonWork


def size_problem(fits: bool, text: str) -> str | None:
    """`text` where sizes do not fit."""
    return None if fits else text


class Blocks(Calls):
    """all_gather, gather and scatter of PythonBackend."""

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> PythonWork:
        flat, target = flat_of(source), flat_of(output)
        fits = output.numel() == source.numel() * len(self._ranks)
        return self.issue(
            "all_gather",
            source,
            source=flat,
            target=target,
            count=flat.numel(),
            options=options,
            refused=self.list_problem([output], source, "all_gather_into_tensor")
            or size_problem(fits, "all_gather_into_tensor's output must hold input x world size elements"),
            outputs=[output],
            done=lambda: store_back(output, target),
        )

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], options: Any
    ) -> PythonWork:
        pairs = zip(outputs, sources, strict=True)
        return self.one_work(outputs, [self.all_gather_single(*pair, options) for pair in pairs])

    def allgather(
        self, lists: list[list[torch.Tensor]], sources: list[torch.Tensor], options: Any
    ) -> PythonWork:
        (source,), (outputs,) = sources, lists
        return self._gather("all_gather", source, outputs, options, 0)

    def gather(
        self, lists: list[list[torch.Tensor]], sources: list[torch.Tensor], options: Any
    ) -> PythonWork:
        (source,), root = sources, options.rootRank
        return self._gather("gather", source, lists[0] if self._rank == root else [], options, root)

    def _gather(
        self, kind: str, source: torch.Tensor, outputs: list[torch.Tensor], options: Any, root: int
    ) -> PythonWork:
        flat, size = flat_of(source), len(self._ranks)
        receives = kind == "all_gather" or self._rank == root
        counts = [output.numel() for output in outputs]
        refused = self.rank_problem(root, "dst") or self.list_problem(outputs, source, f"{kind}'s list")
        if receives and len(outputs) != size:
            refused, counts = (
                f"{kind} takes a list of {size} tensors, and this one has {len(outputs)}",
                [0] * size,
            )
        elif receives and counts[self._rank] != source.numel():
            refused = f"{kind}'s tensor has {source.numel()} elements, its own entry of the list {counts[self._rank]}"
        uneven = kind == "all_gather" and len(set(counts)) > 1
        if kind == "gather" and receives and len(set(counts)) > 1:
            refused = refused or "gather's tensors must have one size"
        target = torch.empty(sum(counts), dtype=source.dtype)
        return self.issue(
            kind,
            source,
            source=flat,
            target=target if receives else None,
            count=flat.numel(),
            target_counts=counts if uneven else None,
            root=root,
            options=options,
            refused=refused,
            outputs=outputs,
            done=lambda: store_blocks(outputs, target),
        )

    def scatter(
        self, outputs: list[torch.Tensor], lists: list[list[torch.Tensor]], options: Any
    ) -> PythonWork:
        (output,), root, size = outputs, options.rootRank, len(self._ranks)
        sources = lists[0] if self._rank == root else []
        refused = self.rank_problem(root, "src") or self.list_problem(sources, output, "scatter's list")
        if self._rank == root and [source.numel() for source in sources] != [output.numel()] * size:
            refused = refused or f"scatter takes a list of {size} tensors of {output.numel()} elements"
        flat, target = (joined(sources, output) if not refused else None), flat_of(output)
        return self.issue(
            "scatter",
            output,
            source=flat if self._rank == root else None,
            target=target,
            count=output.numel(),
            root=root,
            options=options,
            refused=refused,
            outputs=[output],
            done=lambda: store_back(output, target),
        )

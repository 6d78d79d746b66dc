# SPDX-License-Identifier: BSD-3-Clause
"""Collectives in which every rank has a block for every other: reduce_scatter and all_to_all."""

from __future__ import annotations

from typing import Any

import torch

from altorch.fallback.blocks import size_problem
from altorch.fallback.calls import Calls
from altorch.fallback.tensors import flat_of, joined, store_back, store_blocks
from altorch.fallback.work import PythonWork


class Exchanges(Calls):
    """reduce_scatter and all_to_all of PythonBackend."""

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> PythonWork:
        flat, target = flat_of(source), flat_of(output)
        fits = source.numel() == output.numel() * len(self._ranks)
        return self.issue(
            "reduce_scatter",
            output,
            source=flat,
            target=target,
            count=output.numel(),
            reduction=options.reduceOp,
            options=options,
            refused=self.list_problem([source], output, "reduce_scatter_tensor")
            or size_problem(fits, "reduce_scatter_tensor's input must hold output x world size elements"),
            outputs=[output],
            done=lambda: store_back(output, target),
        )

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], options: Any
    ) -> PythonWork:
        pairs = zip(outputs, sources, strict=True)
        return self.one_work(outputs, [self.reduce_scatter_single(*pair, options) for pair in pairs])

    def reduce_scatter(
        self, outputs: list[torch.Tensor], lists: list[list[torch.Tensor]], options: Any
    ) -> PythonWork:
        (output,), (sources,), size = outputs, lists, len(self._ranks)
        counts, target = [source.numel() for source in sources], flat_of(output)
        refused = self.list_problem(sources, output, "reduce_scatter's list")
        if len(counts) != size or counts[self._rank] != output.numel():
            refused = (
                refused or f"reduce_scatter takes {size} tensors, and its own has {output.numel()} elements"
            )
        return self.issue(
            "reduce_scatter",
            output,
            source=joined(sources, output) if not refused else None,
            target=target,
            count=output.numel(),
            source_counts=counts if len(set(counts)) > 1 and not refused else None,
            reduction=options.reduceOp,
            options=options,
            refused=refused,
            outputs=[output],
            done=lambda: store_back(output, target),
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_splits: list[int],
        source_splits: list[int],
        options: Any,
    ) -> PythonWork:
        flat, target, size = flat_of(source), flat_of(output), len(self._ranks)
        splits = bool(output_splits or source_splits)
        refused = self.list_problem([source], output, "all_to_all_single")

        def counts_of(tensor: torch.Tensor, given: list[int], what: str) -> list[int]:
            nonlocal refused
            rows = tensor.shape[0] if tensor.dim() else 1
            row = tensor.numel() // rows if rows else 0
            if not given and rows % size:
                refused = (
                    refused or f"all_to_all_single's {what} has {rows} rows, no multiple of {size} ranks"
                )
            parts = given or [rows // size] * size
            if given and (len(given) != size or sum(given) != rows):
                refused = refused or f"all_to_all_single's {what} split sizes {given} do not fit {rows} rows"
            return [part * row for part in parts]

        source_counts = counts_of(source, source_splits, "input")
        target_counts = counts_of(output, output_splits, "output")
        if not splits and flat.numel() != target.numel():
            refused = refused or "all_to_all_single's input and output must have one size without split sizes"
        return self.issue(
            "all_to_all",
            output,
            source=flat,
            target=target,
            count=0 if splits else flat.numel() // size,
            source_counts=source_counts if splits and not refused else None,
            target_counts=target_counts if splits and not refused else None,
            options=options,
            refused=refused,
            outputs=[output],
            done=lambda: store_back(output, target),
        )

    def alltoall(self, outputs: list[torch.Tensor], sources: list[torch.Tensor], options: Any) -> PythonWork:
        size, like = len(self._ranks), (outputs or sources)[0]
        refused = self.list_problem([*outputs, *sources], like, "all_to_all's lists")
        if len(outputs) != size or len(sources) != size:
            refused = f"all_to_all takes lists of {size} tensors"
        target = torch.empty(sum(output.numel() for output in outputs), dtype=like.dtype)
        return self.issue(
            "all_to_all",
            like,
            source=joined(sources, like) if not refused else None,
            target=target,
            source_counts=[source.numel() for source in sources] if not refused else None,
            target_counts=[output.numel() for output in outputs] if not refused else None,
            options=options,
            refused=refused,
            outputs=outputs,
            done=lambda: store_blocks(outputs, target),
        )

# SPDX-License-Identifier: BSD-3-Clause
"""The GPU kernels compile for every type and operator, with the NVRTC that torch brings: no GPU is needed."""

from __future__ import annotations

import pytest
import torch

OLDEST, NEWEST = 80, 100  # architectures: Ampere, Blackwell
TYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
OPERATORS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


@pytest.fixture(scope="module")
def compile_reduction():
    if torch.version.cuda is None:
        pytest.skip("torch is a CPU build: it brings no NVRTC")
    from altorch import _C

    return _C.compile_reduction


@pytest.mark.parametrize("dtype", TYPES)
def test_every_reduction_compiles(compile_reduction, dtype):
    sizes = {op: compile_reduction(dtype, op, OLDEST) for op in OPERATORS}
    assert sizes["SUM"], sizes
    assert all(size is None or size > 1000 for size in sizes.values()), sizes
    assert (sizes["BXOR"] is None) == (dtype.startswith(("float", "bfloat", "complex"))), sizes


def test_for_the_newest_gpus(compile_reduction):
    assert compile_reduction("bfloat16", "AVG", NEWEST) > 1000


def test_what_cannot_be_compiled_says_why(compile_reduction):
    with pytest.raises(
        RuntimeError, match=r"GPU kernel could not be compiled: .*altorch_reduce_.* for sm_7: "
    ):
        compile_reduction("float32", "SUM", 7)
    with pytest.raises(ValueError, match="no reduction"):
        compile_reduction("float32", "PLUS", OLDEST)

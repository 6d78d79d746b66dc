# SPDX-License-Identifier: BSD-3-Clause
"""_C.pyi says what the extension offers: no more, no less, and the same arguments."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch

import altorch
from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
STUB = ast.parse((Path(altorch.__file__).parent / "_C.pyi").read_text())


def stub_of(name):
    return next(node for node in STUB.body if getattr(node, "name", None) == name)


def names_of(body):
    return {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }


# Where torch has no reconfigure().
MISSING = set() if hasattr(torch.distributed, "_reconfigure") else {"ReconfigurableBackend"}


def own(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


@pytest.fixture(scope="module")
def extension():
    from altorch._extension import extension

    return extension()


def test_functions_and_classes(extension):
    offered = {name for name in dir(extension) if not name.startswith("_")}
    assert names_of(STUB.body) - MISSING == offered


def test_members_of_classes(extension):
    classes = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
    assert classes
    for node in classes:
        if node.name not in MISSING:
            assert names_of(node.body) == own(getattr(extension, node.name)), node.name


def test_arguments(extension):
    for node in STUB.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        documented = inspect.getdoc(getattr(extension, node.name)) or ""
        signature = documented.partition("\n")[0]
        found = re.findall(r"[(,] *\*{0,2}(\w+):", signature)
        stated = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        if found and not found[0].startswith("arg0"):
            assert found == stated, node.name

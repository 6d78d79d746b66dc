# SPDX-License-Identifier: BSD-3-Clause
"""Collection order, pools and options of the Python tests."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2]))  # tests.ranks, tests.drill
os.environ.setdefault("ALTORCH_TEST_SEED", str(random.SystemRandom().randint(1, 10**9)))
# c10d's store looks up the name of every peer: ten seconds each where the name server does not
# answer.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

import harness
import tiers
import virtual_nodes

from tests.ranks import launch

# Each has tests of 20 seconds and more.
LONG_MODULES = ("test_fail_and_go_on", "test_torch_suite", "test_examples", "test_cli", "test_docs_blocks")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=tiers.TIERS, default="full", help="which items run; the others are deselected"
    )
    parser.addoption("--large", action="store_true", help="run the tests that move more than 2 GiB")
    parser.addoption("--torch-suite", action="store_true", help="run all of PyTorch's DistributedTest")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: moves more than 2 GiB; run with --large")
    config.addinivalue_line("markers", "gpu: needs GPUs; skipped, with the reason, where there are too few")


def pytest_report_header(config: pytest.Config) -> str:
    backend, launcher = launch.backend_under_test(), launch.launcher_under_test()
    mpi = os.environ.get("ALTORCH_MPI", "altorch's choice")
    seed = os.environ["ALTORCH_TEST_SEED"]
    tier = config.getoption("--tier")
    return (
        f"altorch: tier {tier}, backend {backend}, launcher {launcher}, MPI {mpi}, ALTORCH_TEST_SEED={seed}"
    )


@pytest.hookimpl(trylast=True)  # of the items that -k and -m leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected = tiers.select(items, config.getoption("--tier"))
    if deselected := set(items).difference(selected):
        config.hook.pytest_deselected(items=[item for item in items if item in deselected])
        items[:] = selected
    if not config.getoption("--large"):
        skip = pytest.mark.skip(reason="moves more than 2 GiB: run with --large")
        for item in items:
            if item.get_closest_marker("large"):
                item.add_marker(skip)
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no GPU is visible")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)
    # Long tests first, so that no worker is left alone with one. Tests of one pool follow one
    # another, so that each pool starts once.
    keys = [key for key in map(harness.pool_key_of, items) if key]
    in_order = sorted(dict.fromkeys(keys), key=lambda key: (key[1], key[0]))
    order = {key: index for index, key in enumerate(in_order)}

    def place(item: pytest.Item) -> tuple[int, bool]:
        return order.get(harness.pool_key_of(item), -1), item.path.stem not in LONG_MODULES  # type: ignore[arg-type]

    items.sort(key=place)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a pool after its last test; a pool that does not end cleanly is an error of that test."""
    key = harness.pool_key_of(item)
    if key is None or (nextitem is not None and harness.pool_key_of(nextitem) == key):
        return
    try:
        harness.close_pool()
    except harness.RankFailure as failure:
        pytest.fail(str(failure), pytrace=False)


def pytest_sessionfinish() -> None:
    harness.close_pool(kill=True)


@pytest.fixture
def nodes() -> Iterator[tuple[virtual_nodes.Node, virtual_nodes.Node]]:
    """Two nodes on this machine."""
    problem = virtual_nodes.unsupported_reason()
    if problem:
        pytest.skip(problem)
    with virtual_nodes.virtual_nodes() as pair:
        yield pair

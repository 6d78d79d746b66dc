# SPDX-License-Identifier: BSD-3-Clause
"""`altorch check --between-nodes`: the schedule, what counts as slow, and a run on a machine that is cut into nodes."""

from __future__ import annotations

import itertools
import json
import random
import socket
import threading

import pytest
import torch.distributed
from harness import PROGRAM_DEADLINE

from altorch.bench import tcp_floor
from altorch.between_nodes import document, links, notes, outliers, schedule, tables
from altorch.between_nodes.board import Board
from altorch.cli import main
from tests.ranks.launch import backend_under_test, clean_environment, fork_server, rank_environment
from tests.ranks.ports import free_port

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own command line: ALTORCH_TEST_BACKEND is not al"
)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 33])
def test_every_pair_has_one_round_and_a_round_has_a_node_once(count):
    rounds = schedule.rounds(count)
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy)) >= count - count % 2
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(count), 2))


def test_of_many_nodes_a_round_and_the_suspects_are_measured_alone():
    assert len(schedule.pairs_alone(8, [], 32)) == 28
    alone = schedule.pairs_alone(40, [(3, 4), (0, 39)], 32)
    assert alone == [*schedule.rounds(40)[0], (3, 4)]


def test_nodes_of_one_name_are_numbered():
    nodes = schedule.of_ranks([("a", "host"), ("b", "other"), ("a", "host"), ("c", "host")])
    assert nodes == [("host#1", (0, 2)), ("other", (1,)), ("host#2", (3,))]


def measured(count, slow=None, noise=0.0, key="GBps", usual=10.0):
    """Links of `count` nodes; `slow`: what a link has of the usual."""
    shares, draw = slow or {}, random.Random(1)
    return {
        pair: {"GBps": 10.0, key: usual * shares.get(pair, 1.0) * draw.uniform(1 - noise, 1 + noise)}
        for pair in itertools.permutations(range(count), 2)
    }


def of_node(count, node, ends=(0, 1), share=0.5):
    return {p: share for p in itertools.permutations(range(count), 2) if any(p[end] == node for end in ends)}


def found(rows):
    return [(finding.nodes, finding.directions or finding.both) for finding in outliers.find(rows)]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
def test_equal_links_are_not_slow(count):
    assert found(measured(count)) == found(measured(count, noise=0.12)) == []


@pytest.mark.parametrize("count", [3, 4, 5, 16])
def test_a_slow_node_is_named_and_its_links_are_not(count):
    both = measured(count, of_node(count, 1), noise=0.1)
    assert found(both) == [((1,), ["sending", "receiving"])]
    sending = measured(count, of_node(count, 2, ends=(0,)), noise=0.1)
    assert found(sending) == [((2,), ["sending"])]
    (finding,) = outliers.find(sending)
    assert finding.share == pytest.approx(0.5, rel=0.25) and finding.value == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("count", [3, 4, 16])
def test_a_slow_link_is_named(count):
    assert found(measured(count, {(0, 2): 0.5})) == [((0, 2), False)]
    assert found(measured(count, {(2, 0): 0.5, (0, 2): 0.4}, noise=0.1)) == [((0, 2), True)]


def test_of_two_nodes_the_slower_direction_is_named():
    assert found(measured(2, {(1, 0): 0.4})) == [((1, 0), False)]


def test_two_slow_nodes_of_six():
    slow = of_node(6, 1) | of_node(6, 4, share=0.3)
    assert sorted(nodes for nodes, _ in found(measured(6, slow))) == [(1,), (4,)]


def test_latency_is_slow_by_its_size_and_by_microseconds():
    slow = dict.fromkeys(of_node(4, 3), 4.0)
    small, large = (measured(4, slow, key="p10_latency_us", usual=usual) for usual in (3, 30))
    assert found(small) == []
    assert found(large) == [((3,), ["sending", "receiving"])]


def test_the_better_of_two_measurements_holds():
    rows = {}
    links.add_together(rows, [{"from": 0, "to": 1, "GBps": 1.0, "latency_us": 9.0}])
    for rate, latency in ((4.0, 7.0), (3.0, 8.0)):
        links.add_alone(rows, [{"from": 0, "to": 1, "GBps": rate, "latency_us": latency}])
    links.add_all_ranks(rows, [{"from": 0, "to": 1, "GBps": 2.0}] * 2)
    assert rows[0, 1] == {"GBps_together": 1.0, "latency_us": 7.0, "GBps": 4.0, "GBps_all_ranks": 4.0}
    assert rows[1, 0] == {"latency_us": 7.0}


def about(number, **other):
    return {"host": f"n{number}", "machine": str(number), "cores": 8, "load": 0.1, "network": "ucx: rc_mlx5",
            "nominal_GBps": 25.0, "address": ""} | other  # fmt: skip


def made(rows, abouts):
    nodes = [schedule.Node(f"n{number}", (number,)) for number in range(len(abouts))]
    run = {"backend": "al", "ranks": len(nodes), "launcher": "torchrun", "init_seconds": 1, "seconds": 9}
    return document.make(run, nodes, abouts, rows, outliers.find(rows))


def test_the_slowest_links_of_many_nodes_are_shown_and_json_has_all(capsys):
    rows = measured(20, of_node(20, 7), noise=0.1)
    for pair, link in rows.items():
        link |= {"tcp_GBps": 0.3 if 7 in pair else 1.0, "GBps_together": 0.5 * link["GBps"]}
    whole = made(rows, [about(n, network="ucx: tcp" if n == 7 else "ucx: rc_mlx5") for n in range(20)])
    assert len(whole["links"]) == 380 and not whole["passed"]
    (slow,) = whole["slow"]
    assert slow["node"] == "n7" and slow["tcp_share"] == pytest.approx(0.3)
    for words in ("n7 has ucx: tcp", "a switch or an uplink is shared", "half of the nominal rate"):
        assert any(words in note for note in whole["notes"]), whole["notes"]
    tables.show(json.loads(json.dumps(whole)))
    shown = capsys.readouterr().out
    assert "the 10 slowest of the 380" in shown and "node n7, sending and receiving" in shown
    assert len(shown.splitlines()) < 60


def test_notes_of_one_machine_say_so_and_nothing_of_a_network():
    whole = made(measured(3), [about(n, machine="same", load=9.0) for n in range(3)])
    assert whole["passed"] and whole["look_at"] == []
    assert whole["notes"][-1] == notes.ONE_MACHINE and "Loaded before" in whole["notes"][0]
    assert len(whole["notes"]) == 2


def test_a_plain_socket_is_measured():
    first, second = socket.create_server(("127.0.0.1", 0)), None
    with first:
        second = tcp_floor.connect("127.0.0.1", first.getsockname()[1])
        accepted, _ = first.accept()
    rows = {}
    other = threading.Thread(target=lambda: rows.update(tcp_floor.measure(accepted, False, 0.02, 5)))
    other.start()
    row = tcp_floor.measure(second, True, 0.02, 5)
    other.join(5)
    accepted.close()
    second.close()
    assert row["tcp_latency_us"] > 0 and row["received"] > 1e6 and rows["received"] > 1e6


@pytest.mark.parametrize("words", [(), ("--ranks", "2")])
def test_ranks_that_this_machine_would_start_are_refused(words, monkeypatch, capsys):
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert main(["check", "--between-nodes", *words]) == 2
    assert "needs ranks on several nodes" in capsys.readouterr().err


def test_the_rank_that_may_host_the_store_leaves_last():
    store, left = torch.distributed.HashStore(), []
    first = threading.Thread(target=lambda: left.append(Board(store, 5).leave(0, 2)))
    first.start()
    first.join(0.1)
    assert not left
    Board(store, 5).leave(1, 2)
    first.join(5)
    assert left


def start(nodes, tmp_path, *words):
    """One rank for each text in `nodes`; exit status, output and errors of each."""
    port = free_port()
    children = []
    for rank, node in enumerate(nodes):
        env = rank_environment(rank, len(nodes), "127.0.0.1", port) | {"ALTORCH_NODE": node}
        files = [tmp_path / f"{kind}-{rank}" for kind in ("output", "errors")]
        arguments = (["check", "--between-nodes", *words], str(files[1]))
        children.append(
            (fork_server().start("test_cli:run_command", clean_environment(env), files[0], *arguments), files)
        )
    try:
        return [
            (child.wait(PROGRAM_DEADLINE), *(file.read_text() for file in files)) for child, files in children
        ]
    finally:
        for child, _ in children:
            child.kill()


def test_a_machine_that_is_cut_into_nodes(tmp_path, capsys):
    ranks = start(["a", "b", "b", "c", "a"], tmp_path, "--json", "--seconds", "0.5")
    whole = json.loads(ranks[0][1])
    assert {status for status, _, _ in ranks} == {int(not whole["passed"])}, ranks
    assert [row["ranks"] for row in whole["nodes"]] == [[0, 4], [1, 2], [3]]
    assert len(whole["links"]) == 6 and notes.ONE_MACHINE in whole["notes"]
    for link in whole["links"]:
        for key in (
            "p10_latency_us",
            "latency_us",
            "GBps",
            "GBps_together",
            "GBps_all_ranks",
            "messages_per_second",
        ):
            assert link[key] > 0, link
        assert link["tcp_GBps"] > 0 and link["tcp_latency_us"] > 0
    assert all(row["network"] for row in whole["nodes"])
    tables.show(whole)
    assert "5 ranks on 3 nodes" in capsys.readouterr().out


def test_ranks_of_one_node_are_refused(tmp_path):
    ranks = start(["", ""], tmp_path)
    assert [status for status, _, _ in ranks] == [2, 2]
    assert "all ranks (2) are on one" in ranks[0][2] and "all ranks" not in ranks[1][2]

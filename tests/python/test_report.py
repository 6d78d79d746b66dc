# SPDX-License-Identifier: BSD-3-Clause
"""`altorch report`: rows are those of the files, the page holds them, and no file causes a traceback."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Cluster

import altorch
from altorch.cli import main
from altorch.report import clocks, document, files, plain_pickle, timeline, waits, write_bench
from altorch.report.records import Call, Group
from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own command line: ALTORCH_TEST_BACKEND is not al"
)
BEGIN = 1_700_000_000_000_000_000
WORLD = Group("0", "default_pg", (0, 1))


def report(*arguments):
    """The exit status."""
    return main(["report", *map(str, arguments)])


def entry(sequence, begin_ms, end_ms=None, operation="all_reduce", elements=256, **more):
    """As torch dumps one."""
    completed = end_ms is not None
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": f"al:{operation}",
        "time_created_ns": BEGIN + int(begin_ms * 1e6),
        "time_discovered_completed_ns": BEGIN + int(end_ms * 1e6) if completed else None,
        "duration_ms": end_ms - begin_ms if completed else None,
        "input_sizes": [[elements]],
        "input_dtypes": ["Float"],
        "output_sizes": [],
        "output_dtypes": [],
        "state": "completed" if completed else "started",
        "retired": completed,
    } | more


def record(entries, ranks="[0, 1]"):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": entries,
    }


def write(folder, records, dump=pickle.dumps):
    written = []
    for rank, entries in records.items():
        written.append(folder / f"rank_{rank}")
        found = dump(record(entries, str(sorted(records))))
        written[-1].write_bytes(found if isinstance(found, bytes) else found.encode())
    return written


def rows_of(folder, records, **more):
    return document.of(files.read(write(folder, records)), **more)


TWO_RANKS = {
    0: [entry(1, 0, 501), entry(2, 510, 520), entry(3, 600)],
    1: [entry(1, 500, 501), entry(2, 519, 520)],
}


# ------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("dump", [pickle.dumps, json.dumps], ids=["pickle", "json"])
def test_who_waited_for_whom(dump, tmp_path):
    found = document.of(files.read(write(tmp_path, TWO_RANKS, dump)))
    assert [(row["rank"], row["for"], row["calls"]) for row in found["pairs"]] == [(0, 1, 2)]
    assert found["pairs"][0]["seconds"] == pytest.approx(0.509)
    assert [row["waited_for_s"] for row in found["waited_for"]] == pytest.approx([0, 0.509])
    longest = found["waits"][0]
    assert (longest["sequence"], longest["last_rank"], longest["bytes"]) == (1, 1, 1024)
    assert "509 ms of it for rank 1" in found["answer"] and "rank 0 waited 500 ms" in found["answer"]
    (hung,) = found["incomplete"]
    assert (hung["sequence"], hung["ranks"], hung["missing"]) == (3, [0], [1])
    (total,) = found["operations"]
    assert (total["count"], total["bytes"], total["incomplete"]) == (5, 5 * 1024, 1)
    assert total["total_s"] == pytest.approx(0.501 + 0.010 + 0.001 + 0.001)
    assert total["median_s"] == pytest.approx(0.0055)


def test_the_root_of_a_broadcast_waits_for_no_rank(tmp_path):
    """Rank 2 waits for the root, though rank 1 comes later: the call is done on it by then."""
    found = rows_of(
        tmp_path,
        {
            0: [entry(1, 10, 10.1, "broadcast")],
            1: [entry(1, 30, 30.1, "broadcast")],
            2: [entry(1, 0, 10.2, "broadcast")],
        },
    )
    assert [(row["rank"], row["for"]) for row in found["pairs"]] == [(2, 0)]
    assert found["pairs"][0]["seconds"] == pytest.approx(0.010)


def test_a_record_without_ends_tells_waits(tmp_path):
    """As torch's own hook writes them of Gloo."""
    ended = {"retired": True, "state": "scheduled"}
    found = rows_of(tmp_path, {0: [entry(1, 0, **ended)], 1: [entry(1, 40, **ended)]})
    assert found["pairs"] == [{"rank": 0, "for": 1, "seconds": pytest.approx(0.040), "calls": 1}]
    assert found["incomplete"] == [] and found["operations"][0]["median_s"] is None
    assert found["timeline"]["columns"]["seconds"] == pytest.approx([0.040, 0])
    assert "do not say when calls ended" in " ".join(found["notes"])


def test_a_call_that_a_record_has_lost_is_not_missing(tmp_path):
    found = rows_of(tmp_path, {0: [entry(1, 0, 9), entry(2, 10)], 1: [entry(3, 20)]})
    assert found["waits"] == []
    assert [(row["sequence"], row["missing"]) for row in found["incomplete"]] == [(2, []), (3, [0])]


def test_a_rank_without_a_record_is_named(tmp_path):
    write(tmp_path, TWO_RANKS)
    found = document.of(files.read([tmp_path / "rank_0"]))
    assert "No record of rank 1 was given" in " ".join(found["notes"])
    assert found["incomplete"][0]["not_recorded"] == [1] and not found["waits"]


def call(rank, sequence, begin_ms, end_ms, operation="all_reduce", group=WORLD):
    begin, end = (BEGIN + int(at * 1e6) for at in (begin_ms, end_ms))
    return Call(rank, group, operation, sequence, False, begin, end, end - begin)


def test_clocks_of_two_hosts_are_aligned_by_the_ends_of_calls():
    ahead = 7_000  # milliseconds that rank 1's clock is ahead
    calls = [
        each
        for number in range(5)
        for each in (
            call(0, number, 10 * number, 10 * number + 5),
            call(1, number, ahead + 10 * number + 4, ahead + 10 * number + 5),
        )
    ]
    wholes = waits.collectives_of(calls)
    for hosts in ({0: "a", 1: "b"}, {}):  # where hosts are not known, an impossible order tells
        assert clocks.shifts(wholes, hosts, [0, 1]) == {1: ahead * 1_000_000}
    assert clocks.shifts(wholes, {0: "a", 1: "a"}, [0, 1]) == {}
    moved = [clocks.shifted(each, ahead * 1_000_000 if each.rank else 0) for each in calls]
    rows = waits.wait_rows(waits.collectives_of(moved), {0, 1}, BEGIN)
    assert [row["waited_s"] for row in rows] == pytest.approx([0.004] * 5)


def test_groups_of_one_name_are_kept_apart():
    """A group that was made anew counts from 1 again; other ranks may have a group of that name."""
    other = Group("0", "default_pg", (2, 3))
    calls = [call(rank, 1, at, at + 1) for rank in (0, 1) for at in (0, 100)]
    wholes = waits.collectives_of([*calls, call(2, 1, 0, 1, group=other)])
    assert sorted(sorted(whole.calls) for whole in wholes) == [[0, 1], [0, 1], [2]]
    assert all(wait.seconds == 0 for whole in wholes for wait in waits.waits_in(whole))


def test_the_timeline_keeps_the_latest_calls(tmp_path):
    many = {rank: [entry(n, 10 * n, 10 * n + 5 + rank) for n in range(50)] for rank in (0, 1)}
    found = rows_of(tmp_path, many, most_calls=20)
    shown = found["timeline"]
    assert (shown["shown"], shown["total"]) == (40, 100)
    assert min(shown["columns"]["sequence"]) == 30 and {len(c) for c in shown["columns"].values()} == {40}
    assert "the latest 40 of 100 calls" in " ".join(found["notes"])
    assert found["operations"][0]["count"] == 100
    assert timeline.lanes_of([(0, 5), (1, 2), (3, 9), (5, 6)]) == [0, 1, 1, 0]


# ------------------------------------------------------------------------------------------------------- page


def test_the_page_holds_the_rows_and_needs_no_network(tmp_path, capsys):
    pytest.importorskip("plotly", reason="plotly draws the page: pip install 'altorch[report]'")
    stats = tmp_path / "stats_0.json"
    stats.write_text(
        json.dumps(
            [{"operation": "all_reduce", "count": 3, "bytes": 9, "route": "</script>", "seconds": 1.5}]
        )
    )
    rows = tmp_path / "rows.jsonl"
    bench = {"contender": "al", "operation": "all_reduce", "dtype": "float32", "ranks": 2, "median_us": 3.0}
    run = {"benchmark": "run", "machine": "<b>a CPU\ud800", "cores": 2, "memory_gib": float("nan")}
    lines = [run, *(bench | {"bytes": size, "busbw_GBps": size / 100} for size in (8, 1024))]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given, page = [*write(tmp_path, TWO_RANKS), stats, rows], tmp_path / "page.html"
    assert report(*given, "--json", "-o", page) == 0
    told, text = json.loads(capsys.readouterr().out), page.read_text()
    held = json.loads(re.search(r"<script type='application/json' id='rows'>(.*?)</script>", text)[1])
    assert held == told
    drawn = json.loads(re.search(r"id='figures'>(.*?)</script>", text)[1])["figures"]
    assert drawn[0]["data"][0]["x"] == [row["waited_for_s"] for row in told["waited_for"]]
    assert [line["y"] for line in drawn[1]["data"]] == [[0.08, 10.24]]
    assert told["bandwidth"][1]["busbw_GBps"] == 10.24 and told["machines"][0]["cores"] == "2"
    assert told["timeline"]["names"]["route"] == ["</script>", ""]
    for cell in ("<td>rank 0</td><td>rank 1</td><td class='right'>509 ms</td>", "&lt;b&gt;a CPU", "501 ms"):
        assert cell in text
    assert text.count("</script>") == 4 and "<b>a" not in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)


def test_the_page_of_benchmark_rows(tmp_path):
    pytest.importorskip("plotly", reason="plotly draws the page: pip install 'altorch[report]'")
    row = {"contender": "al", "operation": "all_reduce", "bytes": 64, "median_us": 3.0, "busbw_GBps": 1.25}
    write_bench(tmp_path / "page.html", [row, row | {"busbw_GBps": float("nan")}, {"contender": "gloo"}])
    assert "1.25 GB/s: all_reduce of 64 B by al." in (tmp_path / "page.html").read_text()


def test_without_plotly_the_sentence_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    given = write(tmp_path, TWO_RANKS)
    assert report(*given, "-o", tmp_path / "page.html") == 2
    assert "pip install 'altorch[report]'" in capsys.readouterr().err
    assert report(*given, "--json") == 0


# ---------------------------------------------------------------------------------------- what others have written


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/must-not-be-made",)


def deep_key():
    return b"\x80\x02}(" + b")" + b"\x85" * 100_000 + b"K\x01u."


UNTIMED = {"process_group": ["0", ""], "profiling_name": "al:barrier"}
HOSTILE = {
    "a pickle that calls": (pickle.dumps({"version": "2.10", "entries": Evil()}), "has opcode"),
    "a pickle that imports": (pickle.dumps({"version": os.path.join, "entries": []}), "has opcode"),
    "a pickle cut off": (pickle.dumps(record([entry(1, 0, 1)]))[:-40], "cut off or damaged"),
    "a huge memo index": (b"\x80\x02}r\xff\xff\xff\x7f.", "is none of"),
    "a huge string": (b"\x80\x02X\xff\xff\xff\xff.", "cut off or damaged"),
    "a deep tuple as a key": (deep_key(), "damaged"),
    "an empty file": (b"\n", "is empty"),
    "a picture": (b"\x89PNG\r\n\x1a\n\xff\xfe", "is none of"),
    "JSON cut off": (json.dumps(record([entry(1, 0, 1)])).encode()[:-40], "not valid JSON"),
    "JSON lines cut off": (b'{"benchmark": "run"}\n{"benchm', "line 2 is not valid JSON"),
    "deep JSON": (b"[" * 100_000, "nested too deep"),
    "a long number": (b'{"entries": ' + b"9" * 5000 + b"}", "not valid JSON"),
    "another tool's file": (b'{"traceEvents": []}', "is none of"),
    "rows of another kind": (b'{"loss": 1}\n{"loss": 2}\n', "is none of"),
    "an entry without a time": (json.dumps(record([UNTIMED])).encode(), "an entry without"),
    "a time that is text": (json.dumps(record([entry(1, 0, 1, time_created_ns="now")])).encode(), "out of range"),
    "an infinite duration": (json.dumps(record([entry(1, 0, 1, duration_ms=float("inf"))])).encode(), "not a duration"),
    "a size below zero": (json.dumps(record([entry(1, 0, 1, elements=-5)])).encode(), "out of range"),
    "no list of ranks": (json.dumps(record([], ranks="__import__('os')")).encode(), "no list of numbers"),
    "a trace of two jobs": (b'{"jobs": [{}, {}]}', "holds 2 jobs"),
    "a trace of something else": (b'{"jobs": [{"ranks": {"0": {"groups": [{}]}}}]}', "an entry without"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_be_read_gives_a_sentence(name, tmp_path, capsys):
    content, reason = HOSTILE[name]
    file = tmp_path / "rank_0"
    file.write_bytes(content)
    assert report(file, "--json") == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said.err
    assert said.err.startswith(f"altorch report: {file}: ") and reason in said.err
    assert not Path("/tmp/must-not-be-made").exists()


def test_other_files_that_are_no_record(tmp_path, capsys):
    write(tmp_path, TWO_RANKS)
    (tmp_path / "record").write_bytes((tmp_path / "rank_0").read_bytes())
    (tmp_path / "other_0").write_bytes((tmp_path / "rank_0").read_bytes())
    os.mkfifo(tmp_path / "rank_7")
    for given, reason in (
        (("nowhere_0",), "nowhere_0: No such file"),
        (("",), "is not a regular file"),
        (("rank_7",), "is not a regular file"),
        (("record",), "does not end in a rank"),
        (("rank_0", "other_0"), "rank 0 is in"),
    ):
        assert report(*(tmp_path / name for name in given), "--json") == 2
        assert reason in capsys.readouterr().err


def test_a_damaged_pickle_is_refused_or_read():
    """Whatever byte is changed: no other exception comes."""
    whole = pickle.dumps(record([entry(1, 0, 1)]), 2)
    assert plain_pickle.loads(whole) == pickle.loads(whole)
    for place in range(len(whole)):
        for value in (0, whole[place] ^ 0x20, 255, ord("."), ord("u"), 0x8A):
            damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
            try:
                plain_pickle.loads(damaged)
            except ValueError as error:
                assert str(error).startswith("its pickle ")


# ---------------------------------------------------------------------------------------------------- a real job

HAS_RECORDER = hasattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS")
LATE = 0.7  # seconds


def come_late(world, folder):
    """Rank 1 sleeps before the second call. Each rank writes what torch would dump."""
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if world.rank == 1:
        time.sleep(LATE)
    dist.all_reduce(tensor)
    if not (world.is_al and HAS_RECORDER):
        return False
    altorch.publish_flight_record()
    Path(folder, f"rank_{world.rank}").write_bytes(
        torch._C._distributed_c10d._dump_fr_trace(backend="al", includeStackTraces=False)
    )
    Path(folder, f"stats_{world.rank}.json").write_text(json.dumps(altorch.stats()))
    return True


def test_a_job_whose_rank_1_is_late(tmp_path, capsys):
    with Cluster(2, env={"TORCH_FR_BUFFER_SIZE": "200"}) as cluster:
        if not all(cluster.check(come_late, folder=str(tmp_path))):
            pytest.skip("this torch does not record what al carries")
        assert main(["trace", str(cluster.pids[0]), "--json"]) == 0
        (tmp_path / "trace.json").write_text(capsys.readouterr().out)
        if importlib.util.find_spec("plotly"):
            assert main(["trace", str(cluster.pids[0]), "--html", str(tmp_path / "trace.html")]) == 0
            assert "all_reduce #2" in (tmp_path / "trace.html").read_text()
    capsys.readouterr()
    assert report(*sorted(tmp_path.glob("*_?")), *tmp_path.glob("*.json"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    pairs = {(row["rank"], row["for"]): row["seconds"] for row in found["pairs"]}
    assert LATE * 0.8 < pairs[0, 1] < LATE * 1.5 + 1
    assert found["waits"][0]["last_rank"] == 1 and found["waits"][0]["bytes"] == 4000
    assert "for rank 1. The longest wait was in all_reduce #2" in found["answer"]
    assert {row["host"] for row in found["ranks"]} == {os.uname().nodename}
    routes = {row["route"] for row in found["statistics"]}
    assert len(routes) == 1 and found["timeline"]["names"]["route"] == [*routes]
    assert found["incomplete"] == [] and found["clocks"]["moved_ns"] == {}

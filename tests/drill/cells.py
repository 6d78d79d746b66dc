# SPDX-License-Identifier: BSD-3-Clause
"""The table: which failure, at which moment, over which route, called how, and how that shall end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.drill.expectations import ERROR, PATIENCE, SUCCESS, Expected
from tests.drill.failures import DEATHS, DISAGREEMENTS, FAILURES, MISMATCHES, Failure
from tests.drill.needs import lacks_function
from tests.drill.routes import ROUTES, Route

# Of a group that must notice by other means than its deadline, and of one whose deadline is what is
# tried.
LONG, SHORT = 15.0, 3.0
LONG_ON_GPUS = 10.0  # torch's NCCL notices by its deadline alone, and every cell waits for it
NOTICED = 5.0  # seconds after which a death or a disagreement is known to all
GRACE, GRACE_ON_GPUS = 20.0, 30.0  # seconds that a cell may take beyond the group's timeout


@dataclass(frozen=True)
class Cell:
    failure: Failure
    moment: str
    call: str  # sync | async
    route: Route
    ranks: int
    timeout: float
    expected: Expected
    own_gpus: bool = False  # it can be tried only where no rank shares one
    function: str = ""  # of torch.distributed, that it needs

    @property
    def unsupported_reason(self) -> str:
        """Why it cannot be tried here; empty: it can."""
        return self.route.unsupported_reason(self.ranks, self.own_gpus) or lacks_function(self.function)

    @property
    def situation(self) -> str:
        """Without the route: a row of a table with a column for each."""
        ranks = f", {self.ranks} ranks" if self.ranks != 2 else ""
        call = ", async" if self.call == "async" else ""
        return f"{self.failure.name} {self.moment}{call}{ranks}"

    @property
    def name(self) -> str:
        return f"{self.situation} @ {self.route.name}"

    @property
    def victim(self) -> int:
        return self.ranks - 1

    @property
    def limit(self) -> float:
        grace = GRACE_ON_GPUS if self.route.device == "cuda" else GRACE
        return (self.timeout + grace) * PATIENCE


FINE = Expected(SUCCESS)


def noticed(*says: str) -> Expected:
    """A death or a disagreement."""
    return Expected(ERROR, NOTICED, ("group '", *says))


def timed_out(*says: str) -> Expected:
    """Groups with this one have the timeout SHORT."""
    return Expected(ERROR, SHORT + NOTICED, ("group '", *says))


@dataclass(frozen=True)
class Situation:
    failure: str
    moment: str
    expected: Expected
    calls: tuple[str, ...] = ("sync",)
    ranks: int = 2
    routes: tuple[str, ...] = ("shm", "mpi", "al-gloo", "gloo")
    own_gpus: bool = False
    function: str = ""

    def cells(self) -> Iterator[Cell]:
        for call in self.calls:
            for route in self.routes:
                long = LONG_ON_GPUS if ROUTES[route].device == "cuda" else LONG
                yield Cell(
                    FAILURES[self.failure],
                    self.moment,
                    call,
                    ROUTES[route],
                    self.ranks,
                    SHORT if self.expected.within == SHORT + NOTICED else long,
                    self.expected,
                    self.own_gpus,
                    self.function,
                )


ASYNC, BOTH = ("async",), ("sync", "async")
WINDOWS = ("shm", "mpi", "al-gloo", "nodes")  # the routes that have any
NODES = ("nodes", "nodes-gloo")
THIRD = ("shm", "mpi", "al-gloo", "nodes", "gloo")
ON_GPUS = ("cuda", "peer", "al-nccl", "host_staged", "host_relay", "nccl", "nccl2")
IN_GRAPHS = tuple(route for route in ON_GPUS if route != "host_relay")  # which cannot be captured
SHARING_GPUS = ("host_staged", "host_relay")  # the routes that let ranks do so
GPU_NODES = ("hierarchical", "hierarchical-relay")  # two ranks on each of two nodes

LOST, LATE = "rank 1 is lost", r"ranks?\b[^.;]*\b1\b"
AGREE = "called|aborted it|BAND is not defined"
BOTH_LATE = "timeout|has destroyed its part"  # of two deadlines at a time one passes first
EITHER = r"ranks?\b[^.;]*\b[01]\b"
CALL, SUM = "all_reduce|barrier|broadcast", "all_reduce"
WITHIN = ("in", "halfway through", "late in")  # what ranks do through the store
BEHIND = "async, other work behind it"
AT_THE_END = (
    "at the end, group not destroyed",
    "at the end, work in flight",
    "at the end, work in flight alone",
    "in destroy, work in flight",
    "in destroy, work in flight alone",
)


def _deaths() -> Iterator[Situation]:
    for death in DEATHS:
        yield Situation(death.name, "before all_reduce", noticed(SUM, LOST))
    for name in ("killed", "segfault", "os._exit"):
        yield Situation(name, "in large all_reduce", noticed(SUM, LOST))
    yield Situation("killed", "before all_reduce", noticed(SUM, LOST), ASYNC)
    yield Situation("killed", "in large all_reduce", noticed(SUM, LOST), ASYNC)
    yield Situation("killed", "in recv", noticed("recv from rank 1", LOST), BOTH)
    yield Situation("exits", "in recv", noticed("recv from rank 1", LOST))
    yield Situation("killed", "in large send", noticed("send to rank 1", LOST), BOTH)
    yield Situation("killed", "async, waited for later", noticed(SUM, LOST), ASYNC)
    yield Situation("killed", "async, behind another", noticed(SUM, LOST), ASYNC)
    yield Situation("killed", "in barrier", noticed("barrier", LOST), BOTH)
    yield Situation("raises", "in barrier", noticed("barrier", LOST))
    yield Situation("Ctrl-C", "in large all_reduce", noticed(SUM, f"{LOST}|a signal interrupted"))
    yield Situation("Ctrl-C", "alone in all_reduce", Expected(SUCCESS, LONG + NOTICED))
    yield Situation("killed with the store", "before all_reduce", noticed(SUM, LOST))
    switch = noticed("all_gather|reduce_scatter", LOST)
    yield Situation("killed", "in a token switch", switch, routes=(*WINDOWS, "gloo"))
    yield Situation("killed", "in wait_signal", noticed("wait for a signal of rank 1", LOST), routes=WINDOWS)
    yield Situation(
        "exits", "in wait_signal", noticed("wait for a signal of rank 1", "rank 1"), routes=WINDOWS
    )
    yield Situation("killed", "before init", timed_out("rank 1 has not come"))
    yield Situation("killed", "in init", timed_out("rank 1"))
    yield Situation("killed", "before new_group", noticed("rank 1"))
    yield Situation("exits", "before new_group", noticed("rank 1"))
    for moment in WITHIN:
        yield Situation("killed", f"{moment} new_group", noticed("rank 1"))
    yield Situation("killed", "before destroy", FINE)
    yield Situation("exits", "before destroy", FINE)
    for moment in ("before all_reduce", "in large all_reduce"):
        yield Situation("killed", moment, noticed(SUM, "rank 2 is lost"), ranks=3, routes=THIRD)
        yield Situation("killed", moment, noticed(SUM, LOST), routes=NODES)


def _delays() -> Iterator[Situation]:
    late = (SUM, LATE, "timeout")
    for delay in ("stopped", "late"):
        yield Situation(delay, "before all_reduce", timed_out(*late), BOTH)
        yield Situation(delay, "in barrier", timed_out("barrier", *late[1:]))
        yield Situation(delay, "in recv", timed_out("recv from rank 1", "timeout"))
        yield Situation(delay, "before new_group", timed_out("rank 1 has not come"))
        yield Situation(delay, "before init", timed_out("rank 1 has not come"))
        yield Situation(delay, "in wait_signal", timed_out("signal of rank 1", "timeout"), routes=WINDOWS)
    yield Situation("stopped", "in large all_reduce", timed_out(*late))
    yield Situation("stopped", "before all_reduce", timed_out(*late), routes=NODES)
    yield Situation("late", "async, waited for later", timed_out(*late), ASYNC)
    yield Situation("late", "async, behind another", timed_out(*late), ASYNC)
    yield Situation(
        "late", "before all_reduce", timed_out(SUM, r"ranks?\b[^.;]*\b2\b", "timeout"), ranks=3, routes=THIRD
    )
    for delay in ("stopped for 2 s", "late within the deadline"):
        for moment in ("before all_reduce", "in recv", "before init", "before new_group"):
            yield Situation(delay, moment, FINE)
        yield Situation(delay, "in wait_signal", FINE, routes=WINDOWS)
    yield Situation("stopped for 2 s", "in large all_reduce", FINE)
    yield Situation("stopped for 2 s", "in large all_reduce", FINE, routes=NODES)


def _disagreements() -> Iterator[Situation]:
    for mismatch in MISMATCHES:
        yield Situation(mismatch.name, "in a call", noticed(CALL, "rank [01]", AGREE))
    for name in ("other type", "bad argument"):
        yield Situation(name, "in a call", noticed(CALL, "rank [01]", AGREE), ASYNC)
        yield Situation(name, "in a call", noticed(CALL, "rank [012]", AGREE), ranks=3, routes=THIRD)
    yield Situation("other count", "in a call", noticed(CALL, "rank [01]", AGREE), routes=NODES)
    yield Situation("other count of a message", "in a call", noticed("rank [01]"))
    typed = ("shm", "al-gloo", "gloo")  # MPI tells no rank
    yield Situation("other type of a message", "in a call", noticed("of int32 where|rank [01]"), routes=typed)
    yield Situation("other order of two groups", "in a call", timed_out(SUM, EITHER, BOTH_LATE))
    yield Situation("other order of two groups", "in a call", FINE, ASYNC)


def _ends() -> Iterator[Situation]:
    yield Situation("aborts twice", "with work in flight", noticed(SUM, "abort|rank 1"), BOTH)
    yield Situation("aborts twice", "in large all_reduce", noticed(SUM, "abort|rank 1"))
    # Who has ended its group is not lost: the others wait for it as for one that is late, unless
    # their carrier says it.
    yield Situation("destroys its group", "before all_reduce", timed_out(SUM, LATE, BOTH_LATE))
    for moment in AT_THE_END:
        yield Situation("nothing", moment, FINE)
    yield Situation("forked child exits", "before all_reduce", FINE)
    yield Situation("forked child is killed", "before all_reduce", FINE)
    for failure in ("store killed", "store stopped"):
        yield Situation(failure, "before all_reduce", FINE)
        yield Situation(failure, "before destroy", FINE)
    yield Situation("store killed", "before new_group", timed_out("store"))
    yield Situation("store stopped", "before new_group", timed_out("store"))


def _after_losses() -> Iterator[Situation]:
    """Seconds count from the loss until the others have computed without it."""
    on = Expected(SUCCESS, 2 * NOTICED)
    moment = "before all_reduce, then survivors"
    yield Situation(
        "killed", moment, on, ranks=3, routes=("shm", "mpi", "al-gloo", "nodes", *SHARING_GPUS, "cuda")
    )
    yield Situation("exits", moment, on, ranks=3, routes=("shm", "mpi", "al-gloo"))
    yield Situation("killed", moment, on, routes=("cuda", "peer", "al-nccl"))
    yield Situation("killed", moment, on, ranks=4, routes=GPU_NODES)


def _changes() -> Iterator[Situation]:
    """Of a group's ranks, in place. Without MPI, which the route "mpi" has here all the same."""

    def each(failure: str, moment: str, expected: Expected, ranks: int = 2) -> Situation:
        return Situation(failure, moment, expected, ranks=ranks, function="_reconfigure")

    before = "before reconfigure"
    for death in ("killed", "exits"):
        yield each(death, before, noticed("reconfigure", LATE))
    for moment in WITHIN:
        yield each("killed", f"{moment} reconfigure", noticed("reconfigure", LATE))
        yield each("stopped for 2 s", f"{moment} reconfigure", FINE)
    yield each("stopped", "in reconfigure", timed_out("reconfigure", LATE))
    for delay in ("stopped", "late"):
        yield each(delay, before, timed_out("reconfigure", LATE))
    for delay in ("stopped for 2 s", "late within the deadline"):
        yield each(delay, before, FINE)
    for mismatch in DISAGREEMENTS:
        yield each(
            mismatch.name, "in reconfigure, then as before", timed_out("reconfigure", f"{EITHER}|uuid|handle")
        )
    yield each("killed", "before all_reduce, then reconfigure", Expected(SUCCESS, 2 * NOTICED), ranks=3)


def _on_gpus() -> Iterator[Situation]:
    yield from _on_each_gpu_route(ON_GPUS, 2)
    yield from _on_each_gpu_route(GPU_NODES, 4)
    for moment in ("before all_reduce", "in large all_reduce"):
        yield Situation("killed", moment, noticed(SUM, "rank 2 is lost"), ranks=3, routes=SHARING_GPUS)
    for ranks, routes in ((2, IN_GRAPHS), (4, GPU_NODES[:1])):
        for failure, ending in (("killed", noticed(SUM, _lost(ranks))), ("stopped for 2 s", FINE)):
            yield Situation(failure, "in replayed graphs", ending, ranks=ranks, routes=routes, own_gpus=True)
    signal, windows = "wait for a signal of rank 1", ("cuda", "peer")
    yield Situation("killed", "in wait_signal", noticed(signal, LOST), routes=windows)
    yield Situation("stopped", "in wait_signal", timed_out(signal, "timeout"), routes=windows)
    yield Situation("stopped for 2 s", "in wait_signal", FINE, routes=windows)


def _lost(ranks: int) -> str:
    return f"rank {ranks - 1} is lost"


def _on_each_gpu_route(routes: tuple[str, ...], ranks: int) -> Iterator[Situation]:
    """Cells take seconds to begin with, so that these are fewer than those on the CPU.

    Of four ranks on two nodes, rank 3 is the victim. The other node waits for rank 2 between the nodes, and may
    name that one as late."""
    victim = ranks - 1
    lost = noticed(SUM, _lost(ranks))
    late_rank = LATE if ranks == 2 else r"ranks?\b[^.;]*\b[23]\b"

    def each(failure: str, moment: str, expected: Expected, calls: tuple[str, ...] = ("sync",)) -> Situation:
        return Situation(failure, moment, expected, calls, ranks, routes)

    yield each("killed", "before all_reduce", lost, BOTH)
    yield each("killed", "in large all_reduce", lost, BOTH)
    for death in ("segfault", "raises"):
        yield each(death, "before all_reduce", lost)
    yield each("killed", BEHIND, lost, ASYNC)
    yield each("killed", "async, behind another", lost, ASYNC)
    yield each("killed", "in barrier, behind all_reduce", noticed("all_reduce|barrier", _lost(ranks)))
    yield each("killed", "in recv", noticed(f"recv from rank {victim}", _lost(ranks)))
    yield each("killed", "in large send", noticed(f"send to rank {victim}", _lost(ranks)))
    yield each("killed", "before new_group", noticed(f"rank {victim}"))
    yield each("killed", "in new_group", noticed(f"rank {victim}"))
    yield each("killed", "before destroy", FINE)

    late = timed_out(SUM, late_rank, "timeout")
    yield each("late", "before all_reduce", late)
    yield each("stopped", "before all_reduce", late, BOTH)
    yield each("late", BEHIND, late, ASYNC)
    for moment in ("before all_reduce", "in large all_reduce", "in recv"):
        yield each("stopped for 2 s", moment, FINE)
    yield each("stopped for 2 s", BEHIND, FINE, ASYNC)

    for mismatch in MISMATCHES:
        yield each(mismatch.name, "in a call", noticed(CALL, f"rank [0-{victim}]", AGREE))

    # What an abort has ended is not named: it is the group that was.
    yield each("aborts twice", "with work in flight", noticed(f"abort|rank {victim}"), BOTH)
    yield each("destroys its group", "before all_reduce", timed_out(SUM, late_rank, BOTH_LATE))
    for moment in AT_THE_END:
        yield each("nothing", moment, FINE)


CELLS = tuple(
    cell
    for part in (_deaths, _delays, _disagreements, _ends, _after_losses, _changes, _on_gpus)
    for situation in part()
    for cell in situation.cells()
)

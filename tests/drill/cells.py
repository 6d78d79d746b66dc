"""The table: which failure, at which moment, over which route, called how, and how that shall end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.drill.expectations import ERROR, PATIENCE, SUCCESS, Expected
from tests.drill.failures import DEATHS, FAILURES, MISMATCHES, Failure
from tests.drill.routes import ROUTES, Route

# Of a group that must notice by other means than its deadline, and of one whose deadline is what is tried.
LONG, SHORT = 15.0, 3.0
NOTICED = 5.0  # seconds after which a death or a disagreement is known to all
GRACE = 14.0  # seconds that a cell may take beyond the group's timeout


@dataclass(frozen=True)
class Cell:
    failure: Failure
    moment: str
    call: str  # sync | async
    route: Route
    ranks: int
    timeout: float
    expected: Expected

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
        return (self.timeout + GRACE) * PATIENCE


def group(operation: str) -> tuple[str, ...]:
    return ("group '", operation)


def noticed(operation: str, who: str) -> Expected:
    return Expected(ERROR, NOTICED, ("group '", operation, who))


def timed_out(operation: str, who: str) -> Expected:
    return Expected(ERROR, SHORT + NOTICED, ("group '", operation, who, "timeout"))


FINE = Expected(SUCCESS)


@dataclass(frozen=True)
class Situation:
    failure: str
    moment: str
    expected: Expected
    timeout: float = LONG
    calls: tuple[str, ...] = ("sync",)
    ranks: int = 2
    routes: tuple[str, ...] = ("shm", "mpi", "al-gloo", "gloo")

    def cells(self) -> Iterator[Cell]:
        for call in self.calls:
            for route in self.routes:
                yield Cell(
                    FAILURES[self.failure], self.moment, call, ROUTES[route], self.ranks, self.timeout, self.expected
                )  # fmt: skip


SYNC, BOTH = ("sync",), ("sync", "async")


def _situations() -> Iterator[Situation]:
    for death in DEATHS:
        yield Situation(death.name, "before all_reduce", noticed("all_reduce", "rank 1"))
    yield Situation("killed", "before all_reduce", noticed("all_reduce", "rank 1"), calls=("async",))
    yield Situation("killed", "in large all_reduce", noticed("all_reduce", "rank 1"), calls=BOTH)
    for mismatch in MISMATCHES:
        yield Situation(mismatch.name, "in a call", noticed("all_reduce|barrier", "rank"))


CELLS = tuple(cell for situation in _situations() for cell in situation.cells())

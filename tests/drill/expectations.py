# SPDX-License-Identifier: BSD-3-Clause
"""How a cell shall end, how it ended, and whether the one is the other."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any

# Slow or shared machines: ALTORCH_TEST_PATIENCE=3 triples every bound.
PATIENCE = float(os.environ.get("ALTORCH_TEST_PATIENCE", "1"))

# What a rank's life may end in; the failure itself says which of them is the victim's.
ERROR, SUCCESS, WRONG = "error", "success", "wrong"


@dataclass(frozen=True)
class Expected:
    """`outcome` of every surviving rank, within so many seconds of the failure (or of the call, if that came later).

    `says`: regular expressions that each survivor's message has to match.
    """

    outcome: str
    within: float = 0.0
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.outcome} within {self.within:g} s" if self.within else self.outcome


@dataclass
class RankEnd:
    """How one rank ended. `outcome` is what it wrote down itself; empty: it did not come to that."""

    rank: int
    is_survivor: bool
    expected_exit: int
    outcome: str = ""
    message: str = ""
    seconds: float = 0.0
    exit_code: int | None = None  # None: it still ran at the limit, and was killed
    last_words: str = ""  # the last line of what it printed, and of what the libraries below did
    output: str = ""  # the end of that


@dataclass
class Seen:
    ranks: list[RankEnd] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    skipped: str = ""  # why the cell did not run
    broken: str = ""  # what went wrong in the drill itself
    whole_seconds: float = 0.0

    @property
    def survivors(self) -> list[RankEnd]:
        return [end for end in self.ranks if end.is_survivor]

    @property
    def message(self) -> str:
        """The first line of a surviving rank's error."""
        texts = [end.message for end in self.survivors if end.message]
        return texts[0].splitlines()[0] if texts else ""

    @property
    def seconds(self) -> float:
        return max((end.seconds for end in self.survivors), default=0.0)

    def __str__(self) -> str:
        """In a few words, the worst first."""
        if self.skipped or self.broken:
            return f"skipped: {self.skipped}" if self.skipped else f"the drill broke: {self.broken}"
        hung = [end for end in self.ranks if end.exit_code is None]
        if hung:
            ended = all(end.outcome for end in hung)
            return "hang at the end" if ended else "hang"
        codes = {end.exit_code for end in self.ranks if end.exit_code != end.expected_exit}
        if codes:
            return f"exit code {', '.join(str(code) for code in sorted(codes, key=str))}"
        outcomes = {end.outcome for end in self.survivors}
        if WRONG in outcomes:
            return "wrong result"
        if outcomes == {ERROR}:
            return f"error after {self.seconds:.1f} s"
        return "error on some ranks" if ERROR in outcomes else SUCCESS

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"seen": str(self), "seconds": self.seconds, "message": self.message}


# A program that has caught its error, or had none, ends without a word. What the libraries below
# say when they are torn down in the wrong order sends its reader the wrong way.
def _is_misleading(end: RankEnd) -> bool:
    return end.expected_exit == 0 and end.last_words != "" and "altorch:" not in end.last_words


def objections(expected: Expected, seen: Seen) -> list[str]:
    """Everything in which the cell did not end as expected."""
    if seen.broken:
        return [f"the drill broke: {seen.broken}"]
    found = [f"left behind: {thing}" for thing in seen.left_behind]
    for end in seen.ranks:
        found += [f"rank {end.rank} {text}" for text in _objections_to(expected, end)]
    return found


def _objections_to(expected: Expected, end: RankEnd) -> list[str]:
    if end.exit_code is None:
        where = f"after its {end.outcome}" if end.outcome else "in its call"
        return [f"hung {where}, until it was killed"]
    found = []
    if end.exit_code != end.expected_exit:
        found.append(f"ended with exit code {end.exit_code} instead of {end.expected_exit}: {end.last_words}")
    if _is_misleading(end):
        found.append(f"left a last line: {end.last_words}")
    if not end.is_survivor:
        return [*found, f"saw a wrong result: {end.message}"] if end.outcome == WRONG else found
    if end.outcome != expected.outcome:
        return [*found, f"saw {end.outcome or 'nothing'} instead of {expected.outcome}: {end.message}"]
    if expected.within and end.seconds > expected.within * PATIENCE:
        found.append(f"was told after {end.seconds:.1f} s")
    missing = [pattern for pattern in expected.says if not re.search(pattern, end.message)]
    if missing:
        found.append(f"was not told {', '.join(missing)}: {end.message}")
    return found

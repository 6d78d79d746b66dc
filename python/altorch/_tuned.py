# SPDX-License-Identifier: BSD-3-Clause
"""The file of `altorch tune`: what it says, whether it holds here, and how the engine gets it.

    {"altorch_tuned": 1, "altorch": "0.1.0", "machine": {"cpu": "...", "cores": 2, "gpus": [...]}, "measured": {...},
     "rules": [{"operation": "all_reduce", "device": "cpu", "ranks": 2, "from": 16384, "below": 131072,
                "choice": "shm/one_step", "gain": 1.21}],
     "costs": [{"operation": "all_reduce", "device": "cpu", "ranks": 2, "us": [[1024, 4.2], [65536, 19.5]]}]}

Sizes are bytes of a rank's larger buffer, as ALTORCH_ROUTE counts them; `gain` is the default's time over the choice's.
A machine has "gpus" only in a file with choices for CUDA tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import warnings
from pathlib import Path
from typing import Any

from altorch._extension import extension
from altorch._version import __version__

FORMAT = 1
MOST_BYTES = 1 << 20
_ABSENT = "none"
_applied: tuple[str, str] = ("", "")  # the file, and what it said


def digest() -> str:
    """Of the rules that hold for new groups, for the ranks to compare; `none` where there are none."""
    return hashlib.sha256(_applied[1].encode()).hexdigest()[:12] if _applied[1] else _ABSENT


def apply() -> None:
    """Gives the engine the file of ALTORCH_TUNED. A file that does not hold here is refused with one warning."""
    global _applied
    path = os.environ.get("ALTORCH_TUNED", "")
    if path == _applied[0]:
        return
    try:
        document = read(Path(path)) if path else {"rules": []}
        rules, costs = as_text(document), costs_of(document)
        extension().set_tuned_costs(costs)  # refuses what does not hold, and changes nothing then
        extension().set_tuned_rules(rules)
    except (OSError, ValueError, RuntimeError) as error:
        rules, costs = "", []
        extension().set_tuned_costs(costs)
        extension().set_tuned_rules(rules)
        # With -W error the other ranks would wait for one that does not come.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(
                f"altorch: ALTORCH_TUNED is left aside, the defaults serve: {path}: {_reason(error)}",
                RuntimeWarning,
                stacklevel=2,
            )
    _applied = (path, rules + (json.dumps(costs) if costs else ""))


def read(path: Path) -> dict[str, Any]:
    """The document. Raises OSError, or ValueError that says what is wrong, and in which line of no JSON."""
    # O_NONBLOCK: a FIFO would keep the other ranks waiting.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    if not isinstance(document, dict) or "altorch_tuned" not in document:
        raise ValueError("it is none of `altorch tune`")
    if document["altorch_tuned"] != FORMAT:
        raise ValueError(
            f"its format is {document['altorch_tuned']!r}, this altorch reads {FORMAT}; tune again"
        )
    if document.get("altorch") != __version__:
        raise ValueError(f"altorch {document.get('altorch')} wrote it, this is {__version__}; tune again")
    rules = document.get("rules")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ValueError("'rules' is no list of rules")
    there = document.get("machine")
    here = machine(on_gpus=isinstance(there, dict) and "gpus" in there)
    if there != here:
        raise ValueError(f"it was measured on {_words(there)}, this is {_words(here)}; tune again")
    return document


def as_text(document: dict[str, Any]) -> str:
    """The rules as ALTORCH_ROUTE would say them."""
    return ",".join(_rule(number, rule) for number, rule in enumerate(document["rules"], 1))


def costs_of(document: dict[str, Any]) -> list[Any]:
    """As the engine takes them: on a GPU or not, operation, ranks, pairs of bytes and us. Raises ValueError."""
    found = document.get("costs", [])
    if not isinstance(found, list):
        raise ValueError("'costs' is no list")
    return [_cost(number, row) for number, row in enumerate(found, 1)]


def _cost(number: int, row: Any) -> Any:
    """The engine looks at what is in it."""
    try:
        points = [(int(size), float(us)) for size, us in row["us"]]
        return row["device"] == "cuda", str(row["operation"]), int(row["ranks"]), points
    except (TypeError, ValueError, KeyError, OverflowError):
        raise ValueError(f"costs, row {number}: it has no times") from None


def machine(on_gpus: bool = False) -> dict[str, Any]:
    """What a file must have been measured on."""
    from altorch.bench.rows import cpu_model

    found: dict[str, Any] = {"cpu": cpu_model(), "cores": os.cpu_count()}
    return found | {"gpus": _gpus()} if on_gpus else found


def _gpus() -> list[str]:
    """Of the machine, whichever of them this process sees. The driver is asked, and CUDA is not started."""
    models = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return models


def _rule(number: int, rule: dict[str, Any]) -> str:
    operation, choice = rule.get("operation"), rule.get("choice")
    for name, word in (("operation", operation), ("choice", choice)):
        if not isinstance(word, str) or not word.replace("/", "").replace("_", "").isalnum():
            raise ValueError(f"rule {number}: '{name}' is no name")
    numbers = {name: rule.get(name) for name in ("ranks", "from", "below")}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
            raise ValueError(f"rule {number}: '{name}' is no number")
    return f"{operation}@{numbers['ranks']}:{numbers['from']}-{numbers['below']}={choice}"


def _words(found: object) -> str:
    if not isinstance(found, dict):
        return "an unknown machine"
    gpus = f" with the GPUs {found['gpus']}" if "gpus" in found else ""
    return f"{found.get('cores')} cores of {found.get('cpu')}{gpus}"


def _reason(error: Exception) -> str:
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return reason.encode("ascii", "backslashreplace").decode()[:400]  # the file may say anything

# SPDX-License-Identifier: BSD-3-Clause
"""The file of `altorch tune`: its format, its checks, and how the engine receives it.

    {"altorch_tuned": 1, "altorch": "0.1.0", "machine": {"cpu": "...", "cores": 2, "gpus": [...]}, "measured": {...},
     "rules": [{"operation": "all_reduce", "device": "cpu", "ranks": 2, "nodes": 1, "from": 16384, "below": 131072,
                "choice": "shm/one_step", "gain": 1.21}],
     "costs": [{"operation": "all_reduce", "device": "cpu", "ranks": 2, "us": [[1024, 4.2], [65536, 19.5]]}]}

Sizes are bytes of a rank's larger buffer, as ALTORCH_ROUTE counts them; `gain` is the default's time over the choice's.
A rule without "nodes" is for one node. "costs" are of groups on one node.
"machine" lists "gpus" only if something of the file was measured with --device cuda.
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
    """A hash of the rules and costs in effect, which the ranks compare; "none" without any."""
    return hashlib.sha256(_applied[1].encode()).hexdigest()[:12] if _applied[1] else _ABSENT


def apply() -> None:
    """Passes the file of ALTORCH_TUNED to the engine. An invalid file is ignored, with one warning."""
    global _applied
    path = os.environ.get("ALTORCH_TUNED", "")
    if path == _applied[0]:
        return
    try:
        document = read(Path(path)) if path else {"rules": []}
        rules, costs = as_text(document), costs_of(document)
        extension().set_tuned_costs(costs)  # refuses what does not hold, and changes nothing then
        extension().set_tuned_rules(rules)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        rules, costs = "", []
        extension().set_tuned_costs(costs)
        extension().set_tuned_rules(rules)
        # With -W error, the exception would leave the peers waiting for this rank.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(
                f"altorch: ALTORCH_TUNED={path} is ignored, the defaults apply: {_reason(error)}",
                RuntimeWarning,
                stacklevel=2,
            )
    _applied = (path, rules + (json.dumps(costs) if costs else ""))


def read(path: Path) -> dict[str, Any]:
    """The document. Raises OSError, or ValueError with the reason; for invalid JSON it names the line."""
    # O_NONBLOCK: a FIFO would keep the other ranks waiting.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    if not isinstance(document, dict) or "altorch_tuned" not in document:
        raise ValueError("it was not written by `altorch tune`")
    if document["altorch_tuned"] != FORMAT:
        raise ValueError(
            f"its format is {document['altorch_tuned']!r}, this altorch reads {FORMAT}; tune again"
        )
    if document.get("altorch") != __version__:
        raise ValueError(f"altorch {document.get('altorch')} wrote it, this is {__version__}; tune again")
    rules = document.get("rules")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ValueError("'rules' is not a list of objects")
    there = document.get("machine")
    here = machine(on_gpus=isinstance(there, dict) and "gpus" in there)
    if there != here:
        raise ValueError(f"it was measured on {_words(there)}, this is {_words(here)}; tune again")
    rows = [*rules, *(document["costs"] if isinstance(document.get("costs"), list) else [])]
    if "gpus" not in here and any(isinstance(row, dict) and row.get("device") == "cuda" for row in rows):
        raise ValueError("it has entries for CUDA tensors, and no models of GPUs; tune again")
    return document


def as_text(document: dict[str, Any]) -> str:
    """The rules as ALTORCH_ROUTE would say them."""
    return ",".join(_rule(number, rule) for number, rule in enumerate(document["rules"], 1))


def costs_of(document: dict[str, Any]) -> list[Any]:
    """As the engine takes them: on a GPU or not, operation, ranks, pairs of bytes and us. Raises ValueError."""
    found = document.get("costs", [])
    if not isinstance(found, list):
        raise ValueError("'costs' is not a list")
    return [_cost(number, row) for number, row in enumerate(found, 1)]


def _cost(number: int, row: Any) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("us"), list):
        raise ValueError(f"costs, row {number}: 'us' is not a list")
    where = f"costs, row {number}"
    operation, device = _name(row, "operation", where), _device(row, where)
    ranks = _number(row, "ranks", where, below=1 << 31)
    if nodes_of(row) != 1:
        raise ValueError(f"{where}: times are of ranks on one node")
    points = []
    for point in row["us"]:
        if not isinstance(point, list) or len(point) != 2 or isinstance(point[1], bool):
            raise ValueError(f"{where}: 'us' must hold pairs [bytes, us]")
        size, took = point
        if not isinstance(took, (int, float)) or not 0 < took < 1e12:
            raise ValueError(f"{where}: a time is not between 0 and 1e12 us")
        points.append((_number({"a size": size}, "a size", where), float(took)))
    return device == "cuda", operation, ranks, points


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
    where = f"rule {number}"
    operation, choice = _name(rule, "operation", where), _name(rule, "choice", where)
    _device(rule, where)
    ranks, begin, below = (_number(rule, name, where) for name in ("ranks", "from", "below"))
    return f"{operation}@{ranks}/{_nodes(rule, where)}:{begin}-{below}={choice}"


def _nodes(rule: dict[str, Any], where: str) -> int:
    return _number({"nodes": nodes_of(rule)}, "nodes", where, below=1 << 31, least=1)


def nodes_of(row: dict[str, Any]) -> Any:
    """The number of nodes of a rule or a row of costs; 1 where it names none."""
    return row.get("nodes", 1)


def _name(row: dict[str, Any], name: str, where: str) -> str:
    word = row.get(name)
    if not isinstance(word, str) or not (word.isascii() and word.replace("/", "").replace("_", "").isalnum()):
        raise ValueError(f"{where}: '{name}' is not a name")
    return word


def _number(row: dict[str, Any], name: str, where: str, below: int = 1 << 62, least: int = 0) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < below:
        raise ValueError(f"{where}: '{name}' is not a number from {least} on, or too large")
    return value


def _device(row: dict[str, Any], where: str) -> str:
    device = row.get("device", "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"{where}: 'device' is neither cpu nor cuda")
    return str(device)


def _words(found: object) -> str:
    if not isinstance(found, dict):
        return "an unknown machine"
    gpus = f" with the GPUs {found['gpus']}" if "gpus" in found else ""
    return f"{found.get('cores')} cores of {found.get('cpu')}{gpus}"


def _reason(error: Exception) -> str:
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return reason.encode("ascii", "backslashreplace").decode()[:400]  # the file may say anything

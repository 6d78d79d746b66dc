# SPDX-License-Identifier: BSD-3-Clause
"""`altorch tune --diff`: what a tuned file changes against the defaults, and what each change has gained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from altorch.cli._output import human_bytes, print_json, print_table
from altorch.cli.explain import chosen

_MOST_RANKS = 65_536  # the explanation of a default lists their messages


def show(path: Path, as_json: bool) -> int:
    from altorch import _tuned
    from altorch._extension import extension

    try:
        document = _tuned.read(path)
        text = _tuned.as_text(document)
        extension().set_tuned_rules(text)  # refuses what it does not know
        extension().set_tuned_rules("")
        changes = [_change(rule) for rule in document["rules"]]
    except (OSError, ValueError, RuntimeError) as error:
        print(f"altorch tune: {path}: {error}", file=sys.stderr)
        return 2
    if as_json:
        print_json({"file": str(path), "measured": document.get("measured", {}), "changes": changes})
        return 0
    if not changes:
        print(f"{path} changes nothing: where it was measured, the defaults are right")
        return 0
    rows = [
        [
            change["operation"],
            change["device"],
            str(change["ranks"]),
            str(change["nodes"]),
            f"{human_bytes(change['from'])} to {human_bytes(change['below'])}",
            change["default"],
            change["choice"],
            f"{change['gain']:.2f}x" if change["gain"] is not None else "",
        ]
        for change in changes
    ]
    print_table(
        f"What {path} changes",
        ["operation", "device", "ranks", "nodes", "sizes", "default", "choice", "gain"],
        rows,
    )
    return 0


def _change(rule: dict[str, Any]) -> dict[str, Any]:
    from altorch import _tuned

    smallest, largest = rule["from"], max(rule["from"], rule["below"] - 1)
    names = list(dict.fromkeys(_default(rule, size) for size in (smallest, largest)))
    gain = rule.get("gain")
    return {
        **{name: rule[name] for name in ("operation", "ranks", "from", "below")},
        "device": rule.get("device", "cpu"),  # as_text() has looked at these two
        "nodes": _tuned.nodes_of(rule),
        "default": ", then ".join(names),
        "choice": rule["choice"],
        "gain": gain if isinstance(gain, float) and 0 < gain < 1e6 else None,
    }


def _default(rule: dict[str, Any], size: int) -> str:
    from altorch import _tuned
    from altorch._extension import extension

    nodes = _tuned.nodes_of(rule)
    if not nodes <= rule["ranks"] <= _MOST_RANKS:
        return "?"
    if rule.get("device") == "cuda":
        return "as chosen"  # which depends on the links between the GPUs
    found = extension().explain(rule["operation"], "float32", _block(rule, size), rule["ranks"], nodes=nodes)
    return chosen(found, "algorithm")


def _block(rule: dict[str, Any], size: int) -> int:
    """What `explain` counts: the tensor, or one block."""
    return size // rule["ranks"] if rule["operation"] in ("all_gather", "reduce_scatter") else size

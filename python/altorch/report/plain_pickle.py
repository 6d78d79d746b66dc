# SPDX-License-Identifier: BSD-3-Clause
"""Decodes a pickle of dictionaries, lists, tuples, strings and numbers, and refuses every other opcode.

A flight record comes from another machine, and pickle.loads() would run what the file asks for. This decoder has no
opcode that imports, calls or builds an object. Memory is bounded by the size of the file: pickle's own decoder
allocates as much as a single memo index asks for. Values may be shared, so a small file can describe a deep or wide
structure: a reader takes the fields that it knows, and walks nothing else.
"""

from __future__ import annotations

import struct
from typing import Any

_MARK = object()
_LONGEST_INTEGER = 8  # bytes
# The bytes of an opcode's argument, and how to read it.
_NUMBERS = {
    ord("K"): struct.Struct("<B"),
    ord("M"): struct.Struct("<H"),
    ord("J"): struct.Struct("<i"),
    ord("G"): struct.Struct(">d"),
}
_STRINGS = {ord("X"): struct.Struct("<I"), 0x8C: struct.Struct("<B"), 0x8D: struct.Struct("<Q")}
_GETS = {ord("h"): struct.Struct("<B"), ord("j"): struct.Struct("<I")}
_PUTS = {ord("q"): struct.Struct("<B"), ord("r"): struct.Struct("<I")}
_CONSTANTS: dict[int, Any] = {ord("N"): None, 0x88: True, 0x89: False}
_TUPLES = {ord(")"): 0, 0x85: 1, 0x86: 2, 0x87: 3}
_SKIPPED = {0x80: 1, 0x95: 8}  # PROTO, FRAME


def loads(data: bytes) -> Any:
    """Raises ValueError with a clause that says what is wrong."""
    try:
        return _decode(data)
    except (struct.error, IndexError, KeyError):
        raise ValueError("its pickle is cut off or damaged") from None
    except (TypeError, AttributeError):  # a list as a key, items for a number
        raise ValueError("its pickle is damaged") from None


def _decode(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    at = 0
    while True:
        code = data[at]
        at += 1
        if layout := _GETS.get(code):
            stack.append(memo[layout.unpack_from(data, at)[0]])
            at += layout.size
        elif layout := _PUTS.get(code):
            memo[layout.unpack_from(data, at)[0]] = stack[-1]
            at += layout.size
        elif layout := _NUMBERS.get(code):
            stack.append(layout.unpack_from(data, at)[0])
            at += layout.size
        elif layout := _STRINGS.get(code):
            begin = at + layout.size
            at = begin + layout.unpack_from(data, at)[0]
            if at > len(data):
                raise IndexError
            stack.append(data[begin:at].decode(errors="replace"))
        elif code == 0x8A:  # LONG1
            length = data[at]
            if length > _LONGEST_INTEGER:
                raise ValueError(f"its pickle has an integer of {length} bytes")
            stack.append(int.from_bytes(data[at + 1 : at + 1 + length], "little", signed=True))
            at += 1 + length
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _SKIPPED:
            at += _SKIPPED[code]
        elif code == ord("."):
            return stack[-1]
        else:
            _build(code, stack, memo)


def _build(code: int, stack: list[Any], memo: dict[int, Any]) -> None:
    """The opcodes that make and fill containers."""
    if code == ord("("):
        stack.append(_MARK)
    elif code == ord("}"):
        stack.append({})
    elif code == ord("]"):
        stack.append([])
    elif code == 0x94:  # MEMOIZE
        memo[len(memo)] = stack[-1]
    elif code in _TUPLES:
        stack.append(_take(stack, len(stack) - _TUPLES[code]))
    elif code == ord("t"):
        stack.append(_take_marked(stack))
    elif code in b"ae":  # APPEND, APPENDS
        items = _take_marked(stack) if code == ord("e") else _take(stack, len(stack) - 1)
        stack[-1].extend(items)
    elif code in b"su":  # SETITEM, SETITEMS
        items = _take_marked(stack) if code == ord("u") else _take(stack, len(stack) - 2)
        if len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
            raise TypeError  # hash() of a deep tuple would overflow the stack
        stack[-1].update(zip(items[::2], items[1::2], strict=True))
    else:
        raise ValueError(
            f"its pickle has opcode {code:#04x}, which only objects other than dictionaries, lists, strings and "
            "numbers need"
        )


def _take(stack: list[Any], begin: int) -> tuple[Any, ...]:
    if begin < 0:
        raise IndexError
    items = tuple(stack[begin:])
    del stack[begin:]
    return items


def _take_marked(stack: list[Any]) -> tuple[Any, ...]:
    begin = len(stack) - 1
    while stack[begin] is not _MARK:
        begin -= 1
        if begin < 0:
            raise IndexError
    items = _take(stack, begin + 1)
    stack.pop()
    return items

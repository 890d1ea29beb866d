"""tsvector and tsquery as text.

Both carry their words as C strings. A word is printed in single quotes, with quotes and backslashes doubled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import BAD, COLON, COMMA, MINUS, RenderedDecoder, put_unsigned
from walrelay.wire.kernel import OK, be16, be32, kernel

_SPACE, _QUOTE, _BACKSLASH, _STAR = ord(" "), ord("'"), ord("\\"), ord("*")
_A, _D = ord("A"), ord("D")
_OPEN, _CLOSE, _NOT_SIGN, _AND_SIGN, _OR_SIGN = ord("("), ord(")"), ord("!"), ord("&"), ord("|")
_LESS, _GREATER = ord("<"), ord(">")

# tsearch/ts_type.h: the kinds of items in a tsquery, and its operators.
VALUE, OPERATOR = 1, 2
NOT, AND, OR, PHRASE = 1, 2, 3, 4
_PRIORITIES = np.array([0, 4, 2, 1, 3], dtype=np.int64)
"""How tightly an operator binds, at its own number."""


@kernel
def end_of_word(buf: Any, at: Any, end: Any) -> Any:
    """Where the zero byte of the C string at `at` stands, or BAD when there is none before `end`."""
    while at < end:
        if buf[at] == 0:
            return at
        at += 1
    return BAD


@kernel
def put_word(buf: Any, start: Any, end: Any, out: Any, at: Any) -> Any:
    """Write the word from `start` up to `end` in quotes."""
    out[at] = _QUOTE
    at += 1
    for k in range(start, end):
        byte = buf[k]
        if byte in (_QUOTE, _BACKSLASH):
            out[at] = byte
            at += 1
        out[at] = byte
        at += 1
    out[at] = _QUOTE
    return at + 1


@kernel
def put_position(out: Any, at: Any, position: Any) -> Any:
    """Write a position (14 bits) and its weight (2 bits above them): A, B, C, or nothing for D."""
    at = put_unsigned(out, at, position & 0x3FFF)
    weight = position >> 14
    if weight > 0:
        out[at] = _D - weight
        at += 1
    return at


@kernel
def put_tsvector(buf: Any, start: Any, length: Any, out: Any, at: Any) -> Any:
    """Write one value. On the wire: a count (int32); per lexeme a C string, count and positions (uint16)."""
    if length < 4:
        return BAD
    count = np.int64(be32(buf, start))
    read, end = start + 4, start + length
    # A lexeme takes 3 bytes or more, so this also bounds the loop below.
    if count < 0 or 3 * count > end - read:
        return BAD
    for k in range(count):
        word_end = end_of_word(buf, read, end)
        if word_end == BAD or end - word_end < 3:
            return BAD
        positions = np.int64(be16(buf, word_end + 1)) & 0xFFFF
        if 2 * positions > end - word_end - 3:
            return BAD
        if k > 0:
            out[at] = _SPACE
            at += 1
        at = put_word(buf, read, word_end, out, at)
        read = word_end + 3
        for p in range(positions):
            out[at] = COMMA if p > 0 else COLON
            at = put_position(out, at + 1, np.int64(be16(buf, read)) & 0xFFFF)
            read += 2
    return at if read == end else BAD


@kernel
def render_tsvectors(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        at = put_tsvector(buf, starts[i], lengths[i], out, at)
        if at == BAD:
            return i
    offsets[starts.size] = at
    return OK


@kernel
def item_end(buf: Any, at: Any, end: Any) -> Any:
    """Where the item at `at` ends, or BAD when it does not fit before `end` or is of no known kind."""
    if end - at < 2:
        return BAD
    if buf[at] == OPERATOR:
        if buf[at + 1] == PHRASE:
            return at + 4 if end - at >= 4 else BAD
        return at + 2 if NOT <= buf[at + 1] <= OR else BAD
    if buf[at] != VALUE or end - at < 4 or buf[at + 1] > 0xF:
        return BAD
    word_end = end_of_word(buf, at + 3, end)
    return word_end + 1 if word_end != BAD else BAD


@kernel
def plant(buf: Any, start: Any, length: Any, items: Any, sizes: Any) -> Any:
    """Find where each item starts and how many items its tree has; returns the count of items, or BAD.

    Items stand in prefix order: an operator, its right operand, then its left one.
    """
    if length < 4:
        return BAD
    count = np.int64(be32(buf, start))
    read, end = start + 4, start + length
    # An item takes 2 bytes or more; `items` and `sizes` have room for half of the bytes.
    if count < 0 or 2 * count > end - read:
        return BAD
    for k in range(count):
        items[k] = read
        read = item_end(buf, read, end)
        if read == BAD:
            return BAD
    if read != end:
        return BAD
    for k in range(count - 1, -1, -1):
        sizes[k] = 1
        if buf[items[k]] == VALUE:
            continue
        for _ in range(1 if buf[items[k] + 1] == NOT else 2):
            operand = k + sizes[k]
            if operand >= count:
                return BAD
            sizes[k] += sizes[operand]
    return count if count == 0 or sizes[0] == count else BAD


@kernel
def put_value(buf: Any, item: Any, end: Any, out: Any, at: Any) -> Any:
    """Write an operand: weight bits (A highest), whether it is a prefix, the word."""
    weights, prefix = buf[item + 1], buf[item + 2]
    at = put_word(buf, item + 3, end_of_word(buf, item + 3, end), out, at)
    if weights == 0 and prefix == 0:
        return at
    out[at] = COLON
    at += 1
    if prefix:
        out[at] = _STAR
        at += 1
    for k in range(4):
        if (weights >> (3 - k)) & 1:
            out[at] = _A + k
            at += 1
    return at


@kernel
def put_operator(buf: Any, item: Any, out: Any, at: Any) -> Any:
    """Write an operator of two operands, between spaces."""
    out[at] = _SPACE
    at += 1
    if buf[item + 1] != PHRASE:
        out[at] = _AND_SIGN if buf[item + 1] == AND else _OR_SIGN
        at += 1
    else:
        distance = np.int64(be16(buf, item + 2))
        out[at] = _LESS
        at += 1
        if distance == 1 or distance < 0:
            out[at] = MINUS
            at += 1
        if distance != 1:
            at = put_unsigned(out, at, abs(distance))
        out[at] = _GREATER
        at += 1
    out[at] = _SPACE
    return at + 1


# What is left to write of an item: all of it; its operator and right operand; its closing parenthesis.
_WHOLE, _RIGHT, _END = 0, 1, 2


@kernel
def needs_parentheses(buf: Any, item: Any, parent: Any, is_right: bool) -> bool:
    """Whether an operand that is an operator itself would read differently without parentheses."""
    if buf[item] == VALUE:
        return False
    if _PRIORITIES[buf[item + 1]] < _PRIORITIES[buf[parent + 1]]:
        return True
    # Without parentheses a phrase reads from the left: (a <-> b) <-> c.
    return is_right and buf[parent + 1] == PHRASE and buf[item + 1] == PHRASE


@kernel
def put_tree(buf: Any, items: Any, sizes: Any, end: Any, stack: Any, out: Any, at: Any) -> Any:
    """Write the items as an infix expression; a row of `stack` is (item, what is left, parenthesised)."""
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, _WHOLE, 0
    depth = 1
    while depth > 0:
        node = stack[depth - 1]
        item = items[node[0]]
        if buf[item] == VALUE:
            at = put_value(buf, item, end, out, at)
            depth -= 1
            continue
        if node[1] == _END:
            if node[2]:
                out[at] = _SPACE
                out[at + 1] = _CLOSE
                at += 2
            depth -= 1
            continue
        operand = node[0] + 1
        is_right = node[1] == _RIGHT
        if buf[item + 1] == NOT:
            out[at] = _NOT_SIGN
            at += 1
            node[1] = _END
        elif is_right:
            at = put_operator(buf, item, out, at)
            node[1] = _END
        else:
            if node[2]:
                out[at] = _OPEN
                out[at + 1] = _SPACE
                at += 2
            operand += sizes[operand]
            node[1] = _RIGHT
        stack[depth, 0], stack[depth, 1] = operand, _WHOLE
        stack[depth, 2] = needs_parentheses(buf, items[operand], item, is_right)
        depth += 1
    return at


@kernel
def render_tsqueries(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    longest = np.int64(0)
    for i in range(lengths.size):
        longest = max(longest, np.int64(lengths[i]))
    room = longest // 2 + 1
    items, sizes = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    stack = np.empty((room, 3), dtype=np.int64)
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        count = plant(buf, starts[i], lengths[i], items, sizes)
        if count == BAD:
            return i
        if count > 0:
            at = put_tree(buf, items, sizes, starts[i] + lengths[i], stack, out, at)
    offsets[starts.size] = at
    return OK


def tsvector() -> RenderedDecoder:
    # A position's 2 bytes become at most «,16383A».
    return RenderedDecoder("tsvector", render_tsvectors, per_byte=4, holds_text=True)


def tsquery() -> RenderedDecoder:
    # An operator's 2 bytes become at most « & » in «( » and « )», a phrase operator's 4 « <-32768> » there.
    return RenderedDecoder("tsquery", render_tsqueries, per_byte=4, holds_text=True)

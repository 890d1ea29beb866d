"""Changes of a column's type that keep every value: those for which Postgres does not write the table anew.

Everything else may have computed new values (`USING`), or rounded, padded or cut the old ones; no message brings them.
What stands here can be given a `USING` too, which makes Postgres write the table anew: its fingerprint tells.
"""

from __future__ import annotations

from typing import Final

from walrelay.model.schema import PgType

_TEXT, _VARCHAR, _NUMERIC = 25, 1043, 1700
_LIMITED: Final = frozenset({_VARCHAR, 1562, 1083, 1266, 1114, 1184})
"""Types whose modifier is a limit, of length (varchar, varbit) or precision (time, timestamp); -1 is none."""
_HEADER = 4

SourceType = str
"""A Postgres type and its modifier, as `source_type` writes them."""


def source_type(type_: PgType) -> SourceType:
    return f"{type_.oid}:{type_.modifier}"


def keeps_values(before: SourceType, now: SourceType) -> bool:
    """Whether a column that was `before` and is `now` holds the same values as it did."""
    if before == now:
        return True
    old, old_modifier = map(int, before.split(":"))
    new, new_modifier = map(int, now.split(":"))
    if {old, new} <= {_TEXT, _VARCHAR} and new_modifier < 0:
        return True
    if old != new:
        return False
    if old in _LIMITED:
        return new_modifier < 0 or 0 <= old_modifier <= new_modifier
    return old == _NUMERIC and old_modifier >= 0 and _is_more_digits(old_modifier, new_modifier)


def _is_more_digits(old: int, new: int) -> bool:
    """More digits before the point, as many after it."""
    if new < 0:
        return False  # the point may then be anywhere, and our type for it is another
    (old_digits, old_scale), (new_digits, new_scale) = (divmod(one - _HEADER, 1 << 16) for one in (old, new))
    return old_scale == new_scale and old_digits <= new_digits

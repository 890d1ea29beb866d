"""Values that a target type may be unable to hold, and what is done with them (SEMANTICS 20)."""

from __future__ import annotations

from enum import Enum
from typing import Literal

SpecialValues = Literal["null", "clamp", "error"]
"""`null`: NULL instead. `clamp`: the nearest value the target holds, NULL where there is none. `error`: fail."""


class Special(Enum):
    """The kinds of special value; the text is what summaries and errors print."""

    TIMESTAMP_INFINITY = "timestamp ±infinity"
    TIMESTAMP_RANGE = "timestamp after 294247-01-10"
    TIMESTAMP_YEARS = "timestamp in a year that the destination's type does not have"
    DATE_YEARS = "date in a year that the destination's type does not have"
    DATE_INFINITY = "date ±infinity"
    INTERVAL_INFINITY = "interval ±infinity"
    NUMERIC_NAN = "numeric NaN"
    ARRAY_SHAPE = "array with other dimensions than its column"
    ARRAY_BOUNDS = "array whose index does not start at 1 (index dropped)"
    ARRAY_NULL = "NULL in an array, or in place of one"

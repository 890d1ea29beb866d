"""Captures that start at once, as in tests/spark: nearly every page starts some."""

from tests.spark.conftest import capture_forks, captures_start_at_once

__all__ = ["capture_forks", "captures_start_at_once"]

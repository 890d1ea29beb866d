"""What a person may want of a pipeline: `resync`, `rollback`, `pause`, `resume`, each given the pipeline's store."""

from __future__ import annotations

from walrelay.workers.wishes import Asked, find_tables, is_running, pause, resume, resync, rollback

__all__ = ["Asked", "find_tables", "is_running", "pause", "resume", "resync", "rollback"]

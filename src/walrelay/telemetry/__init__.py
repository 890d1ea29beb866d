"""Watching a pipeline: its log, metrics, health, and who is told what has happened."""

"""Damaged streams of both roads: whatever the bytes are, they give rows or are refused in one way."""

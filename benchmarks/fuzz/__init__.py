"""Damaged COPY streams: whatever the bytes are, they give rows or are refused in one way."""
